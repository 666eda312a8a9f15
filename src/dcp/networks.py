"""One backbone for psi_sa, psi_g and the actor, as pure functions over their parameters."""

from collections.abc import Callable
from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp

from dcp.types import Array, Params

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"swish": nn.swish, "relu": nn.relu}

# Uniform within sqrt(1 / fan_in).
KERNEL_INIT = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


class MLP(nn.Module):
    width: int
    depth: int
    out: int
    activation: str = "swish"
    layer_norm: bool = False
    residual_every: int = 0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        skip = x
        for layer in range(self.depth):
            x = nn.Dense(self.width, kernel_init=KERNEL_INIT, name=f"hidden_{layer}")(x)
            if self.layer_norm:
                x = nn.LayerNorm(name=f"norm_{layer}")(x)
            x = ACTIVATIONS[self.activation](x)
            if layer == 0:
                skip = x
            elif self.residual_every and layer % self.residual_every == 0:
                x = skip = x + skip
        return nn.Dense(self.out, kernel_init=KERNEL_INIT, name="out")(x)


LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


@dataclass(frozen=True)
class NetworkShape:
    """All that is needed to build the networks: stored with every policy."""

    state_size: int
    goal_size: int
    action_size: int
    condition_size: int
    repr_dim: int
    width: int
    depth: int
    activation: str = "swish"
    layer_norm: bool = False
    residual_every: int = 0

    def num_parameters(self) -> int:
        """Of all three networks, by arithmetic alone: a shape that no memory holds is counted as fast as any."""
        actor = self._mlp_parameters(self.state_size + self.condition_size, 2 * self.action_size)
        psi_sa = self._mlp_parameters(self.state_size + self.action_size, self.repr_dim)
        return actor + psi_sa + self._mlp_parameters(self.goal_size, self.repr_dim)

    def _mlp_parameters(self, size: int, out: int) -> int:
        hidden = (size + 1) * self.width + (self.depth - 1) * (self.width + 1) * self.width
        norms = 2 * self.width * self.depth * self.layer_norm
        return hidden + norms + (self.width + 1) * out


@dataclass(frozen=True)
class Networks:
    shape: NetworkShape

    def _mlp(self, out: int) -> MLP:
        s = self.shape
        return MLP(s.width, s.depth, out, s.activation, s.layer_norm, s.residual_every)

    def init(self, key: Array) -> tuple[Params, Params]:
        """actor, encoders. Every method draws the same encoders from the same key."""
        s = self.shape
        key_actor, key_sa, key_g = jax.random.split(key, 3)
        actor = self._mlp(2 * s.action_size).init(key_actor, jnp.zeros((1, s.state_size + s.condition_size)))
        psi_sa = self._mlp(s.repr_dim).init(key_sa, jnp.zeros((1, s.state_size + s.action_size)))
        psi_g = self._mlp(s.repr_dim).init(key_g, jnp.zeros((1, s.goal_size)))
        return actor["params"], {"psi_sa": psi_sa["params"], "psi_g": psi_g["params"]}

    def actor(self, params: Params, state: Array, condition: Array) -> tuple[Array, Array]:
        """state [..., S], condition [..., size] -> mean [..., A], log std [..., A] in [-5, 2]"""
        heads = self._apply(params, jnp.concatenate([state, condition], axis=-1), 2 * self.shape.action_size)
        mean, raw = jnp.split(heads, 2, axis=-1)
        return mean, LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (jnp.tanh(raw) + 1.0)

    def psi_sa(self, encoders: Params, state: Array, action: Array) -> Array:
        """state [..., S], action [..., A] -> [..., D]"""
        return self._apply(encoders["psi_sa"], jnp.concatenate([state, action], axis=-1), self.shape.repr_dim)

    def psi_g(self, encoders: Params, goal: Array) -> Array:
        """goal [..., G] -> [..., D]"""
        return self._apply(encoders["psi_g"], goal, self.shape.repr_dim)

    def _apply(self, params: Params, x: Array, out: int) -> Array:
        result = self._mlp(out).apply({"params": params}, x)
        assert isinstance(result, jax.Array)
        return result


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
