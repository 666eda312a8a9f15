"""Show the actor its goal: as raw coordinates, as the paper's direction and distance in psi-space, or both.

All conditions read only the achieved and the commanded goal, so they work at deployment without a pool. If the two are
equal, directions are zero and gradients finite. `more_conditions.py` has variations; docs/the_method.md describes each.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from dcp.interfaces import Representation
from dcp.types import Array, EnvSpec


@dataclass(frozen=True)
class RawGoal:
    """Show the goal's coordinates, as in CRL and SSGC."""

    needs_embedding: ClassVar[bool] = False

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return spec.goal_size

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        return commanded


def direction_and_magnitude(psi_s: Array, psi_z: Array) -> tuple[Array, Array]:
    """Return Algorithm 1's Direction. The norm is safe: if z equals s, both are zero with finite gradients."""
    difference = psi_z - psi_s  # [..., D]
    square = jnp.sum(difference**2, axis=-1, keepdims=True)  # [..., 1]
    apart = square > 0.0
    magnitude = jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)  # [..., 1]
    direction = difference / jnp.where(apart, magnitude, 1.0)  # [..., D]
    return direction, magnitude


def psi_of_goal(representation: Representation, psi_s: Array, achieved: Array, commanded: Array) -> Array:
    """Return psi(z), and psi(s) itself where z equals s: XLA may round two equal inputs differently in one program, and
    the direction between two roundings is noise of length one."""
    psi_z = representation.encode_goal(commanded)  # [..., D]
    return jnp.where(jnp.all(achieved == commanded, axis=-1, keepdims=True), psi_s, psi_z)


@dataclass(frozen=True)
class Direction:
    """Show direction and distance in psi-space, which is the paper's one idea."""

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return repr_dim + 1

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        psi_s = representation.encode_goal(achieved)  # [..., D]
        psi_z = psi_of_goal(representation, psi_s, achieved, commanded)  # [..., D]
        return jnp.concatenate(direction_and_magnitude(psi_s, psi_z), axis=-1)  # [..., D + 1]
