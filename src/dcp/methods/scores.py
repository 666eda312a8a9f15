"""Score the candidates for z, the visited state that replaces the goal: `Pool.select_subgoal` takes the highest.

A rule reads psi_state [..., D], psi_candidates [..., C, D], psi_goal [..., D] and returns [..., C].
"""

from collections.abc import Callable

import jax.numpy as jnp

from dcp.components import Table
from dcp.interfaces import Representation
from dcp.types import Array

Score = Callable[[Representation, Array, Array, Array], Array]

TINY = 1e-12  # keeps a quotient finite: the cosine of a zero vector, a spread of zero


def inner_product(representation: Representation, psi_state: Array, psi_candidates: Array, psi_goal: Array) -> Array:
    """Return the paper's equation 2, <psi_g(z), psi_g(g)>. It favours long vectors, whatever their direction."""
    return jnp.einsum("...cd,...d->...c", psi_candidates, psi_goal)


def cosine(representation: Representation, psi_state: Array, psi_candidates: Array, psi_goal: Array) -> Array:
    """Return the inner product of the unit vectors."""
    lengths = jnp.linalg.norm(psi_candidates, axis=-1) * jnp.linalg.norm(psi_goal, axis=-1)[..., None]  # [..., C]
    return inner_product(representation, psi_state, psi_candidates, psi_goal) / jnp.maximum(lengths, TINY)


def energy(representation: Representation, psi_state: Array, psi_candidates: Array, psi_goal: Array) -> Array:
    """Prefer the candidate nearest to the goal under the critic's own geometry: the negative distance."""
    return -representation.distance(psi_candidates, psi_goal[..., None, :])


def on_path(representation: Representation, psi_state: Array, psi_candidates: Array, psi_goal: Array) -> Array:
    """Prefer the least detour: theorem 2 asks for a z with d(s, z) + d(z, g) close to d(s, g)."""
    to_candidate = representation.distance(psi_state[..., None, :], psi_candidates)
    onward = representation.distance(psi_candidates, psi_goal[..., None, :])
    return -(to_candidate + onward)


def reachable(representation: Representation, psi_state: Array, psi_candidates: Array, psi_goal: Array) -> Array:
    """Prefer the candidate nearest to the goal among the half that the critic values most from the present state.

    A command knows no action, so -d(s, z) stands for that value, with psi of the achieved goal for the state. The
    contrastive critic's d is Euclidean, whatever its energy.
    """
    to_candidate = representation.distance(psi_state[..., None, :], psi_candidates)  # [..., C]
    onward = representation.distance(psi_candidates, psi_goal[..., None, :])  # [..., C]
    return _last(-onward, to_candidate > jnp.median(to_candidate, axis=-1, keepdims=True))


NEIGHBOUR = 3  # k: novelty is the distance to the k-th nearest other candidate
NOVELTY_WEIGHT = 1.0


def frontier(representation: Representation, psi_state: Array, psi_candidates: Array, psi_goal: Array) -> Array:
    """Prefer alignment with the goal plus novelty, each in units of its spread over the candidates.

    Novelty is the distance in psi to the k-th nearest other candidate; with fewer others, to the farthest.
    """
    alignment = inner_product(representation, psi_state, psi_candidates, psi_goal)
    apart = representation.distance(psi_candidates[..., :, None, :], psi_candidates[..., None, :, :])  # [..., C, C]
    nearest = jnp.sort(apart, axis=-1)  # the nearest is the candidate itself
    novelty = nearest[..., min(NEIGHBOUR, nearest.shape[-1] - 1)]
    return in_spreads(alignment) + NOVELTY_WEIGHT * in_spreads(novelty)


def in_spreads(scores: Array) -> Array:
    """Return scores [..., C] in units of their standard deviation, about their mean."""
    off_mean = scores - jnp.mean(scores, axis=-1, keepdims=True)
    return off_mean / jnp.maximum(jnp.std(scores, axis=-1, keepdims=True), TINY)


PROGRESS = 0.1  # share of the way to the goal that `quasimetric` asks of a candidate


def quasimetric(representation: Representation, psi_state: Array, psi_candidates: Array, psi_goal: Array) -> Array:
    """Prefer the least d(s, z) + d(z, g) among candidates that are at least a tenth nearer to the goal than s is.

    `on_path` alone accepts z = s, whose detour is zero. If no candidate makes progress, this equals `on_path`.
    """
    whole = representation.distance(psi_state, psi_goal)[..., None]  # [..., 1]
    onward = representation.distance(psi_candidates, psi_goal[..., None, :])  # [..., C]
    detour = on_path(representation, psi_state, psi_candidates, psi_goal)  # [..., C]
    return _last(detour, onward > (1.0 - PROGRESS) * whole)


def _last(scores: Array, where: Array) -> Array:
    """Rank these candidates below all others. No score [..., C] may be above zero."""
    return scores + jnp.where(where, 2.0 * jnp.min(scores, axis=-1, keepdims=True), 0.0)


SCORES = Table(
    "score",
    {
        "inner_product": inner_product,
        "cosine": cosine,
        "energy": energy,
        "on_path": on_path,
        "reachable": reachable,
        "quasimetric": quasimetric,
        "frontier": frontier,
    },
)
