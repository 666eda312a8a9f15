"""Environments whose every number can be worked out by hand."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dcp.envs.base import EnvState, sparse_state
from dcp.types import Array, EnvSpec


@dataclass(frozen=True)
class LineWorld:
    """x += action on a line. Starts at 0 or anywhere below `spread`; the goal is `goal`; falls off beyond `edge`."""

    goal: float = 3.0
    edge: float = 100.0
    spread: float = 0.0
    episode_length: int = 6

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("line_world", 1, 1, 1, goal_dims=(0,), threshold=0.5, episode_length=self.episode_length)

    def reset(self, key: Array) -> EnvState:
        x = self.spread * jax.random.uniform(key, (1,))
        return sparse_state(self.spec, x, jnp.full((1,), self.goal))

    def step(self, state: EnvState, action: Array) -> EnvState:
        x, goal = self.spec.split(state.obs)
        x = x + action
        return sparse_state(self.spec, x, goal)._replace(done=x[0] > self.edge)


class BrittlePhysics(NamedTuple):
    q: Array  # [2]: x, and a number that no observation shows
    qd: Array  # [1]
    count: Array  # []: steps since the reset, an integer


@dataclass(frozen=True)
class BrittleLine:
    """x += action on a line that starts at 0. Past `limit` one number turns into `into`: obs, q or qd."""

    into: float = float("nan")
    where: str = "obs"
    limit: float = 2.5
    goal: float = 3.0
    physics: str = "spring"
    spread: float = 0.0

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("brittle_line", 1, 1, 1, (0,), threshold=0.5, episode_length=6, physics=self.physics)

    def reset(self, key: Array) -> EnvState:
        x = self.spread * jax.random.uniform(key, (1,))
        physics = BrittlePhysics(jnp.append(x, 0.0), jnp.zeros(1), jnp.zeros((), jnp.int32))
        return sparse_state(self.spec, x, jnp.full((1,), self.goal), physics)

    def step(self, state: EnvState, action: Array) -> EnvState:
        x, goal = self.spec.split(state.obs)
        x = x + action
        bad = jnp.where(x > self.limit, self.into, 0.0)  # [1]
        q = jnp.append(x, bad if self.where == "q" else 0.0)
        physics = BrittlePhysics(q, bad if self.where == "qd" else action, state.physics.count + 1)
        seen = x + bad if self.where == "obs" else x
        return sparse_state(self.spec, seen, goal, physics)._replace(done=jnp.isnan(seen[0]))
