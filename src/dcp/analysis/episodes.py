"""Deterministic episodes of a policy in a maze, as paths in its plane."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.deploy.policy import Policy
from dcp.envs.base import Environment, EnvState
from dcp.errors import UserError
from dcp.evaluation import Record, rollout
from dcp.types import Array, EnvSpec, MazeLayout

# A few episodes run in an instant, compiling them takes seconds: twice as long with the compiler's optimisations.
QUICK_COMPILE = {"xla_backend_optimization_level": 0}


class Path(NamedTuple):
    """One episode, up to its end."""

    points: np.ndarray  # [T + 1, 2]: position in the maze's plane, from the first state on
    goal: np.ndarray  # [2]
    reached: int | None  # index of the first point near the goal


@dataclass(frozen=True)
class Toward:
    """An environment whose episodes all have one goal: of several resets, the one whose goal lies nearest is taken.

    Goals may live in the physics, so they are drawn by the environment itself and never written into it.
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


def shows_maze(spec: EnvSpec) -> bool:
    """Whether goals are points of a maze's plane, so that the maze can be drawn with them."""
    return spec.maze is not None and spec.goal_dims == spec.maze_dims


def maze_of(spec: EnvSpec) -> MazeLayout:
    if spec.maze is None or not shows_maze(spec):
        raise UserError(f"{spec.name} cannot be drawn: its goals are not points of a maze's plane")
    return spec.maze


def paths(env: Environment, policy: Policy, seed: int, num_episodes: int, episode_length: int) -> list[Path]:
    """Fresh episodes. The seed decides starts and goals."""
    maze_of(env.spec)

    @partial(jax.jit, compiler_options=QUICK_COMPILE)
    def run(key: Array) -> Record:
        return rollout(env, policy, key, num_episodes, episode_length, watch=lambda state: state.obs)

    record = jax.device_get(run(jax.random.key(seed)))
    state, goal = env.spec.split(record.watched)  # [T + 1, N, ...]
    positions = state[..., np.asarray(env.spec.maze_dims)]  # [T + 1, N, 2]
    found = []
    for i in range(num_episodes):
        end = int(record.alive[:, i].sum())
        near = np.flatnonzero(record.near_goal[:, i])
        reached = int(near[0]) + 1 if len(near) else None  # step t leads to point t + 1
        found.append(Path(positions[: end + 1, i], goal[0, i], reached))
    return found


def paths_toward(
    env: Environment, policy: Policy, goal: np.ndarray, num_episodes: int, episode_length: int
) -> list[Path]:
    """Fresh episodes with one and the same goal, which must be one that the environment draws."""
    found = paths(Toward(env, tuple(goal.tolist())), policy, 0, num_episodes, episode_length)
    for path in found:
        if np.linalg.norm(path.goal - goal) > env.spec.threshold:
            raise UserError(f"{env.spec.name} draws no goal at {goal.tolist()}: choose the centre of a goal cell")
    return found
