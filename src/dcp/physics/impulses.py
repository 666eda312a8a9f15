"""What contacts do to links: Brax's spring contact solver, for contacts [K, N]."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dcp.physics.buffers import once
from dcp.physics.contacts import Contacts
from dcp.physics.joints import Pull
from dcp.physics.vectors import Vec
from dcp.types import Array


class Bodies(NamedTuple):
    """Links at their centres of mass."""

    pos: Vec  # [L, N] each
    vel: Vec
    ang: Vec
    inverse_inertia: np.ndarray  # [L, 1]
    inverse_mass: np.ndarray  # [L, 1]


class _Side:
    """One body of each contact."""

    def __init__(self, bodies: Bodies, links: np.ndarray, pos: Vec):
        self.links = links
        self.arm = pos - Vec(*(c[links] for c in bodies.pos))
        self.velocity = Vec(*(c[links] for c in bodies.vel)) + Vec(*(c[links] for c in bodies.ang)).cross(self.arm)
        self.arm, self.velocity = once((self.arm, self.velocity))
        self.inverse_inertia, self.inverse_mass = bodies.inverse_inertia[links], bodies.inverse_mass[links]

    def resistance(self, direction: Vec) -> Array:
        """How much a unit impulse at the contact speeds it up by turning the body."""
        turn = self.arm.cross(direction) * self.inverse_inertia
        return direction.dot(turn.cross(self.arm))


def mean_impulses(groups: list[Contacts], bodies: Bodies, erp: float) -> Pull:
    """For each link [L, N] the mean impulse over the contacts that act on it."""
    size = bodies.inverse_mass.shape[0]
    members, parts = [], []
    for contacts in groups:
        for links, part in _impulses(contacts, bodies, erp):
            members.append(np.eye(size, dtype=np.float32)[links].T)  # [L, K]
            parts.append(part)  # [K, 7, N]
    stacked = jnp.concatenate(parts)
    total = np.concatenate(members, axis=1) @ stacked.reshape(stacked.shape[0], -1)
    total = total.reshape(size, *stacked.shape[1:])  # [L, 7, N]
    share = 1.0 / (total[:, 6] + 1e-8)
    mean = [total[:, i] * share for i in range(6)]
    return Pull(Vec(*mean[:3]), Vec(*mean[3:]))


def _impulses(contacts: Contacts, bodies: Bodies, erp: float) -> list[tuple[np.ndarray, Array]]:
    """For each side: its links [K]; impulse, angular impulse and whether the contact acts [K, 7, N]."""
    dist, pos, normal = contacts.touch
    n = -normal  # the direction in which the first body is pushed
    sides = [_Side(bodies, links, pos) for links in (contacts.first, contacts.second) if links is not None]
    velocity = sides[0].velocity if len(sides) == 1 else sides[0].velocity - sides[1].velocity
    mass = sum(side.inverse_mass for side in sides)

    approach = n.dot(velocity)
    resistance = sum(side.resistance(n) for side in sides)
    impulse = (-(1.0 + contacts.elasticity) * approach - erp * dist) / (mass + resistance)
    acts = (dist < 0.0) & (approach < 0.0) & (impulse > 0.0)
    approach, impulse, acts = once((approach, impulse, acts))

    # Friction acts against the motion along the surface, and never reverses it.
    sliding = velocity - n * approach
    speed = sliding.norm()
    along, speed = once((sliding * (1.0 / (1e-6 + speed)), speed))
    drag = speed / (mass + sum(side.resistance(along) for side in sides))
    drag = jnp.where(speed > 1e-3, jnp.minimum(drag, contacts.friction * impulse), 0.0)
    p = once((n * impulse - along * drag) * acts)

    parts = []
    for side, sign in zip(sides, (1.0, -1.0), strict=False):
        numbers = [*(p * sign), *(side.arm.cross(p) * sign), acts.astype(p.x.dtype)]
        parts.append((side.links, jnp.stack(numbers, axis=1)))
    return parts
