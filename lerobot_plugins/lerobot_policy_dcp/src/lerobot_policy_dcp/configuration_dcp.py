"""The policy's settings in LeRobot."""

from dataclasses import dataclass

from lerobot.configs.policies import PreTrainedConfig
from lerobot.optim.optimizers import AdamConfig
from lerobot.utils.constants import ACTION, OBS_STATE


@PreTrainedConfig.register_subclass("dcp")
@dataclass
class DcpConfig(PreTrainedConfig):
    policy_file: str = "zoo/so101_reach/dcp"
    """A file of `dcp export --format numpy`, a run's folder, a policy file, or zoo/<env>/<method>."""
    goal: list[float] | None = None
    """The goal. Without one, each observation brings its own as `observation.goal`."""
    device: str | None = "cpu"

    @property
    def observation_delta_indices(self) -> None:
        return None

    @property
    def action_delta_indices(self) -> None:
        return None

    @property
    def reward_delta_indices(self) -> None:
        return None

    def get_optimizer_preset(self) -> AdamConfig:
        return AdamConfig()

    def get_scheduler_preset(self) -> None:
        return None

    def validate_features(self) -> None:
        features = self.input_features or {}
        if features and OBS_STATE not in features:
            raise ValueError(f"a policy of dcp reads {OBS_STATE}, and there is {', '.join(features)}: name it so")
        if self.output_features and ACTION not in self.output_features:
            raise ValueError(f"a policy of dcp gives {ACTION}: name the robot's action so")
