"""Scaled CRL's backbone, residual blocks as one scan: pure functions over parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from dcp.errors import UserError
from dcp.networks import ACTIVATIONS, KERNEL_INIT
from dcp.types import Array, Params

BLOCK = 4  # layers of a residual block
NORM_EPSILON = 1e-6


@dataclass(frozen=True)
class Residual:
    """Scaled CRL's backbone (arXiv 2503.14858): Dense-LayerNorm-activation, depth / 4 residual blocks, Dense.

    A block is x + f(x), f four layers of Dense-LayerNorm-activation. `depth` counts the blocks' layers and not the
    first one. Below 4 there is no block: `depth` plain layers, the first one among them. The blocks are one scan, so
    depth 64 compiles as fast as depth 8.
    """

    from_config: ClassVar[tuple[str, ...]] = ("width", "depth", "activation")

    width: int = 256
    depth: int = 4
    activation: str = "swish"

    def __post_init__(self) -> None:
        ACTIVATIONS.find(self.activation)
        if self.depth < 1 or (self.depth > BLOCK and self.depth % BLOCK):
            nearest = max(BLOCK, BLOCK * round(self.depth / BLOCK))
            raise UserError(f"depth {self.depth} is not a whole number of blocks of {BLOCK} layers: use {nearest}")

    @property
    def is_deep(self) -> bool:
        """Tell whether there is a block at all."""
        return self.depth >= BLOCK

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of blocks, and of layers of each. Without a block: the plain layers after the first."""
        return (self.depth // BLOCK, BLOCK) if self.is_deep else (1, self.depth - 1)

    def init(self, key: Array, in_size: int, out_size: int) -> Params:
        key_first, key_blocks, key_out = jax.random.split(key, 3)
        blocks = _init_layers(key_blocks, self.shape, self.width, self.width)
        out = {"kernel": KERNEL_INIT(key_out, (self.width, out_size)), "bias": jnp.zeros(out_size)}
        return {"first": _init_layers(key_first, (), in_size, self.width), "blocks": blocks, "out": out}

    def apply(self, params: Params, x: Array) -> Array:
        activation = ACTIVATIONS.find(self.activation)

        def block(x: Array, layers: Params) -> tuple[Array, None]:
            inner = x
            for number in range(self.shape[1]):
                inner = _layer(jax.tree.map(lambda leaf, n=number: leaf[n], layers), inner, activation)
            return (x + inner if self.is_deep else inner), None

        x = _layer(params["first"], x, activation)
        x, _ = jax.lax.scan(block, x, params["blocks"])
        return _dense(params["out"], x)


def _init_layers(key: Array, leading: tuple[int, ...], in_size: int, width: int) -> Params:
    """Draw layers of Dense and LayerNorm, stacked along the leading axes."""
    keys = jax.random.split(key, leading)
    draw: Callable[[Array], Array] = lambda key: KERNEL_INIT(key, (in_size, width))  # noqa: E731
    for _ in leading:
        draw = jax.vmap(draw)
    zeros = jnp.zeros((*leading, width))
    return {"kernel": draw(keys), "bias": zeros, "scale": zeros + 1.0, "shift": zeros}


def _layer(layer: Params, x: Array, activation: Callable[[Array], Array]) -> Array:
    """Dense, LayerNorm, activation: x [..., in] -> [..., width]"""
    x = _dense(layer, x)
    x = x - jnp.mean(x, axis=-1, keepdims=True)
    x = x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + NORM_EPSILON)
    return activation(x * _row(layer["scale"], x) + _row(layer["shift"], x))


def _dense(layer: Params, x: Array) -> Array:
    return x @ layer["kernel"] + _row(layer["bias"], x)


def _row(vector: Array, x: Array) -> Array:
    """vector [W] in the rank of x [..., W]: rank promotion is an error here"""
    return vector.reshape((1,) * (x.ndim - 1) + vector.shape)
