"""Many environments that run for ever: time limits, automatic reset, episode numbers."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dcp.envs.base import Environment, EnvState
from dcp.types import Array


class EpisodeState(NamedTuple):
    env: EnvState  # [N, ...]
    first: EnvState  # [N, ...]: the state that each environment returns to in paper fidelity
    steps: Array  # [N]: steps taken in the present episode
    episode_id: Array  # [N]


@dataclass(frozen=True)
class Episodes:
    env: Environment
    num_envs: int
    episode_length: int
    fidelity: str

    def reset(self, key: Array) -> EpisodeState:
        first = self._draw(key)
        zeros = jnp.zeros(self.num_envs, jnp.int32)
        return EpisodeState(first, first, zeros, zeros)

    def step(self, state: EpisodeState, action: Array, key: Array) -> EpisodeState:
        """action [N, A]. An episode that ends is followed by the next one's first state."""
        env = jax.vmap(self.env.step)(state.env, action)
        steps = state.steps + 1
        ends = env.done | (steps >= self.episode_length)  # [N]
        if self.fidelity == "paper":
            first = state.first
        else:
            first = jax.lax.cond(jnp.any(ends), lambda: self._draw(key), lambda: state.first)

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(ends.reshape(-1, *[1] * (old.ndim - 1)), new, old)

        return EpisodeState(jax.tree.map(choose, first, env), first, jnp.where(ends, 0, steps), state.episode_id + ends)

    def _draw(self, key: Array) -> EnvState:
        return jax.vmap(self.env.reset)(jax.random.split(key, self.num_envs))
