"""The SO-101 tasks of dcp in LeRobot: importing this registers dcp_so101_reach, ..._reach_pose, ..._push and ..._lift.

LeRobot's commands import it themselves. The physics is imported when an environment is made.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig
from lerobot.utils.constants import ACTION, OBS_STATE

OBS_GOAL = "observation.goal"
FPS = 30
# Name: S, G, A, steps, what is asked for. Written out, because dcp's registry needs JAX; a test compares them.
TASKS = {
    "so101_reach": (13, 3, 5, 100, "Move the gripper to the goal."),
    "so101_reach_pose": (14, 4, 5, 100, "Move the gripper to the goal, with its tilt."),
    "so101_push": (16, 2, 5, 150, "Push the cube to the goal."),
    "so101_lift": (18, 3, 6, 150, "Lift the cube to the goal."),
}
BY_TOOL = {"so101_push": (18, 2), "so101_lift": (21, 4)}  # S, A where an action moves the tool point


class DcpEnv(gymnasium.Env):
    """One arm. An episode ends at the goal, or when its time is over."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": FPS}  # noqa: RUF012

    def __init__(
        self, name: str, randomize: str | None = None, render_mode: str | None = "rgb_array", control: str = "joints"
    ):
        from dcp.envs.registry import make_env
        from dcp.interop.goal_env import GoalEnv

        self._env = GoalEnv(make_env(name, "fixed", "mujoco", randomize, control), "fixed", render_mode=render_mode)
        self.render_mode = render_mode
        self._max_episode_steps = TASKS[name][3]
        self.task, self.task_description = name, TASKS[name][4]
        theirs = self._env.observation_space
        self.observation_space = spaces.Dict({"agent_pos": theirs["observation"], "goal": theirs["desired_goal"]})
        self.action_space = self._env.action_space
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        goal = (options or {}).get("goal")
        observation, info = self._env.reset(seed=seed, options=None if goal is None else {"goal": goal})
        self._steps = 0
        return _renamed(observation), {"is_success": info["is_success"]}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, _, info = self._env.step(action)
        self._steps += 1
        reached = bool(info["is_success"])
        is_over = self._steps >= self._max_episode_steps
        return _renamed(observation), reward, terminated or reached, is_over, {"is_success": reached}

    def render(self) -> np.ndarray:
        return self._env.render()

    def close(self) -> None:
        self._env.close()


def _renamed(observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"agent_pos": observation["observation"], "goal": observation["desired_goal"]}


@dataclass
class DcpEnvConfig(EnvConfig):
    task: str | None = "so101_reach"
    fps: int = FPS
    randomize: str | None = None
    """What changes between episodes: all, or names like gains,delay (docs/so101.md of dcp)."""
    control: str = "joints"
    """What an action moves: joints, or in so101_push and so101_lift the tool point (tool)."""
    render_mode: str = "rgb_array"
    features: dict[str, PolicyFeature] = field(default_factory=dict)
    features_map: dict[str, str] = field(
        default_factory=lambda: {ACTION: ACTION, "agent_pos": OBS_STATE, "goal": OBS_GOAL}
    )

    def __post_init__(self) -> None:
        state, goal, action, *_ = TASKS[str(self.task)]
        if self.control == "tool":
            state, action = BY_TOOL.get(str(self.task), (state, action))
        self.features = self.features or {
            ACTION: PolicyFeature(type=FeatureType.ACTION, shape=(action,)),
            "agent_pos": PolicyFeature(type=FeatureType.STATE, shape=(state,)),
            "goal": PolicyFeature(type=FeatureType.ENV, shape=(goal,)),
        }

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        return {"randomize": self.randomize, "render_mode": self.render_mode, "control": self.control}

    def create_envs(
        self, n_envs: int, use_async_envs: bool = False
    ) -> dict[str, dict[int, gymnasium.vector.VectorEnv]]:
        make: Callable[[], gymnasium.Env] = partial(DcpEnv, str(self.task), **self.gym_kwargs)
        same_step = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
        if use_async_envs and n_envs > 1:  # a process each; they may not fork one that has JAX's threads
            vector = gymnasium.vector.AsyncVectorEnv([make] * n_envs, context="forkserver", **same_step)
        else:
            vector = gymnasium.vector.SyncVectorEnv([make] * n_envs, **same_step)
        return {self.type: {0: vector}}


def _register(name: str) -> type[DcpEnvConfig]:
    kind = dataclass(type(f"Dcp{name.title().replace('_', '')}Config", (DcpEnvConfig,), {
        "task": name, "__annotations__": {"task": str | None}, "__module__": __name__,
    }))  # fmt: skip
    return EnvConfig.register_subclass(f"dcp_{name}")(kind)


CONFIGS = {name: _register(name) for name in TASKS}
globals().update({config.__name__: config for config in CONFIGS.values()})  # by name, for pickle
