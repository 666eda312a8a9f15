"""Play episodes of a policy and keep what pictures need: fresh ones, or all toward the same goal."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.envs.base import Environment, EnvState
from dcp.envs.point_tasks import places, things_of
from dcp.evaluation import Record, rollout
from dcp.lab.trial import COMPILING, Program, cached_by_env
from dcp.machine.compiling import QUICK_COMPILE
from dcp.policies.policy import Policy, PolicyState
from dcp.types import Array, EnvSpec

AFTER_SUCCESS = 30  # steps shown after the goal is reached


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
        """Return the last step that is shown."""
        return self.steps if self.reached is None else min(self.steps, self.reached + AFTER_SUCCESS)

    @property
    def path(self) -> np.ndarray:
        """Return the places in the plane up to the success, without what the agent does at the goal: [K, 2]."""
        return self.achieved[: None if self.reached is None else self.reached + 1, :2]

    @property
    def distance(self) -> np.ndarray:
        """[T + 1]: to the goal"""
        return np.linalg.norm(self.achieved - self.goal, axis=-1)


def play(
    env: Environment, policy: Policy, key: Array, num_episodes: int, steps: int, tell: Callable[[str], object] = len
) -> list[Episode]:
    """Play fresh episodes; the key decides starts and goals."""
    if getattr(policy, "on_host", False):
        run = partial(_run, env, num_episodes, steps)
    else:
        run = _program(env, num_episodes, steps).compiled_for(policy, key, on_compile=lambda: tell(COMPILING))
    tell("running")
    record = jax.device_get(run(policy, key))
    obs, q = record.watched
    state, goal = env.spec.split(obs)  # [T + 1, N, ...]
    achieved = env.spec.achieved(state)
    if things := things_of(env):
        q = places(things, state)
    episodes = []
    for i in range(num_episodes):
        end = int(record.alive[:, i].sum()) + 1
        poses = None if q is None else q[:end, i]
        episodes.append(Episode(achieved[:end, i], goal[0, i], poses, _first(record.near_goal[:, i])))
    return episodes


def _first(near: np.ndarray) -> int | None:
    """Return the first state that is near the goal: step t of `near` [T] leads to state t + 1."""
    return int(near.argmax()) + 1 if near.any() else None


def _run(env: Environment, num_episodes: int, steps: int, policy: Policy, key: Array) -> Record:
    def watch(state: EnvState) -> tuple[Array, Array | None]:
        return state.obs, getattr(state.physics, "q", None)

    return rollout(env, policy, key, num_episodes, steps, watch=watch)


@cached_by_env
def _program(env: Environment, num_episodes: int, steps: int) -> Program:
    """Compile once for all policies that differ only in their parameters."""
    return Program(jax.jit(partial(_run, env, num_episodes, steps), compiler_options=QUICK_COMPILE))


def play_toward(env: Environment, policy: Policy, goal: np.ndarray, num_episodes: int, steps: int) -> list[Episode]:
    """Play fresh episodes with the same goal [G], even if the environment never draws that one.

    The episode is one whose own goal is nearest, and the policy gets the goal that was asked for, which also decides
    the success.
    """
    goal = np.asarray(goal)
    aimed = Aimed(policy, goal.astype(np.float32))
    played = play(Toward(env, tuple(goal.tolist())), aimed, jax.random.key(0), num_episodes, steps)
    aimed_at = [episode._replace(goal=goal) for episode in played]
    return [e._replace(reached=_first(e.distance[1:] < env.spec.threshold)) for e in aimed_at]


@dataclass(frozen=True)
class Toward:
    """Wrap an environment so that all episodes have about the same goal: of several resets, take the nearest goal.

    The physics may hold the goal, so the environment itself draws it, and it is never overwritten.
    """

    env: Environment
    goal: tuple[float, ...]
    tries: int = 256

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    def reset(self, key: Array) -> EnvState:
        states = jax.vmap(self.env.reset)(jax.random.split(key, self.tries))
        _, goals = self.spec.split(states.obs)  # [tries, G]
        nearest = jnp.argmin(jnp.linalg.norm(goals - jnp.asarray(self.goal)[None], axis=-1))
        return jax.tree.map(lambda x: x[nearest], states)

    def step(self, state: EnvState, action: Array) -> EnvState:
        return self.env.step(state, action)


@partial(jax.tree_util.register_dataclass, data_fields=["policy", "goal"], meta_fields=[])
@dataclass(frozen=True)
class Aimed:
    """Wrap a policy so that it always gets this goal, whatever the episode's goal is."""

    policy: Policy
    goal: Any  # [G]

    def init(self, key: Array) -> PolicyState:
        return self.policy.init(key)

    def act(self, policy_state: PolicyState, state: Array, goal: Array) -> tuple[PolicyState, Array]:
        return self.policy.act(policy_state, state, jnp.broadcast_to(jnp.asarray(self.goal, goal.dtype), goal.shape))


def shows_maze(spec: EnvSpec) -> bool:
    """Return whether goals are points of a maze's plane, so that the maze can be drawn with them."""
    return spec.maze is not None and spec.goal_dims == spec.maze_dims
