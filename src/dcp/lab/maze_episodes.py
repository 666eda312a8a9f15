"""Play deterministic episodes of a policy in a maze, as paths in its plane."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.envs.base import Environment, EnvState
from dcp.errors import UserError
from dcp.evaluation import Record, rollout
from dcp.machine.compiling import QUICK_COMPILE
from dcp.policies.policy import Policy, PolicyState
from dcp.types import Array, EnvSpec, MazeLayout


class MazePath(NamedTuple):
    """One episode, up to its end."""

    points: np.ndarray  # [T + 1, 2]: position in the maze's plane, from the first state on
    goal: np.ndarray  # [2]
    reached: int | None  # index of the first point near the goal

    @property
    def until_reached(self) -> "MazePath":
        """Return the path up to its success, without what the agent does at the goal."""
        return self if self.reached is None else MazePath(self.points[: self.reached + 1], self.goal, self.reached)


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


def maze_of(spec: EnvSpec) -> MazeLayout:
    if spec.maze is None or not shows_maze(spec):
        raise UserError(f"{spec.name} cannot be drawn: its goals are not points of a maze's plane")
    return spec.maze


def paths(env: Environment, policy: Policy, seed: int, num_episodes: int, episode_length: int) -> list[MazePath]:
    """Play fresh episodes. The seed decides starts and goals."""
    maze_of(env.spec)
    if all(isinstance(leaf, np.ndarray | jax.Array) for leaf in jax.tree.leaves(policy)) and isinstance(env, Hashable):
        run = partial(_program(env, num_episodes, episode_length), policy)
    else:  # a policy that is not a tree of arrays becomes part of the program
        run = jax.jit(partial(_run, env, num_episodes, episode_length, policy), compiler_options=QUICK_COMPILE)
    record = jax.device_get(run(jax.random.key(seed)))
    state, goal = env.spec.split(record.watched)  # [T + 1, N, ...]
    positions = state[..., np.asarray(env.spec.maze_dims)]  # [T + 1, N, 2]
    found = []
    for i in range(num_episodes):
        end = int(record.alive[:, i].sum())
        near = np.flatnonzero(record.near_goal[:, i])
        reached = int(near[0]) + 1 if len(near) else None  # step t leads to point t + 1
        found.append(MazePath(positions[: end + 1, i], goal[0, i], reached))
    return found


def _run(env: Environment, num_episodes: int, episode_length: int, policy: Policy, key: Array) -> Record:
    return rollout(env, policy, key, num_episodes, episode_length, watch=_observation)


def _observation(state: EnvState) -> Array:
    return state.obs


@lru_cache(maxsize=4)
def _program(env: Environment, num_episodes: int, episode_length: int) -> Callable[[Policy, Array], Record]:
    """Compile once for all policies that differ only in their parameters."""
    return jax.jit(partial(_run, env, num_episodes, episode_length), compiler_options=QUICK_COMPILE)


def paths_toward(
    env: Environment, policy: Policy, goal: np.ndarray, num_episodes: int, episode_length: int
) -> list[MazePath]:
    """Play fresh episodes with the same goal [G], even if the environment never draws that one.

    The episode is one whose own goal is nearest, and the policy gets the goal that was asked for.
    """
    aimed = Aimed(policy, np.asarray(goal, np.float32))
    found = paths(Toward(env, tuple(np.asarray(goal).tolist())), aimed, 0, num_episodes, episode_length)
    return [_judged(path, np.asarray(goal), env.spec.threshold) for path in found]


def _judged(path: MazePath, goal: np.ndarray, threshold: float) -> MazePath:
    """Judge by the goal that was asked for, because the episode's own may differ."""
    near = np.flatnonzero(np.linalg.norm(path.points[1:] - goal[None], axis=-1) < threshold)
    return MazePath(path.points, goal, int(near[0]) + 1 if len(near) else None)
