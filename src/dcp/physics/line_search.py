"""MJX's line search: a bracket that Newton steps from both ends and its middle narrow. `newton` says why it is here."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dcp.physics.constraint_rows import Dynamics, Rows, dot, multiply
from dcp.types import Array

TINY = 1e-15  # MuJoCo's mjMINVAL


class Settings(NamedTuple):
    iterations: int
    line_iterations: int
    tolerance: float
    line_tolerance: float


class _Point(NamedTuple):
    """Where a line search stands."""

    alpha: Array  # [N]
    cost: Array
    slope: Array
    bend: Array


def line_search(
    rows: Rows, free: Dynamics, at: tuple[Array, Array, Array], search: Array, trace: Array, settings: Settings
) -> Array:
    """How far to go along `search` [V, N]: zero where nothing is better."""
    acceleration, pull, residual = at
    along = rows.apply(search)
    gauss = (
        0.5 * dot(pull - free.force, acceleration - free.acceleration),
        dot(search, pull) - dot(search, free.force),
        0.5 * dot(search, multiply(free.mass, search)),
    )
    quadratic = tuple(rows.weight * q for q in (0.5 * residual * residual, along * residual, 0.5 * along * along))

    def point(alpha: Array) -> _Point:
        active = residual + alpha[None] * along < 0
        zero, one, two = (g + jnp.where(active, q, 0.0).sum(0) for g, q in zip(gauss, quadratic, strict=True))
        cost = alpha * alpha * two + alpha * one + zero
        return _Point(alpha, cost, 2.0 * alpha * two + one, 2.0 * two + (two == 0.0) * TINY)

    origin = point(jnp.zeros_like(trace))
    first = point(-origin.slope / origin.bend)
    low = _where(first.slope < origin.slope, first, origin)
    high = _where(first.slope < origin.slope, origin, first)

    # Below `accept` a slope is rounding: the given tolerance, or what float32 can tell of the active rows at alpha = 0.
    scale = jnp.sqrt(dot(search, search)) * trace
    rows_zero = jnp.maximum(origin.cost - gauss[0], 0.0)
    rows_two = jnp.maximum(0.5 * origin.bend - gauss[2], 0.0)
    magnitude = 2.0 * jnp.sqrt(rows_zero * rows_two) + jnp.abs(gauss[1])
    epsilon = jnp.finfo(magnitude.dtype).eps
    accept = jnp.maximum(settings.tolerance * settings.line_tolerance * scale, 8 * epsilon * magnitude)

    def good(p: _Point) -> Array:
        return (jnp.abs(p.slope) < accept) & (p.cost < origin.cost)

    def narrow(_: int, bracket: tuple) -> tuple:
        low, high, moved = bracket
        going = moved & ~good(low) & ~good(high)
        new_low, new_high, new_moved = _narrow(low, high, point, good)
        return _where(going, new_low, low), _where(going, new_high, high), jnp.where(going, new_moved, moved)

    moved = jnp.ones_like(trace, dtype=bool)
    low, high, _ = jax.lax.fori_loop(0, settings.line_iterations, narrow, (low, high, moved))
    improved = (low.cost < origin.cost) | (high.cost < origin.cost)
    return jnp.where(improved, jnp.where(low.cost < high.cost, low.alpha, high.alpha), 0.0)


def _narrow(
    low: _Point, high: _Point, point: Callable[[Array], _Point], good: Callable[[_Point], Array]
) -> tuple[_Point, _Point, Array]:
    """A Newton step from either end and the middle; each end takes what lies nearer to the minimum on its side."""
    low_next = point(low.alpha - low.slope / low.bend)
    high_next = point(high.alpha - high.slope / high.bend)
    middle = point(0.5 * (low.alpha + high.alpha))

    def nearer(x: Array, y: Array) -> Array:
        return ((x < y) & (y < 0)) | ((x > y) & (y > 0))

    moved = jnp.zeros_like(low.alpha, dtype=bool)
    for candidate in (low_next, middle, high_next):
        take = nearer(low.slope, candidate.slope)
        low, moved = _where(take, candidate, low), moved | take
    for i, candidate in enumerate((high_next, middle, low_next)):
        take = nearer(high.slope, candidate.slope)
        if i == 0:  # a Newton step that crosses the minimum turns a one-sided search into a bracket
            take |= (high.slope < 0) & (candidate.slope > 0)
        high, moved = _where(take, candidate, high), moved | take

    best, found = low_next, jnp.zeros_like(low.alpha, dtype=bool)
    for candidate in (low_next, high_next, middle):
        take = good(candidate) & (~found | (candidate.cost < best.cost))
        best, found = _where(take, candidate, best), found | take
    return _where(found, best, low), _where(found, best, high), moved & ~found


def _where(condition: Array, yes: _Point, no: _Point) -> _Point:
    return _Point(*(jnp.where(condition, a, b) for a, b in zip(yes, no, strict=True)))
