"""Rules by which the actor explores and learns: SAC's, with and without entropy, TD3's, and imitation.

A critic names its rule (`actor_rule`); the default is SAC's, as in the paper. `interfaces.ActorRule` has the shapes.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from dcp.interfaces import ActorRule, ActorStep
from dcp.networks import log_prob_squashed, sample_squashed
from dcp.types import Array, masked_mean


@dataclass(frozen=True)
class Soft:
    """Apply Algorithm 1's ActorLoss: raise the critic's value of (s, a) for the goal, with SAC's entropy."""

    learns_temperature: ClassVar[bool] = True
    delay: int = 1

    def explore(self, mean: Array, log_std: Array, noise: Array) -> Array:
        return sample_squashed(mean, log_std, noise)[0]

    def next_action(self, mean: Array, log_std: Array, noise: Array) -> tuple[Array, Array]:
        return sample_squashed(mean, log_std, noise)

    def loss(self, step: ActorStep) -> tuple[Array, Array]:
        action, log_prob = sample_squashed(step.mean, step.log_std, step.noise)  # [B, A], [B]
        return jnp.mean(step.alpha * log_prob - step.value(action)), log_prob


@dataclass(frozen=True)
class WithoutEntropy(Soft):
    """Raise the critic's value of a drawn action, and nothing else."""

    learns_temperature: ClassVar[bool] = False

    def loss(self, step: ActorStep) -> tuple[Array, Array]:
        action, log_prob = sample_squashed(step.mean, step.log_std, step.noise)  # [B, A], [B]
        return -jnp.mean(step.value(action)), log_prob


@dataclass(frozen=True)
class Imitation(Soft):
    """Apply GCBC's rule: raise the probability of the action that once led to the goal, by -log pi(a | s, g)."""

    learns_temperature: ClassVar[bool] = False

    def loss(self, step: ActorStep) -> tuple[Array, Array]:
        log_prob = log_prob_squashed(step.mean, step.log_std, step.batch.action)  # [B]
        return -masked_mean(log_prob, step.batch.valid), log_prob


@dataclass(frozen=True)
class Deterministic:
    """Apply TD3's rule: maximise the value of tanh(mean), and explore by noise around it. The log std is not used."""

    learns_temperature: ClassVar[bool] = False
    delay: int = 2
    exploration: float = 0.4  # std of the noise on the actions taken
    smoothing: float = 0.2  # std of the noise, clipped at `cut`, on the actions that the critic bootstraps from
    cut: float = 0.5

    def explore(self, mean: Array, log_std: Array, noise: Array) -> Array:
        return jnp.clip(jnp.tanh(mean) + self.exploration * noise, -1.0, 1.0)

    def next_action(self, mean: Array, log_std: Array, noise: Array) -> tuple[Array, Array]:
        smooth = jnp.clip(self.smoothing * noise, -self.cut, self.cut)
        return jnp.clip(jnp.tanh(mean) + smooth, -1.0, 1.0), jnp.zeros(mean.shape[:-1])

    def loss(self, step: ActorStep) -> tuple[Array, Array]:
        action = jnp.tanh(step.mean)
        return -jnp.mean(step.value(action)), jnp.zeros(action.shape[:-1])


def actor_rule_of(critic: Any) -> ActorRule:
    """Return the critic's own rule, or SAC's."""
    return getattr(critic, "actor_rule", None) or Soft()
