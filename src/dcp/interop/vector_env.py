"""N environments as one program: `gymnasium.make_vec("dcp/AntUMaze-v0", num_envs=64)`."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import jax
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from dcp.envs.base import Environment, EnvState
from dcp.envs.devices import count_devices, make_split, prepare
from dcp.errors import UserError
from dcp.interop.programs import Seen, chosen, programs, seed_words
from dcp.interop.relabelling import Relabelling, terminated
from dcp.interop.task import KINEMATIC_FPS, RENDER_MODES, GoalTask

Observation = dict[str, np.ndarray]
Seeds = int | Sequence[int | None] | None


class GoalVectorEnv(Relabelling, VectorEnv[Observation, np.ndarray, np.ndarray]):
    """Environment i is the single environment with seed s + i, episode for episode.

    Autoreset is Gymnasium's NEXT_STEP: the step after an episode's end ignores the action and returns the next
    episode's first observation, with reward 0.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": list(RENDER_MODES),
        "render_fps": KINEMATIC_FPS,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        env: str | Environment,
        num_envs: int = 1,
        fidelity: str = "paper",
        reward: str = "zero_one",
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        devices: int | None = None,
        physics: str = "brax",
    ):
        """`max_episode_steps`: None for the environment's own, -1 for no limit. `devices`: as in `dcp train`."""
        if num_envs < 1:
            raise UserError(f"num_envs is {num_envs}: at least one environment is needed")
        self.task = GoalTask(env, fidelity, reward, render_mode, physics)
        spec = self.task.spec
        prepare(devices, spec)
        count = count_devices(devices, num_envs, spec)
        if num_envs % count:
            raise UserError(f"{num_envs} environments cannot be shared out evenly over {count} devices")
        self.num_envs, self.render_mode = num_envs, render_mode
        self.metadata = type(self).metadata | self.task.metadata(render_mode)
        self.single_observation_space, self.single_action_space = self.task.observation_space, self.task.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        limit = spec.episode_length if max_episode_steps is None else max_episode_steps
        self._limit = np.inf if limit == -1 else limit
        self._programs = programs(self.task.env, make_split(count))
        self._words = np.zeros((num_envs, 2), np.uint32)  # of each environment's seed
        self._episode = np.zeros(num_envs, np.int32)  # since its seed
        self._steps = np.zeros(num_envs, np.int64)  # of the present episode
        self._reached = np.zeros(num_envs, bool)  # near the goal at least once in it
        self._ended = np.zeros(num_envs, bool)  # by the step before
        self._state: EnvState | None = None
        self._picture: Any = None

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """All anew. `options={"goal": ...}`: [G] for all or [N, G], for these episodes; the next ones draw theirs."""
        goal = self.task.wanted_goal(options, self.num_envs)
        super().reset(seed=seed if isinstance(seed, int) else None)
        self._seed(seed)
        self._state, seen = self.task.start(self._programs, self._words, self._episode, goal)
        self._steps[:], self._reached[:], self._ended[:] = 0, False, False
        return self._told(seen, stepped=np.zeros(self.num_envs, bool))

    def _seed(self, seed: Seeds) -> None:
        seeds = [None] * self.num_envs if seed is None else seed
        seeds = [seeds + i for i in range(self.num_envs)] if isinstance(seeds, int | np.integer) else list(seeds)
        if len(seeds) != self.num_envs:
            raise UserError(f"{len(seeds)} seeds for {self.num_envs} environments: give one each, or one for all")
        for i, one in enumerate(seeds):
            if one is None and self._state is not None:
                self._episode[i] += 1
            else:
                self._words[i] = seed_words(int(self.np_random.integers(2**63)) if one is None else int(one))
                self._episode[i] = 0

    def step(self, actions: Any) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._state is None:
            raise UserError("reset the environments before their first step")
        wanted = self.task.actions(actions, self.num_envs)
        stepped = ~self._ended
        state, seen = self._programs.advance(self._state, wanted)
        if not np.all(stepped):
            self._episode += self._ended
            fresh = self.task.start(self._programs, self._words, self._episode, goal=None)
            state, seen = chosen(self._ended, fresh, (state, seen))
        self._state = state
        self._steps = np.where(stepped, self._steps + 1, 0)
        self._reached &= stepped
        observation, infos = self._told(seen, stepped)
        reward = self.task.reward(observation["achieved_goal"], observation["desired_goal"])
        terminations, truncations = stepped & terminated(infos), stepped & (self._steps >= self._limit)
        self._ended = terminations | truncations
        return observation, np.where(stepped, reward, 0.0), terminations, truncations, infos

    def _told(self, seen: Seen, stepped: np.ndarray) -> tuple[Observation, dict[str, Any]]:
        near_goal, done, diverged = np.array(seen.flags).T
        self._reached |= near_goal & stepped
        infos = {"near_goal": near_goal, "is_success": self._reached.copy(), "done": done, "diverged": diverged}
        return self.task.observation(seen.obs), infos

    def render(self) -> tuple[np.ndarray, ...] | None:
        """N pictures, each uint8 [H, W, 3]"""
        if self.render_mode is None:
            raise UserError("make the environments with render_mode='rgb_array' to render them")
        if self._state is None:
            raise UserError("reset the environments before they are rendered")
        if self._picture is None:
            self._picture = self.task.picture()
        state = jax.device_get(self._state)
        return tuple(self._picture(jax.tree.map(itemgetter(i), state)) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        if self._picture is not None:
            self._picture.close()
            self._picture = None
