"""The terms of soft actor-critic that remain: a squashed Gaussian and its temperature."""

import jax
import jax.numpy as jnp

from dcp.types import Array

LOG_2PI = 1.8378770664093453
SQUASH_EPS = 1e-6


def sample_squashed(mean: Array, log_std: Array, noise: Array) -> tuple[Array, Array]:
    """mean, log_std, noise [..., A] -> action = tanh(mean + std * noise) [..., A], its log probability [...]"""
    action = jnp.tanh(mean + jnp.exp(log_std) * noise)
    gaussian = -0.5 * noise**2 - log_std - 0.5 * LOG_2PI
    return action, jnp.sum(gaussian - jnp.log(1.0 - action**2 + SQUASH_EPS), axis=-1)


def alpha_loss(log_alpha: Array, log_prob: Array, target_entropy: float) -> Array:
    """The temperature rises while the entropy is below its target."""
    return jnp.exp(log_alpha) * jnp.mean(jax.lax.stop_gradient(-log_prob) - target_entropy)
