"""Backbones for actor and critic, and the scale of their inputs: pure functions over parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from dcp.components import Table
from dcp.errors import UserError
from dcp.interfaces import Representation
from dcp.types import Array, Batch, EnvSpec, Params

ACTIVATIONS = Table("activation", {"swish": nn.swish, "relu": nn.relu})

# Uniform within sqrt(1 / fan_in).
KERNEL_INIT = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


# A gradient of fewer columns than rows, x^T g, costs a CPU twice the time of (g^T x)^T: turning the wide x in memory is
# half of the work. XLA would write the second as the first, unless it is kept from it.
WIDE = 128  # rows from which it is worth it


@jax.custom_vjp
def unfused_gradient(x: Array) -> Array:
    """Return x. XLA fuses its gradient with nothing, on a CPU."""
    return x


def _unfused(_: None, gradient: Array) -> tuple[Array]:
    forms = {"cpu": jax.lax.optimization_barrier, "default": lambda gradient: gradient}
    return (jax.lax.platform_dependent(gradient, **forms),)


unfused_gradient.defvjp(lambda x: (x, None), _unfused)


def transpose_with_unfused_gradient(matrix: Array) -> Array:
    """Return the transpose of a matrix. Its gradient is transposed by an operation of its own."""
    return unfused_gradient(unfused_gradient(matrix).T)


def _product(x: Array, kernel: Array, dimensions: Any, precision: Any = None) -> Array:
    """x [..., in], kernel [in, out] -> [..., out], as `jax.lax.dot_general`"""
    rows, columns = kernel.shape
    if columns >= rows or rows < WIDE:
        return jax.lax.dot_general(x, kernel, dimensions, precision)
    return jax.lax.dot_general(x, transpose_with_unfused_gradient(kernel), (((x.ndim - 1,), (1,)), ((), ())), precision)


class _MLP(nn.Module):
    width: int
    depth: int
    out: int
    activation: Callable[[Array], Array]
    layer_norm: bool
    residual_every: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        skip = x
        for layer in range(self.depth):
            x = nn.Dense(self.width, kernel_init=KERNEL_INIT, name=f"hidden_{layer}")(x)
            if self.layer_norm:
                x = nn.LayerNorm(name=f"norm_{layer}")(x)
            x = self.activation(x)
            if layer == 0:
                skip = x
            elif self.residual_every and layer % self.residual_every == 0:
                x = skip = x + skip
        return nn.Dense(self.out, kernel_init=KERNEL_INIT, dot_general=_product, name="out")(x)


@dataclass(frozen=True)
class MLP:
    """The paper's backbone; depth, LayerNorm and residual connections by setting."""

    from_config: ClassVar[tuple[str, ...]] = ("width", "depth", "activation", "layer_norm", "residual_every")

    width: int = 256
    depth: int = 2
    activation: str = "swish"
    layer_norm: bool = False
    residual_every: int = 0

    def __post_init__(self) -> None:
        ACTIVATIONS.find(self.activation)

    def init(self, key: Array, in_size: int, out_size: int) -> Params:
        return self._module(out_size).init(key, jnp.zeros((1, in_size)))["params"]

    def apply(self, params: Params, x: Array) -> Array:
        result = self._module(params["out"]["bias"].shape[-1]).apply({"params": params}, x)
        assert isinstance(result, jax.Array)
        return result

    def _module(self, out: int) -> _MLP:
        activation = ACTIVATIONS.find(self.activation)
        return _MLP(self.width, self.depth, out, activation, self.layer_norm, self.residual_every)


NETWORKS: Table = Table("network", {"mlp": MLP, "residual": "dcp.residual_network:Residual"})


# Inputs of about unit size: the centre and spread by which every network of an agent sees states and goals. A goal is
# part of a state (`EnvSpec.goal_dims`), so it shares those numbers' scale. Thresholds, commands and the replay stay in
# the task's own units.

LEAST_SPREAD = 1e-2  # of a number that hardly changes, in the task's own units
MOST_ROWS = 1e6  # rows that the running statistics remember


class Scale(NamedTuple):
    centre: Array  # [S]
    spread: Array  # [S]
    square: Array  # [S]: the variance that `spread` is the root of
    rows: Array  # []: how many rows it was measured on


def init_scale(normalize: str, spec: EnvSpec) -> Any:
    """Return the first scale of the setting `normalize`: none, running, or the task's own."""
    if normalize == "none":
        return ()
    ones, zeros = jnp.ones(spec.state_size), jnp.zeros(spec.state_size)
    if normalize == "running":
        return Scale(zeros, ones, ones, jnp.zeros(()))
    if spec.scale is None:
        raise UserError(f"{spec.name} has no scale of its own: use --normalize running")
    centre, spread = (jnp.asarray(values, jnp.float32) for values in spec.scale)
    return Scale(centre, spread, spread**2, jnp.zeros(()))


def observe(scale: Scale, states: Array) -> Scale:
    """Merge the mean and variance of these states [..., S] into the running ones."""
    new = states.reshape(-1, states.shape[-1])
    rows = jnp.asarray(new.shape[0], jnp.float32)
    mean, variance = jnp.mean(new, axis=0), jnp.var(new, axis=0)
    share = rows / (scale.rows + rows)  # of the new rows
    apart = mean - scale.centre
    square = (1.0 - share) * scale.square + share * variance + share * (1.0 - share) * apart**2
    first = scale.rows == 0.0
    square = jnp.where(first, variance, square)
    centre = jnp.where(first, mean, scale.centre + share * apart)
    spread = jnp.maximum(jnp.sqrt(square), LEAST_SPREAD)
    return Scale(centre, spread, square, jnp.minimum(scale.rows + rows, MOST_ROWS))


def scaled_state(scale: Any, state: Any) -> Any:
    """[..., S] -> [..., S]"""
    if not scale:
        return state
    shape = (1,) * (state.ndim - 1) + (-1,)  # rank promotion is an error here
    return (state - scale.centre.reshape(shape)) / scale.spread.reshape(shape)


def scaled_goal(scale: Any, spec: EnvSpec, goal: Any) -> Any:
    """[..., m * G] -> [..., m * G]: one goal, or a sequence of them"""
    if not scale:
        return goal
    dims, times = np.asarray(spec.goal_dims), goal.shape[-1] // spec.goal_size
    shape = (1,) * (goal.ndim - 1) + (-1,)
    centre, spread = (jnp.tile(x[dims], times).reshape(shape) for x in (scale.centre, scale.spread))
    return (goal - centre) / spread


def scaled_batch(scale: Any, spec: EnvSpec, batch: Batch) -> Batch:
    """Return the batch as networks see it. Rewards and times were found in the task's own units before."""
    if not scale:
        return batch
    of: dict[str, Callable[[Array], Array]] = {
        **dict.fromkeys(("state", "next_state"), lambda x: scaled_state(scale, x)),
        **dict.fromkeys(("commanded_goal", "future_goal", "goal_sequence"), lambda x: scaled_goal(scale, spec, x)),
    }
    scaled = {name: change(x) for name, change in of.items() if (x := getattr(batch, name)) is not None}
    return batch._replace(**scaled)


def in_task_units(representation: Representation, scale: Any, spec: EnvSpec) -> Representation:
    """Return the representation for states and goals in the task's own units."""
    if not scale:
        return representation
    scale = jax.lax.stop_gradient(scale)

    def encode_goal(goal: Array) -> Array:
        return representation.encode_goal(scaled_goal(scale, spec, goal))

    def value(state: Array, action: Array, goal: Array) -> Array:
        return representation.value(scaled_state(scale, state), action, scaled_goal(scale, spec, goal))

    return representation._replace(encode_goal=encode_goal, value=value)
