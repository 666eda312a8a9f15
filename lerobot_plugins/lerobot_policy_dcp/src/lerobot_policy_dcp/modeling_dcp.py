"""A policy of dcp as LeRobot's PreTrainedPolicy. It runs dcp's exported NumPy form: torch only carries the tensors."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.utils.constants import ACTION, OBS_STATE
from safetensors.torch import load_file, save_file
from torch import Tensor

from dcp.policies.numpy_policy import NumpyPolicy
from lerobot_policy_dcp.configuration_dcp import DcpConfig

OBS_GOAL = "observation.goal"
CONTENT = "policy_npz"  # the exported file's bytes in model.safetensors


def exported_bytes(path: str) -> bytes:
    """Return the content of an exported NumPy policy. A run's folder or the zoo's is exported first, by JAX."""
    if path.endswith(".npz"):
        return Path(path).read_bytes()
    from dcp.policies.exports import encode
    from dcp.policies.policy_file import load_policy_and_about

    policy, about = load_policy_and_about(path)
    return encode(policy, "numpy", about)


class DcpPolicy(PreTrainedPolicy):
    config_class = DcpConfig
    name = "dcp"

    def __init__(self, config: DcpConfig, **kwargs: Any):
        super().__init__(config)
        config.validate_features()
        self._content: bytes | None = None
        self._policy: NumpyPolicy | None = None

    @property
    def policy(self) -> NumpyPolicy:
        """Return dcp's policy, read at first use: a saved one brings its own."""
        if self._policy is None:
            self._content = self._content or exported_bytes(self.config.policy_file)
            with TemporaryDirectory() as folder:
                file = Path(folder) / "policy.npz"
                file.write_bytes(self._content)
                self._policy = NumpyPolicy.load(file)
        return self._policy

    def reset(self) -> None:
        self.policy.reset()

    def select_action(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """Return the action [B, A] for `observation.state` [B, S] and the goal."""
        state = batch[OBS_STATE]
        single = state.ndim == 1
        states = np.atleast_2d(state.detach().cpu().numpy().astype(np.float32))
        action = torch.from_numpy(np.array(self.policy(states, self._goal(batch, len(states))), np.float32))
        return (action[0] if single else action).to(state.device)

    def predict_action_chunk(self, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """Return [B, 1, A], the next action. A policy with action chunks keeps the rest for later calls."""
        return self.select_action(batch).unsqueeze(-2)

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        """Return the mean squared difference between the batch's actions and the policy's. Nothing here is trained."""
        loss = torch.mean((self.select_action(batch) - batch[ACTION]) ** 2)
        return loss, {"action_mse": float(loss)}

    def get_optim_params(self) -> dict[str, Any]:
        """Return none: `dcp train` trains it."""
        return {}

    def _goal(self, batch: dict[str, Tensor], number: int) -> np.ndarray:
        if self.config.goal is not None:
            goal = np.asarray(self.config.goal, np.float32)
        elif OBS_GOAL in batch:
            goal = batch[OBS_GOAL].detach().cpu().numpy().astype(np.float32)
        else:
            raise ValueError(f"no goal: set --policy.goal, or give {OBS_GOAL} with each observation")
        if goal.shape[-1] != self.policy.goal_size:
            raise ValueError(f"the goal has {goal.shape[-1]} numbers, the policy's {self.policy.goal_size}")
        return np.broadcast_to(goal, (number, self.policy.goal_size))

    # Saved as one file, so that it loads from anywhere, the Hub too.

    def _save_pretrained(self, save_directory: Path, state_dict: dict[str, Tensor] | None = None) -> None:
        _ = self.policy
        assert self._content is not None
        self.config._save_pretrained(save_directory)
        content = torch.frombuffer(bytearray(self._content), dtype=torch.uint8)
        save_file({CONTENT: content}, str(save_directory / "model.safetensors"))

    @classmethod
    def _load_as_safetensor(cls, model: "DcpPolicy", model_file: str, map_location: str, strict: bool) -> "DcpPolicy":
        model._content, model._policy = load_file(model_file)[CONTENT].numpy().tobytes(), None
        return model
