"""The actor: its heads, its squashed Gaussian, the rules by which it explores and learns, and its chunks of actions.

A critic names its rule (`actor_rule`): SAC's, the default and the paper's, with or without entropy, TD3's, imitation.
`interfaces.ActorRule` has the shapes.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dcp.interfaces import ActorRule, ActorStep, Network
from dcp.types import Array, EnvSpec, Params, masked_mean

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


def init_actor(network: Network, key: Array, spec: EnvSpec, condition_size: int) -> Params:
    return network.init(key, spec.state_size + condition_size, 2 * spec.action_size)


def actor_heads(network: Network, params: Params, state: Array, condition: Array) -> tuple[Array, Array]:
    """state [..., S], condition [..., size] -> mean [..., A], log std [..., A] in [-5, 2]"""
    return split_heads(network.apply(params, jnp.concatenate([state, condition], axis=-1)))


def split_heads(heads: Array) -> tuple[Array, Array]:
    """heads [..., 2 A] -> mean [..., A], log std [..., A] in [-5, 2]"""
    mean, raw = jnp.split(heads, 2, axis=-1)
    return mean, LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (jnp.tanh(raw) + 1.0)


LOG_2PI = 1.8378770664093453
SQUASH_EPS = 1e-6
SQUASH_MOST = 1.0 - 1e-5


def sample_squashed(mean: Array, log_std: Array, noise: Array) -> tuple[Array, Array]:
    """mean, log_std, noise [..., A] -> action = tanh(mean + std * noise) [..., A], its log probability [...]"""
    action = jnp.tanh(mean + jnp.exp(log_std) * noise)
    gaussian = -0.5 * noise**2 - log_std - 0.5 * LOG_2PI
    return action, jnp.sum(gaussian - jnp.log(1.0 - action**2 + SQUASH_EPS), axis=-1)


def log_prob_squashed(mean: Array, log_std: Array, action: Array) -> Array:
    """mean, log_std, action [..., A] -> log probability [...] of an action in [-1, 1], as `sample_squashed` counts it.

    Actions that float32 rounded to the bounds are taken a little inside.
    """
    inside = jnp.clip(action, -SQUASH_MOST, SQUASH_MOST)
    noise = (jnp.arctanh(inside) - mean) * jnp.exp(-log_std)
    gaussian = -0.5 * noise**2 - log_std - 0.5 * LOG_2PI
    return jnp.sum(gaussian - jnp.log(1.0 - inside**2 + SQUASH_EPS), axis=-1)


def alpha_loss(log_alpha: Array, log_prob: Array, target_entropy: float) -> Array:
    """Return the temperature's loss: the temperature rises while the entropy is below its target."""
    return jnp.exp(log_alpha) * jnp.mean(jax.lax.stop_gradient(-log_prob) - target_entropy)


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


class ChunkState(NamedTuple):
    """Hold the chunk of H actions that is being taken."""

    actions: Array  # [..., H * A]
    step: Array  # [...] or []: the next action's index; at 0 a new chunk is planned


def next_chunk_action(chunk: Any, planned: Array, length: int) -> tuple[Any, Array]:
    """Return the chunk's state after this step, and its next action [..., A], or the first of the new chunk `planned`
    [..., H * A]. Without a state, every call takes the first action of a new chunk."""
    if length == 1:
        return chunk, planned
    rows = planned.shape[:-1]
    if not isinstance(chunk, ChunkState):
        return chunk, planned.reshape(*rows, length, -1)[..., 0, :]
    step = jnp.broadcast_to(chunk.step, rows)[..., None]  # [..., 1]
    actions = jnp.where(step == 0, planned, jnp.broadcast_to(chunk.actions, planned.shape))
    action = jnp.take_along_axis(actions.reshape(*rows, length, -1), step[..., None], axis=-2)[..., 0, :]
    return ChunkState(actions, (chunk.step + 1) % length), action
