"""The Eikonal regulariser: make a distance grow by one per unit of length, |grad_x d(x, g)| = 1."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dcp.interfaces import Problem
from dcp.types import Array, Batch

Distance = Callable[[Array, Array], Array]  # [..., D], [..., D] -> [...]


def eikonal_term(problem: Problem, encode: Callable[[Array], Array], distance: Distance, batch: Batch) -> Array:
    """Return the penalty for a critic's distance between psi of the achieved goals and psi of their hindsight goals."""
    assert batch.future_goal is not None
    achieved = problem.spec.achieved(batch.state)
    return eikonal_penalty(lambda x, g: distance(encode(x), encode(g)), achieved, batch.future_goal)


def eikonal_penalty(distance: Distance, achieved: Array, goal: Array) -> Array:
    """Return the mean of (|grad_x d(x, g)| - 1)^2 at the achieved goals [B, G], for goals [B, G]: [].

    The gradient is taken in the goal's own coordinates, where walls and bodies have no contact forces. A row that is
    at its goal has no steepest direction and is left out.
    """
    slopes = jax.vmap(jax.grad(lambda x, g: distance(x[None], g[None])[0]))(achieved, goal)  # [B, G]
    square = jnp.sum(slopes**2, axis=-1)  # [B]
    away = square > 0.0
    slope = jnp.sqrt(jnp.where(away, square, 1.0))
    return jnp.sum(jnp.where(away, (slope - 1.0) ** 2, 0.0)) / jnp.maximum(jnp.sum(away), 1)
