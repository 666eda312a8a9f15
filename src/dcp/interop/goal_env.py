"""Any environment of ours as a Gymnasium environment with the goal dictionary that HER users know."""

from typing import Any

import gymnasium
import numpy as np

from dcp.envs.base import Environment, EnvState
from dcp.errors import UserError
from dcp.interop.programs import Seen, programs, seed_words
from dcp.interop.relabelling import Relabelling, terminated
from dcp.interop.task import KINEMATIC_FPS, RENDER_MODES, GoalTask

Observation = dict[str, np.ndarray]


class GoalEnv(Relabelling, gymnasium.Env[Any, np.ndarray]):
    """Every reset draws a new start and goal, in either fidelity. Time limits are Gymnasium's TimeLimit's affair."""

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": KINEMATIC_FPS}  # noqa: RUF012

    def __init__(
        self,
        env: str | Environment,
        fidelity: str = "paper",
        reward: str = "zero_one",
        render_mode: str | None = None,
        physics: str = "brax",
    ):
        self.task = GoalTask(env, fidelity, reward, render_mode, physics)
        self.observation_space, self.action_space = self.task.observation_space, self.task.action_space
        self.render_mode, self.metadata = render_mode, self.task.metadata(render_mode)
        self._programs = programs(self.task.env)
        self._words: np.ndarray | None = None  # of the seed; None before the first reset
        self._episode = np.int32(0)  # since the seed
        self._state: EnvState | None = None
        self._reached = False  # near the goal at least once in this episode
        self._picture: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """`options={"goal": [...]}`: toward this goal; the start is drawn as ever."""
        goal = self.task.wanted_goal(options)
        super().reset(seed=seed)
        if seed is None and self._words is not None:
            self._episode += np.int32(1)
        else:
            self._words = seed_words(int(self.np_random.integers(2**63)) if seed is None else seed)
            self._episode = np.int32(0)
        self._state, seen = self.task.start(self._programs, self._words, self._episode, goal)
        self._reached = False
        return self._told(seen)

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if self._state is None:
            raise UserError("reset the environment before its first step")
        self._state, seen = self._programs.advance(self._state, self.task.actions(action))
        observation, info = self._told(seen, stepped=True)
        reward = float(self.task.reward(observation["achieved_goal"], observation["desired_goal"]))
        return observation, reward, bool(terminated(info)), False, info

    def _told(self, seen: Seen, stepped: bool = False) -> tuple[Observation, dict[str, Any]]:
        near_goal, done, diverged = np.asarray(seen.flags).tolist()
        self._reached |= near_goal and stepped  # as in dcp's evaluation, a start at the goal is no success yet
        info = {"near_goal": near_goal, "is_success": self._reached, "done": done, "diverged": diverged}
        return self.task.observation(seen.obs), info

    def render(self) -> Any:
        """uint8 [H, W, 3]"""
        if self.render_mode is None:
            raise UserError("make the environment with render_mode='rgb_array' to render it")
        if self._state is None:
            raise UserError("reset the environment before it is rendered")
        if self._picture is None:
            self._picture = self.task.picture()
        return self._picture(self._state)

    def close(self) -> None:
        if self._picture is not None:
            self._picture.close()
            self._picture = None
