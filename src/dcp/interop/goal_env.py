"""Wrap our environments for Gymnasium with HER's goal dictionary: a single one, or N as one program."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from dcp.envs.base import Environment
from dcp.errors import UserError
from dcp.interop.goal_task import (
    KINEMATIC_FPS,
    RENDER_MODES,
    GoalTask,
    HindsightGoals,
    Seen,
    choose_where,
    gym_programs,
    seed_words,
    terminated,
)
from dcp.machine.devices import count_devices, make_split, prepare
from dcp.types import EnvSpec

Observation = dict[str, np.ndarray]
Seeds = int | Sequence[int | None] | None


class GoalEnv(HindsightGoals, gymnasium.Env[Any, np.ndarray]):
    """Wrap one environment. Every reset draws a new start and goal, in either fidelity. Gymnasium's TimeLimit applies
    the time limit."""

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": KINEMATIC_FPS}  # noqa: RUF012

    def __init__(
        self,
        env: str | Environment,
        fidelity: str = "paper",
        reward: str = "zero_one",
        render_mode: str | None = None,
        physics: str = "brax",
        control: str = "joints",
    ):
        self.task = GoalTask(env, fidelity, reward, render_mode, physics, control)
        self.observation_space, self.action_space = self.task.observation_space, self.task.action_space
        self.render_mode, self.metadata = render_mode, self.task.metadata(render_mode)
        self._programs = gym_programs(self.task.env)
        self._words: np.ndarray | None = None  # of the seed; None before the first reset
        self._episode = np.int32(0)  # since the seed
        self._reached = False  # near the goal at least once in this episode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start a new episode. `options={"goal": [...]}` sets its goal; the start is drawn as usual."""
        goal = self.task.wanted_goal(options)
        super().reset(seed=seed)
        if seed is None and self._words is not None:
            self._episode += np.int32(1)
        else:
            self._words = seed_words(int(self.np_random.integers(2**63)) if seed is None else seed)
            self._episode = np.int32(0)
        self._state, seen = self.task.start(self._programs, self._words, self._episode, goal)
        self._reached = False
        return self._observe(seen)

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if self._state is None:
            raise UserError("reset the environment before its first step")
        self._state, seen = self._programs.advance(self._state, self.task.actions(action))
        observation, info = self._observe(seen, stepped=True)
        reward = float(self.task.reward(observation["achieved_goal"], observation["desired_goal"]))
        return observation, reward, bool(terminated(info)), False, info

    def _observe(self, seen: Seen, stepped: bool = False) -> tuple[Observation, dict[str, Any]]:
        near_goal, done, diverged = np.asarray(seen.flags).tolist()
        self._reached |= near_goal and stepped  # as in dcp's evaluation, a start at the goal does not count as success
        info = {"near_goal": near_goal, "is_success": self._reached, "done": done, "diverged": diverged}
        return self.task.observation(seen.obs), info

    def render(self) -> Any:
        """Return uint8 [H, W, 3]."""
        return self._renderer()(self._state)

    def close(self) -> None:
        self._close_picture()


class GoalVectorEnv(HindsightGoals, VectorEnv[Observation, np.ndarray, np.ndarray]):
    """Wrap N environments. Environment i has the same episodes as the single environment with seed s + i.

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
        control: str = "joints",
    ):
        """Make N environments. `max_episode_steps`: None: the default, -1: no limit. `devices`: as in `dcp train`."""
        if num_envs < 1:
            raise UserError(f"num_envs is {num_envs}: at least one environment is needed")
        self.task = GoalTask(env, fidelity, reward, render_mode, physics, control)
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
        self._programs = gym_programs(self.task.env, make_split(count))
        self._words = np.zeros((num_envs, 2), np.uint32)  # of each environment's seed
        self._episode = np.zeros(num_envs, np.int32)  # since its seed
        self._steps = np.zeros(num_envs, np.int64)  # of the current episode
        self._reached = np.zeros(num_envs, bool)  # near the goal at least once in this episode
        self._ended = np.zeros(num_envs, bool)  # whether the previous step ended the episode

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Start new episodes. `options={"goal": ...}`, [G] for all or [N, G], sets the goals of these episodes only."""
        goal = self.task.wanted_goal(options, self.num_envs)
        super().reset(seed=seed if isinstance(seed, int) else None)
        self._seed(seed)
        self._state, seen = self.task.start(self._programs, self._words, self._episode, goal)
        self._steps[:], self._reached[:], self._ended[:] = 0, False, False
        return self._observe(seen, stepped=np.zeros(self.num_envs, bool))

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
        checked_actions = self.task.actions(actions, self.num_envs)
        stepped = ~self._ended
        state, seen = self._programs.advance(self._state, checked_actions)
        if not np.all(stepped):
            self._episode += self._ended
            fresh = self.task.start(self._programs, self._words, self._episode, goal=None)
            state, seen = choose_where(self._ended, fresh, (state, seen))
        self._state = state
        self._steps = np.where(stepped, self._steps + 1, 0)
        self._reached &= stepped
        observation, infos = self._observe(seen, stepped)
        reward = self.task.reward(observation["achieved_goal"], observation["desired_goal"])
        terminations, truncations = stepped & terminated(infos), stepped & (self._steps >= self._limit)
        self._ended = terminations | truncations
        return observation, np.where(stepped, reward, 0.0), terminations, truncations, infos

    def _observe(self, seen: Seen, stepped: np.ndarray) -> tuple[Observation, dict[str, Any]]:
        near_goal, done, diverged = np.array(seen.flags).T
        self._reached |= near_goal & stepped
        infos = {"near_goal": near_goal, "is_success": self._reached.copy(), "done": done, "diverged": diverged}
        return self.task.observation(seen.obs), infos

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Return N pictures, each uint8 [H, W, 3]."""
        picture, state = self._renderer(), jax.device_get(self._state)
        return tuple(picture(jax.tree.map(itemgetter(i), state)) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        self._close_picture()


# A Stable-Baselines3 model that was trained on our goal dictionary, in dcp's own evaluation.


def policy_of(model: Any, spec: EnvSpec, deterministic: bool = True) -> Callable[[Any, Any], np.ndarray]:
    """Return a NumPy function (state [N, S], goal [N, G]) -> action [N, A] for `dcp.policies.wrappers.HostPolicy`."""
    _check_sizes(model, spec)

    def act(state: Any, goal: Any) -> np.ndarray:
        state, goal = np.asarray(state, np.float32), np.asarray(goal, np.float32)
        observation = {"observation": state, "achieved_goal": spec.achieved(state), "desired_goal": goal}
        return model.predict(observation, deterministic=deterministic)[0]

    return act


def _check_sizes(model: Any, spec: EnvSpec) -> None:
    by_name = {"observation": spec.state_size, "achieved_goal": spec.goal_size, "desired_goal": spec.goal_size}
    parts = getattr(model.observation_space, "spaces", None)
    if parts is None or set(parts) != set(by_name):
        raise UserError(f"the model takes no goal dictionary: train it with MultiInputPolicy on {spec.name} by its id")
    sizes = {name: parts[name].shape for name in by_name} | {"action": model.action_space.shape}
    for name, size in (by_name | {"action": spec.action_size}).items():
        if sizes[name] != (size,):
            raise UserError(f"the model's {name} has shape {sizes[name]}, but {spec.name} has {size} numbers there")
