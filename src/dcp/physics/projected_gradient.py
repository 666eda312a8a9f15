"""Brax's constraint solver, iterate by iterate: jaxopt's accelerated projected gradient with backtracking.

It minimises f(x) = |A x + b|^2 / 2 over x >= 0, and stops long before it converges, so the path counts, not only the
aim. Same steps, same halvings, same stopping test; but
- residuals are linear, so the extrapolated point's follows from two known ones and costs no product with A;
- a halving ends when no environment needs one, not after the allowed number.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.types import Array

TOLERANCE = 1e-3  # jaxopt's
SMALLEST_STEP = 1e-6  # below it the step starts again from 1


class _Iterate(NamedTuple):
    count: Array  # []
    moving: Array  # [N]
    step: Array  # [1, N]
    x: Array  # [R, N]
    residual: Array  # [R, N]: A x + b
    y: Array  # [R, N]: the extrapolated point
    y_residual: Array  # [R, N]


class _Search(NamedTuple):
    count: Array
    step: Array  # [1, N]
    x: Array
    residual: Array
    too_long: Array  # [1, N]


def solve(multiply: Callable[[Array], Array], b: Array, iterations: int, halvings: int, moving: Array) -> Array:
    """multiply: x [R, N] -> A x; b [R, N]; moving [N]: where there is anything to solve. -> x [R, N]"""
    momentum = jnp.asarray(_momentum(iterations))

    def more(at: _Iterate) -> Array:
        return (at.count < iterations) & jnp.any(at.moving)

    def iterate(at: _Iterate) -> _Iterate:
        found = _line_search(multiply, b, at, halvings)
        step = jnp.where(found.step <= SMALLEST_STEP, 1.0, 2.0 * found.step)
        change = found.x - at.x
        error = jnp.sqrt(_dot(change, change)) / step  # [1, N]
        beta = momentum[at.count]
        return _Iterate(
            at.count + 1,
            at.moving & (error[0] > TOLERANCE),
            step,
            jnp.where(at.moving[None], found.x, at.x),
            found.residual,
            found.x + beta * change,
            found.residual + beta * (found.residual - at.residual),
        )

    x = jnp.zeros_like(b)
    start = _Iterate(jnp.zeros((), jnp.int32), moving, jnp.ones_like(b[:1]), x, b, x, b)
    return jax.lax.while_loop(more, iterate, start).x


def _line_search(multiply: Callable[[Array], Array], b: Array, at: _Iterate, halvings: int) -> _Search:
    """The longest of step, step/2, ... that decreases f enough."""
    gradient = multiply(at.y_residual)  # A is symmetric
    eps = float(jnp.finfo(jnp.float32).eps)

    def attempt(count: Array, step: Array) -> _Search:
        x = jnp.maximum(at.y - step * gradient, 0.0)
        residual = multiply(x) + b
        change, moved = x - at.y, residual - at.y_residual
        # jaxopt's test, step (f(x) - f(y)) > step change . gradient + |change|^2 / 2 + eps, for a quadratic f: without
        # the cancellation, in which float32 loses the answer.
        too_long = step * _dot(moved, moved) > _dot(change, change) + 2.0 * eps
        return _Search(count, step, x, residual, too_long & at.moving[None])

    def more(search: _Search) -> Array:
        return (search.count < halvings) & jnp.any(search.too_long)

    def halve(search: _Search) -> _Search:
        return attempt(search.count + 1, jnp.where(search.too_long, 0.5 * search.step, search.step))

    return jax.lax.while_loop(more, halve, attempt(jnp.zeros((), jnp.int32), at.step))


def _dot(a: Array, b: Array) -> Array:
    return jnp.sum(a * b, axis=0, keepdims=True)  # [1, N]


def _momentum(iterations: int) -> np.ndarray:
    """FISTA's weights."""
    t, weights = np.float32(1.0), []
    for _ in range(iterations):
        after = np.float32(0.5) * (1 + np.sqrt(1 + 4 * t**2, dtype=np.float32))
        weights.append((t - 1) / after)
        t = after
    return np.asarray(weights, np.float32)
