"""Variations of the paper's condition: with the goal, in its own coordinates, in steps, a step ahead, curvature."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import jax
import jax.numpy as jnp

from dcp.errors import UserError
from dcp.interfaces import Representation
from dcp.methods.conditions import Direction, direction_and_magnitude, psi_of_goal
from dcp.types import Array, EnvSpec


@dataclass(frozen=True)
class DirectionAndGoal:
    """Show [d, r, g]: the paper's direction and distance, and the goal's coordinates."""

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return repr_dim + 1 + spec.goal_size

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        return jnp.concatenate([Direction()(representation, achieved, commanded), commanded], axis=-1)


def pulled_back(representation: Representation, achieved: Array, commanded: Array) -> Array:
    """Return J^T u, the psi-space direction u in the goal's own coordinates: [..., G], [..., G] -> [..., G].

    J is psi_g's Jacobian at the achieved goal. Of all small moves in these coordinates, the one along J^T u moves
    psi(s) farthest along u. For a norm it is the steepest descent: -grad_s |psi(z) - psi(s)|.
    """
    psi_s, pull = jax.vjp(representation.encode_goal, achieved)
    return pull(direction_and_magnitude(psi_s, psi_of_goal(representation, psi_s, achieved, commanded))[0])[0]


def bearing(representation: Representation, achieved: Array, commanded: Array) -> tuple[Array, Array]:
    """Return J^T u as a unit vector [..., G], and its norm [..., 1]: how fast the distance falls along it."""
    gradient = pulled_back(representation, achieved, commanded)
    return direction_and_magnitude(jnp.zeros_like(gradient), gradient)


@dataclass(frozen=True)
class Gradient:
    """Show the theory's own form (appendix, pullback): J^T u in the goal's coordinates as a unit vector, and its norm.

    J^T u is minus the gradient of |psi(z) - psi(s)| at s, the statistic that theorem 1 calls sufficient.
    """

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return spec.goal_size + 1

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        return jnp.concatenate(bearing(representation, achieved, commanded), axis=-1)  # [..., G + 1]


@dataclass(frozen=True)
class Steps:
    """Show the direction, and the distance in environment steps, for a critic whose distance is calibrated in time."""

    needs_steps: ClassVar[bool] = True

    unit: float = 100.0
    """Steps that the actor sees as 1."""

    def __post_init__(self) -> None:
        if not 0.0 < self.unit < math.inf:
            raise UserError(f"condition.unit {self.unit} is no number of steps: use one above 0, such as 100")

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return repr_dim + 1

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        assert representation.steps is not None
        psi_s = representation.encode_goal(achieved)
        psi_z = psi_of_goal(representation, psi_s, achieved, commanded)
        steps = representation.steps(psi_s, psi_z)[..., None]  # [..., 1]
        return jnp.concatenate([direction_and_magnitude(psi_s, psi_z)[0], steps / self.unit], axis=-1)


@dataclass(frozen=True)
class TwoStep:
    """Show [d, r, d', r']: direction and distance now, and from the point one step along J^T u."""

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
    """Show [d, r, c] with c = r times the rate at which d turns along J^T u: -(1 - d d^T) J v, v the unit vector.

    The rate grows as 1 / r near the goal; times r it stays bounded by J, and it is zero at the goal.
    """

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return 2 * repr_dim + 1

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        along, _ = bearing(representation, achieved, commanded)  # [..., G]
        psi_s, speed = jax.jvp(representation.encode_goal, (achieved,), (along,))  # [..., D], J v [..., D]
        psi_z = psi_of_goal(representation, psi_s, achieved, commanded)
        direction, magnitude = direction_and_magnitude(psi_s, psi_z)
        straight = jnp.sum(direction * speed, axis=-1, keepdims=True) * direction
        return jnp.concatenate([direction, magnitude, straight - speed], axis=-1)  # [..., 2 D + 1]
