"""Episodes of a policy with everything that a picture needs. The seed decides them, so policies are shown alike."""

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from dcp.compiling import QUICK_COMPILE
from dcp.envs.base import Environment, EnvState
from dcp.envs.pushing import places, things_of
from dcp.evaluation.rollout import Record, rollout
from dcp.evaluation.trial import goal_set_key
from dcp.policies.policy import Policy
from dcp.types import Array

AFTER_SUCCESS = 30  # steps shown after the goal is reached
# Episodes are played so many at a time, however few are shown: one compiled program serves all, and an episode does
# not change with how many others are shown (rounding differs between programs, and contact makes much of it).
TOGETHER = 8


class Episode(NamedTuple):
    """One episode up to its end; T is the number of its steps."""

    achieved: np.ndarray  # [T + 1, G]
    goal: np.ndarray  # [G]
    q: np.ndarray | None  # [T + 1, Q]: the bodies' poses, under simulated physics; or the places of things in a plane
    reached: int | None  # the first step that is near the goal
    directions: np.ndarray | None = None  # [T + 1, 2]
    subgoals: np.ndarray | None = None  # [T + 1, G]

    @property
    def steps(self) -> int:
        return len(self.achieved) - 1

    @property
    def last(self) -> int:
        """The last step that is shown."""
        return self.steps if self.reached is None else min(self.steps, self.reached + AFTER_SUCCESS)

    @property
    def distance(self) -> np.ndarray:
        """[T + 1]: to the goal"""
        return np.linalg.norm(self.achieved - self.goal, axis=-1)


def play(env: Environment, policy: Policy, key: Array, num_episodes: int, steps: int) -> list[Episode]:
    """Fresh episodes; the key decides starts and goals."""
    record = jax.device_get(_runner(env, policy, num_episodes, steps)(policy, key))
    obs, q = record.watched
    state, goal = env.spec.split(obs)  # [T + 1, N, ...]
    achieved = env.spec.achieved(state)
    if things := things_of(env):
        q = places(things, state)
    found = []
    for i in range(num_episodes):
        end = int(record.alive[:, i].sum()) + 1
        near = np.flatnonzero(record.near_goal[:, i])
        reached = int(near[0]) + 1 if len(near) else None  # step t leads to state t + 1
        found.append(Episode(achieved[:end, i], goal[0, i], None if q is None else q[:end, i], reached))
    return found


def shown_episodes(
    env: Environment, policy: Policy, seed: int, first: int, num_episodes: int, steps: int
) -> list[Episode]:
    """Episodes `first`, ... of the frozen set that `dcp eval --seeds <seed>` measures: the same starts and goals."""
    last = first + num_episodes
    return play(env, policy, goal_set_key(seed), -(-last // TOGETHER) * TOGETHER, steps)[first:last]


def _watch(state: EnvState) -> tuple[Array, Array | None]:
    return state.obs, getattr(state.physics, "q", None)


def _run(env: Environment, num_episodes: int, steps: int, policy: Policy, key: Array) -> Record:
    return rollout(env, policy, key, num_episodes, steps, watch=_watch)


def _runner(env: Environment, policy: Policy, num_episodes: int, steps: int) -> Callable[[Any, Array], Record]:
    if getattr(policy, "on_host", False):
        return partial(_run, env, num_episodes, steps)
    make = _program if isinstance(env, Hashable) else _program.__wrapped__
    return make(env, num_episodes, steps)


@lru_cache(maxsize=4)
def _program(env: Environment, num_episodes: int, steps: int) -> Callable[[Any, Array], Record]:
    """Compiled once for all policies that differ in their parameters alone."""
    return jax.jit(partial(_run, env, num_episodes, steps), compiler_options=QUICK_COMPILE)
