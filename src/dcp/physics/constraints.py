"""Forces that keep joints within their limits and bodies apart: brax.generalized.constraint, environments last."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dcp.physics import projected_gradient
from dcp.physics.hand import Contacts, Hand
from dcp.physics.vectors import Vec, constant
from dcp.types import Array


class Situation(NamedTuple):
    """What the constraints of some environments depend on. D = hinges and the pushed body's slides."""

    origin: Array  # [H, 3, N]: the hinges
    hinge: Array  # [H, 3, N]: their axes
    contacts: Contacts  # [C, N]
    inverse: Array  # [H, H, N]: of the arm's mass matrix
    q: Array  # [D, N]
    qd: Array  # [D, N]
    force: Array  # [D, N]: all forces but those of the constraints


class Softness(NamedTuple):
    """MuJoCo's solver parameters of one kind of constraint."""

    time: float
    damping: float
    weakest: float
    strongest: float
    width: float
    middle: float
    power: float

    def reference(self, pos: Array, vel: Array) -> tuple[Array, Array]:
        """Impedance, and the acceleration that the constraint asks for."""
        x = jnp.abs(pos) / self.width
        rise = x**self.power / self.middle ** (self.power - 1)
        fall = 1.0 - (1.0 - x) ** self.power / (1.0 - self.middle) ** (self.power - 1)
        impedance = self.weakest + jnp.where(x < self.middle, rise, fall) * (self.strongest - self.weakest)
        impedance = jnp.clip(impedance, self.weakest, self.strongest)
        impedance = jnp.where(x > 1.0, self.strongest, impedance)
        b = 2.0 / (self.strongest * self.time)
        k = 1.0 / (self.strongest * self.time * self.damping) ** 2
        return impedance, -b * vel - k * impedance * pos


@dataclass(frozen=True)
class Constraints:
    hand: Hand
    hinges: int
    lower: np.ndarray  # [D]
    upper: np.ndarray  # [D]
    slides: np.ndarray  # [S, 3]: directions in which the pushed body slides
    slide_inverse: np.ndarray  # [S]: inverse mass along them
    limit_weight: np.ndarray  # [D]: inverse weights of the joints
    contact_weight: np.ndarray  # [C]: of the two bodies in contact
    friction: float
    limit_softness: Softness
    contact_softness: Softness
    iterations: int
    halvings: int

    def violated(self, q: Array, dist: Array) -> Array:
        """[N]: where any constraint acts; q [D, N], dist [C, N]"""
        return jnp.any(self._limit_pos(q)[0] < 0.0, axis=0) | jnp.any(dist < 0.0, axis=0)

    def _limit_pos(self, q: Array) -> tuple[Array, Array]:
        below, above = q - _column(self.lower), _column(self.upper) - q
        return jnp.minimum(jnp.minimum(below, above), 0.0), jnp.where(below < above, 1.0, -1.0)

    def forces(self, at: Situation) -> Array:
        """[D, N]"""
        limits, limit_diag, limit_aref = self._limit_rows(at)  # [D, N]: a limit's row has one entry
        jacobian, contact_diag, contact_aref = self._contact_rows(at)  # [R, D, N]
        diagonal = jnp.concatenate([limit_diag, contact_diag])
        joints = limits.shape[0]

        def to_joints(x: Array) -> Array:
            """The rows' forces as joint forces [D, N]."""
            return limits * x[:joints] + jnp.sum(jacobian * x[joints:, None], axis=0)

        def to_rows(acceleration: Array) -> Array:
            return jnp.concatenate([limits * acceleration, jnp.sum(jacobian * acceleration[None], axis=1)])

        def accelerate(force: Array) -> Array:
            arm = jnp.sum(at.inverse * force[None, : self.hinges], axis=1)
            return jnp.concatenate([arm, _column(self.slide_inverse) * force[self.hinges :]])

        def multiply(x: Array) -> Array:
            return to_rows(accelerate(to_joints(x))) + diagonal * x

        b = to_rows(accelerate(at.force)) - jnp.concatenate([limit_aref, contact_aref])
        moving = self.violated(at.q, at.contacts.dist)
        return to_joints(projected_gradient.solve(multiply, b, self.iterations, self.halvings, moving))

    def _limit_rows(self, at: Situation) -> tuple[Array, Array, Array]:
        pos, side = self._limit_pos(at.q)
        acts = pos < 0.0
        jacobian = jnp.where(acts, side, 0.0)
        impedance, aref = self.limit_softness.reference(pos, jacobian * at.qd)
        diagonal = _column(self.limit_weight) * (1.0 - impedance) / (impedance + 1e-8)
        return jacobian, jnp.where(acts, diagonal, 0.0), jnp.where(acts, aref, 0.0)

    def _contact_rows(self, at: Situation) -> tuple[Array, Array, Array]:
        """Four rows a contact: a pyramid of friction around the normal."""
        contacts, table = at.contacts, self.hand.table_contacts
        count = contacts.dist.shape[0]
        reach = Vec(*(p[:, None] - at.origin[None, :, i] for i, p in enumerate(contacts.pos)))  # [C, H, N]
        swing = Vec(*(at.hinge[None, :, i] for i in range(3))).cross(reach)
        # The hand is the second body on the table, the first against the pushed body, which no table touches.
        side = np.where(np.arange(count) < table, 1.0, -1.0).astype(np.float32)[:, None, None]
        moved = np.where(np.arange(count) < table, 0.0, 1.0).astype(np.float32)[:, None, None]
        reaches = (np.arange(self.hinges) <= self.hand.link).astype(np.float32)[None, :, None]
        slides = constant(self.slides)  # [S, 1]

        def row(direction: Vec) -> Array:
            d = Vec(*(c[:, None] for c in direction))  # [C, 1, N]
            slide = Vec(*(c[None] for c in slides)).dot(d)  # [C, S, N]
            return jnp.concatenate([swing.dot(d) * (side * reaches), slide * moved], axis=1)  # [C, D, N]

        normal, tangents = row(contacts.normal), [self.friction * row(t) for t in contacts.tangents]
        acts = contacts.dist < 0.0
        rows = jnp.concatenate([normal + s * t for t in tangents for s in (1.0, -1.0)])  # [4 C, D, N]
        acts, pos = jnp.tile(acts, (4, 1)), jnp.tile(contacts.dist, (4, 1))
        rows = jnp.where(acts[:, None], rows, 0.0)
        impedance, aref = self.contact_softness.reference(pos, jnp.sum(rows * at.qd[None], axis=1))
        weight = np.tile(self.contact_weight, 4) * (1.0 + self.friction**2) * 2.0 * self.friction**2
        diagonal = _column(weight) * (1.0 - impedance) / (impedance + 1e-8)
        return rows, jnp.where(acts, diagonal, 0.0), jnp.where(acts, aref, 0.0)


def _column(values: np.ndarray) -> Array:
    return jnp.asarray(values, jnp.float32)[:, None]
