"""What the actor sees of its goal: raw coordinates, the paper's direction and distance in psi-space, or a variation.

All of them read the achieved and the commanded goal alone, so each works at deployment, without a pool. Where the two
are equal, directions are zero and gradients finite. docs/conditions.md has a section for each.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

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
    """J^T u: the direction u in psi-space, in the goal's own coordinates. achieved [..., G], commanded [..., G] -> same

    J is psi_g's Jacobian at the achieved goal. Of all small moves in these coordinates, the one along J^T u takes
    psi(s) farthest along u. For a norm it is the steepest way down: -grad_s |psi(z) - psi(s)|.
    """
    psi_s, pull = jax.vjp(representation.encode_goal, achieved)
    return pull(direction_and_magnitude(psi_s, representation.encode_goal(commanded))[0])[0]


def bearing(representation: Representation, achieved: Array, commanded: Array) -> tuple[Array, Array]:
    """-> J^T u as a unit vector [..., G], and its norm [..., 1]: how fast the distance falls along it"""
    gradient = pulled_back(representation, achieved, commanded)
    return direction_and_magnitude(jnp.zeros_like(gradient), gradient)


@dataclass(frozen=True)
class Direction:
    """The paper's one idea: the actor sees where to go in psi-space, and how far it is."""

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return repr_dim + 1

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        psi_s = representation.encode_goal(achieved)  # [..., D]
        psi_z = representation.encode_goal(commanded)  # [..., D]
        return jnp.concatenate(direction_and_magnitude(psi_s, psi_z), axis=-1)  # [..., D + 1]


@dataclass(frozen=True)
class Gradient:
    """The theory's own form (appendix, pullback): the unit vector of J^T u in the goal's coordinates, and its norm.

    J^T u is minus the gradient of |psi(z) - psi(s)| at s, the statistic that theorem 1 calls sufficient.
    """

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return spec.goal_size + 1

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        return jnp.concatenate(bearing(representation, achieved, commanded), axis=-1)  # [..., G + 1]


@dataclass(frozen=True)
class DirectionAndGoal:
    """[d, r, g]: the paper's direction and distance, and the goal's coordinates beside them."""

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return repr_dim + 1 + spec.goal_size

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        return jnp.concatenate([Direction()(representation, achieved, commanded), commanded], axis=-1)


@dataclass(frozen=True)
class Steps:
    """The direction, and the distance in environment steps: for a critic whose distance is calibrated in time."""

    needs_steps: ClassVar[bool] = True

    unit: float = 100.0
    """Steps that the actor sees as 1."""

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return repr_dim + 1

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        assert representation.steps is not None
        psi_s, psi_z = representation.encode_goal(achieved), representation.encode_goal(commanded)
        steps = representation.steps(psi_s, psi_z)[..., None]  # [..., 1]
        return jnp.concatenate([direction_and_magnitude(psi_s, psi_z)[0], steps / self.unit], axis=-1)


@dataclass(frozen=True)
class TwoStep:
    """Direction and distance now, and again from the point one step along J^T u: [d, r, d', r']."""

    step: float | None = None
    """The way to the second point in the goal's coordinates, never beyond the goal. None: the task's threshold."""

    def for_task(self, spec: EnvSpec, episode_length: int) -> Self:
        return replace(self, step=spec.threshold if self.step is None else self.step)

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return 2 * (repr_dim + 1)

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        assert self.step is not None
        length = jnp.minimum(self.step, direction_and_magnitude(achieved, commanded)[1])  # [..., 1]
        ahead = achieved + length * bearing(representation, achieved, commanded)[0]  # [..., G]
        both = [Direction()(representation, point, commanded) for point in (achieved, ahead)]
        return jnp.concatenate(both, axis=-1)  # [..., 2 D + 2]


@dataclass(frozen=True)
class Curvature:
    """[d, r, c]: c = r times the rate at which d turns on the way along J^T u: -(1 - d d^T) J v, v its unit vector.

    The turn itself grows as 1 / r near the goal; times r it stays as small as J, and is zero at the goal.
    """

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return 2 * repr_dim + 1

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        along, _ = bearing(representation, achieved, commanded)  # [..., G]
        psi_s, speed = jax.jvp(representation.encode_goal, (achieved,), (along,))  # [..., D], J v [..., D]
        direction, magnitude = direction_and_magnitude(psi_s, representation.encode_goal(commanded))
        straight = jnp.sum(direction * speed, axis=-1, keepdims=True) * direction
        return jnp.concatenate([direction, magnitude, straight - speed], axis=-1)  # [..., 2 D + 1]
