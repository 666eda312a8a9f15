"""Which visited state should stand in for the goal? Each rule scores candidates; the highest wins.

A rule reads psi_state [..., D], psi_candidates [..., C, D], psi_goal [..., D] and returns [..., C].
"""

from collections.abc import Callable

import jax.numpy as jnp

from dcp.components import Table
from dcp.interfaces import Representation
from dcp.types import Array

Score = Callable[[Representation, Array, Array, Array], Array]

TINY = 1e-12  # keeps the cosine finite for a zero vector


def inner_product(representation: Representation, psi_state: Array, psi_candidates: Array, psi_goal: Array) -> Array:
    """Equation 2, the paper's: <psi_g(z), psi_g(g)>. It favours long vectors, whatever their direction."""
    return jnp.einsum("...cd,...d->...c", psi_candidates, psi_goal)


def cosine(representation: Representation, psi_state: Array, psi_candidates: Array, psi_goal: Array) -> Array:
    """The inner product of the unit vectors."""
    lengths = jnp.linalg.norm(psi_candidates, axis=-1) * jnp.linalg.norm(psi_goal, axis=-1)[..., None]  # [..., C]
    return inner_product(representation, psi_state, psi_candidates, psi_goal) / jnp.maximum(lengths, TINY)


def energy(representation: Representation, psi_state: Array, psi_candidates: Array, psi_goal: Array) -> Array:
    """The negative distance: the candidate nearest to the goal under the critic's own geometry."""
    return -representation.distance(psi_candidates, psi_goal[..., None, :])


def on_path(representation: Representation, psi_state: Array, psi_candidates: Array, psi_goal: Array) -> Array:
    """The least detour: theorem 2 asks for a z with d(s, z) + d(z, g) close to d(s, g)."""
    there = representation.distance(psi_state[..., None, :], psi_candidates)
    onward = representation.distance(psi_candidates, psi_goal[..., None, :])
    return -(there + onward)


SCORES = Table("score", {"inner_product": inner_product, "cosine": cosine, "energy": energy, "on_path": on_path})
