"""What the actor sees of its goal: raw coordinates, or the paper's direction and distance in psi-space."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from dcp.interfaces import Representation
from dcp.types import Array, EnvSpec


@dataclass(frozen=True)
class RawGoal:
    """The condition of CRL and SSGC: the actor reads the goal's coordinates."""

    needs_embedding: ClassVar[bool] = False

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return spec.goal_size

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        return commanded


def direction_and_magnitude(psi_s: Array, psi_z: Array) -> tuple[Array, Array]:
    """Algorithm 1, Direction. Safe norm: z may equal s, and then both are zero with finite gradients."""
    difference = psi_z - psi_s  # [..., D]
    square = jnp.sum(difference**2, axis=-1, keepdims=True)  # [..., 1]
    apart = square > 0.0
    magnitude = jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)  # [..., 1]
    direction = difference / jnp.where(apart, magnitude, 1.0)  # [..., D]
    return direction, magnitude


def pulled_back(representation: Representation, achieved: Array, commanded: Array) -> Array:
    """J^T u: the direction u in psi-space, in the goal's own coordinates. achieved [G], commanded [G] -> [G]

    J is psi_g's Jacobian at the achieved goal. Of all small moves in these coordinates, the one along J^T u takes
    psi(s) farthest along u. For a norm it is the steepest way down: -grad_s |psi(z) - psi(s)|.
    """
    psi_s, pull = jax.vjp(representation.encode_goal, achieved)
    return pull(direction_and_magnitude(psi_s, representation.encode_goal(commanded))[0])[0]


@dataclass(frozen=True)
class Direction:
    """The paper's one idea: the actor sees where to go in psi-space, and how far it is."""

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return repr_dim + 1

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        psi_s = representation.encode_goal(achieved)  # [..., D]
        psi_z = representation.encode_goal(commanded)  # [..., D]
        return jnp.concatenate(direction_and_magnitude(psi_s, psi_z), axis=-1)  # [..., D + 1]
