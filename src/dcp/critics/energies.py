"""Energies say how well psi_sa and psi_g agree: higher is better. Each has a pairwise form by matrix product.

The plain form maps [..., D], [..., D] -> [...]. The pairwise form [B, D], [B, D] -> [B, B] needs no array [B, B, D].
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dcp.components import Table
from dcp.networks import WIDE, transpose_with_unfused_gradient
from dcp.types import Array

NORM_EPS = 1e-6
TINY = 1e-12


class Energy(NamedTuple):
    plain: Callable[[Array, Array], Array]
    pairwise: Callable[[Array, Array], Array]


def safe_root(square: Array) -> Array:
    """Return the square root, with gradient 0 at 0."""
    apart = square > 0.0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)


def euclidean(x: Array, y: Array) -> Array:
    """Return the distance, with gradient 0 where x = y."""
    return safe_root(jnp.sum((x - y) ** 2, axis=-1))


def norm(x: Array, y: Array) -> Array:
    """Return the paper's energy, the negative distance."""
    return -jnp.sqrt(jnp.sum((x - y) ** 2, axis=-1) + NORM_EPS)


def l2(x: Array, y: Array) -> Array:
    return -jnp.sum((x - y) ** 2, axis=-1)


def dot(x: Array, y: Array) -> Array:
    return jnp.sum(x * y, axis=-1)


def unit(x: Array) -> Array:
    """Divide by the norm; the safe root keeps the gradient of a zero vector finite."""
    return x * jax.lax.rsqrt(jnp.maximum(jnp.sum(x**2, axis=-1, keepdims=True), TINY))


def cosine(x: Array, y: Array) -> Array:
    return dot(unit(x), unit(y))


def pairwise_dot(x: Array, y: Array) -> Array:
    return x @ y.T


def pairwise_square(x: Array, y: Array) -> Array:
    """Return |x|^2 + |y|^2 - 2 xy, computed about the mean of y because a common offset would cost digits."""
    centre = jax.lax.stop_gradient(jnp.mean(y, axis=0, keepdims=True))  # [1, D]
    x, y = x - centre, y - centre
    # Full precision: a GPU's default rounding error in a product is as large as the distance of a positive pair.
    columns = transpose_with_unfused_gradient(y) if y.shape[0] >= WIDE else y.T  # [D, B]
    product = jnp.matmul(x, columns, precision=jax.lax.Precision.HIGHEST)  # [B, B]
    square = jnp.sum(x**2, axis=-1)[:, None] + jnp.sum(y**2, axis=-1)[None, :] - 2.0 * product  # [B, B]
    return jnp.maximum(square, 0.0)


def pairwise_norm(x: Array, y: Array) -> Array:
    return -jnp.sqrt(pairwise_square(x, y) + NORM_EPS)


def pairwise_l2(x: Array, y: Array) -> Array:
    return -pairwise_square(x, y)


def pairwise_cosine(x: Array, y: Array) -> Array:
    return unit(x) @ unit(y).T


ENERGIES = Table(
    "energy",
    {
        "norm": Energy(norm, pairwise_norm),
        "l2": Energy(l2, pairwise_l2),
        "dot": Energy(dot, pairwise_dot),
        "cosine": Energy(cosine, pairwise_cosine),
    },
)
OF_DISTANCE = ("norm", "l2")  # the energies that are functions of |x - y|
