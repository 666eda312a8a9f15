"""Environments whose every number can be worked out by hand."""

from dataclasses import dataclass

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
