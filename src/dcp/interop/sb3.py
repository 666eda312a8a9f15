"""Use a Stable-Baselines3 model that was trained on our goal dictionary in dcp's own evaluation."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dcp.errors import UserError
from dcp.types import EnvSpec


def policy_of(model: Any, spec: EnvSpec, deterministic: bool = True) -> Callable[[Any, Any], np.ndarray]:
    """Return a NumPy function (state [N, S], goal [N, G]) -> action [N, A] for `dcp.policies.wrappers.HostPolicy`."""
    _check_sizes(model, spec)

    def act(state: Any, goal: Any) -> np.ndarray:
        state, goal = np.asarray(state, np.float32), np.asarray(goal, np.float32)
        observation = {"observation": state, "achieved_goal": spec.achieved(state), "desired_goal": goal}
        return model.predict(observation, deterministic=deterministic)[0]

    return act


def _check_sizes(model: Any, spec: EnvSpec) -> None:
    wanted = {"observation": spec.state_size, "achieved_goal": spec.goal_size, "desired_goal": spec.goal_size}
    parts = getattr(model.observation_space, "spaces", None)
    if parts is None or set(parts) != set(wanted):
        raise UserError(f"the model takes no goal dictionary: train it with MultiInputPolicy on {spec.name} by its id")
    sizes = {name: parts[name].shape for name in wanted} | {"action": model.action_space.shape}
    for name, size in (wanted | {"action": spec.action_size}).items():
        if sizes[name] != (size,):
            raise UserError(f"the model's {name} has shape {sizes[name]}, but {spec.name} has {size} numbers there")
