"""Energies and contrastive losses besides the paper's, and the Eikonal penalty of a distance."""

from collections.abc import Callable
from inspect import signature

import jax
import jax.numpy as jnp

from dcp.critics.contrastive import (
    CONTRASTIVE_LOSSES,
    Contrast,
    Energy,
    backward_infonce,
    logsumexp_of_rows,
    pairwise_square,
)
from dcp.errors import UserError
from dcp.interfaces import Problem
from dcp.types import Array, Batch, masked_mean

TINY = 1e-12


def l2(x: Array, y: Array) -> Array:
    return -jnp.sum((x - y) ** 2, axis=-1)


def dot(x: Array, y: Array) -> Array:
    return jnp.sum(x * y, axis=-1)


def normalize(x: Array) -> Array:
    """Divide by the norm; the safe root keeps the gradient of a zero vector finite."""
    return x * jax.lax.rsqrt(jnp.maximum(jnp.sum(x**2, axis=-1, keepdims=True), TINY))


def cosine(x: Array, y: Array) -> Array:
    return dot(normalize(x), normalize(y))


L2 = Energy(l2, lambda x, y: -pairwise_square(x, y))
DOT = Energy(dot, lambda x, y: x @ y.T)
COSINE = Energy(cosine, lambda x, y: normalize(x) @ normalize(y).T)


# Contrastive losses.


def forward_infonce(logits: Array, valid: Array | None = None) -> Array:
    """Return equation 1's loss. Row-wise: the negatives of an (s, a) are the other goals."""
    return -masked_mean(jnp.diag(logits) - logsumexp_of_rows(logits), valid)


def symmetric_infonce(logits: Array, valid: Array | None = None) -> Array:
    return forward_infonce(logits, valid) + backward_infonce(logits, valid)


def binary_nce(logits: Array, valid: Array | None = None) -> Array:
    """Classify each of the B x B pairs by itself: positive on the diagonal, negative elsewhere."""
    signs = 2.0 * jnp.eye(logits.shape[0]) - 1.0
    judged = None if valid is None else ~jnp.diag(~valid)  # [B, B]
    return masked_mean(jax.nn.softplus(-signs * logits), judged)


def loss_of_chunks(name: str) -> Contrast:
    """Return the loss of this name, or refuse one without a `valid` argument."""
    loss = CONTRASTIVE_LOSSES.find(name)
    if len(signature(loss).parameters) < 2:
        raise UserError(
            f"the contrastive loss {name} takes logits alone: give it a second argument, valid [B], for action chunks"
        )
    return loss


# Distances, and how steep they are.


def safe_root(square: Array) -> Array:
    """Return the square root, with gradient 0 at 0."""
    apart = square > 0.0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)


def euclidean(x: Array, y: Array) -> Array:
    """Return the distance, with gradient 0 where x = y."""
    return safe_root(jnp.sum((x - y) ** 2, axis=-1))


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
