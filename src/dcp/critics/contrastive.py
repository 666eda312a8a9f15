"""Contrastive losses over logits [B, B]: row i is (s, a)_i, column j is goal j, the diagonal holds the positives."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.nn import logsumexp

from dcp.types import Array

Contrast = Callable[[Array], Array]


def forward_infonce(logits: Array) -> Array:
    """Equation 1. Row-wise: the negatives of an (s, a) are the other goals."""
    return -jnp.mean(jnp.diag(logits) - logsumexp(logits, axis=1))


def backward_infonce(logits: Array) -> Array:
    """Algorithm 1, CriticLoss. Column-wise: the negatives of a goal are the other (s, a)."""
    return -jnp.mean(jnp.diag(logits) - logsumexp(logits, axis=0))


def symmetric_infonce(logits: Array) -> Array:
    return forward_infonce(logits) + backward_infonce(logits)


def binary_nce(logits: Array) -> Array:
    """Every one of the B x B pairs is judged on its own: positive on the diagonal, negative elsewhere."""
    signs = 2.0 * jnp.eye(logits.shape[0]) - 1.0
    return jnp.mean(jax.nn.softplus(-signs * logits))


def logsumexp_penalty(logits: Array) -> Array:
    """Keeps the logits from drifting together, which InfoNCE cannot see. Row-wise, as the peer's."""
    return jnp.mean(logsumexp(logits, axis=1) ** 2)


def infonce_accuracy(logits: Array) -> Array:
    """Share of (s, a) whose own goal has the highest logit. Chance: 1 / B. A tie is a miss, so collapse scores 0."""
    rivals = jnp.where(jnp.eye(logits.shape[0], dtype=bool), -jnp.inf, logits)  # [B, B]
    return jnp.mean(jnp.diag(logits) > jnp.max(rivals, axis=1))


CONTRASTIVE_LOSSES: dict[str, Contrast] = {
    "forward": forward_infonce,
    "backward": backward_infonce,
    "symmetric": symmetric_infonce,
    "binary_nce": binary_nce,
}
