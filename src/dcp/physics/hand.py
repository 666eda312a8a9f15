"""What the arm's hand can touch: the table and a body that slides on it. Environments last."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.physics import shapes
from dcp.physics.arm import Pose
from dcp.physics.geoms import CAPSULE, PLANE, Geoms, colliding_pairs
from dcp.physics.vectors import Vec, constant, where
from dcp.types import Array


class Contacts(NamedTuple):
    """Components [C, N]. The normal points from the table to the hand, from the hand to the body."""

    dist: Array
    pos: Vec
    normal: Vec
    tangents: tuple[Vec, Vec]


@dataclass(frozen=True)
class Hand:
    """Capsules fixed to one link of the arm, a plane of the world, and one capsule on a sliding body."""

    capsules: Geoms
    body: Geoms  # one capsule
    plane: np.ndarray  # [2, 3]: a point of it, its normal
    material: tuple[float, tuple[float, ...]]  # sliding friction; solref and solimp

    @property
    def link(self) -> int:
        return int(self.capsules.link[0])

    @property
    def table_contacts(self) -> int:
        """They come first: two a capsule. The body's follow: one a capsule."""
        return 2 * len(self.capsules.ids)

    def touch(self, pose: Pose, body: Vec) -> Contacts:
        """`body`: the sliding body's origin, [1, N] each."""
        centre = pose.point(self.link, self.capsules.offset)  # [K, N]
        core = pose.direction(self.link, self.capsules.core)
        return _joined(self._on_table(centre, core), self._on_body(centre, core, body))

    def _on_table(self, centre: Vec, core: Vec) -> Contacts:
        """Both ends of each capsule; the tangents follow the capsule, as in MJX."""
        zero = centre.x * 0.0
        normal = Vec(*(zero + c for c in constant(self.plane[1:])))
        length = np.linalg.norm(self.capsules.core, axis=1, keepdims=True).astype(np.float32)
        axis = core * (1.0 / length)
        flat = axis - normal * normal.dot(axis)
        first = where(flat.norm() < 0.5, _upright(normal), _unit(flat))
        radius = jnp.asarray(self.capsules.radius)[:, None]
        sides = []
        for end in (centre + core, centre - core):
            dist = (end - constant(self.plane[:1])).dot(normal) - radius
            pos = end - normal * (radius + 0.5 * dist)
            sides.append(Contacts(dist, pos, normal, (first, normal.cross(first))))
        return _joined(*sides)

    def _on_body(self, centre: Vec, core: Vec, body: Vec) -> Contacts:
        other = Vec(*(jnp.broadcast_to(c, centre.x.shape) for c in body + constant(self.body.offset)))
        radius = jnp.asarray(self.capsules.radius)[:, None]
        half = np.linalg.norm(self.capsules.core, axis=1, keepdims=True).astype(np.float32)
        other_half = float(np.linalg.norm(self.body.core))
        along = constant(self.body.core / other_half)
        mine, theirs = _closest(centre, core * (1.0 / half), half, other, along, other_half)
        touch = shapes.sphere_sphere(mine, radius, theirs, jnp.asarray(self.body.radius)[:, None])
        upright = _upright(touch.normal)
        first = _unit(upright - touch.normal * touch.normal.dot(upright))
        return Contacts(touch.dist, touch.pos, touch.normal, (first, touch.normal.cross(first)))


def hand_of(model: mujoco.MjModel, arm_links: int) -> Hand:
    """Says what it cannot take."""
    pairs = list(colliding_pairs(model))
    kind, link = model.geom_type, model.geom_bodyid - 1
    tables = sorted({a for a, b in pairs if kind[a] == PLANE})
    capsules = sorted({b for a, b in pairs if kind[a] == PLANE})
    bodies = sorted({b for a, b in pairs if kind[a] == CAPSULE})
    expected = {(t, c) for t in tables for c in capsules} | {(c, b) for c in capsules for b in bodies}
    sound = len(tables) == len(bodies) == 1 and set(pairs) == expected and len({int(link[c]) for c in capsules}) == 1
    if not sound or any(kind[g] != CAPSULE for g in capsules + bodies) or not 0 <= link[capsules[0]] < arm_links:
        raise ValueError("the hand must be capsules of one link of the arm that touch one plane and one other capsule")
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, model.geom_quat[tables[0]])
    plane = np.stack([model.geom_pos[tables[0]], matrix.reshape(3, 3)[:, 2]])
    touching = tables + capsules + bodies
    materials = np.concatenate([model.geom_friction[:, :1], model.geom_solref, model.geom_solimp], axis=1)[touching]
    if np.ptp(materials, axis=0).any():
        raise ValueError("all that touches must be of one material: friction, solref and solimp")
    friction, *softness = materials[0].tolist()
    return Hand(Geoms.of(model, capsules), Geoms.of(model, bodies), plane, (friction, tuple(softness)))


def _joined(*parts: Contacts) -> Contacts:
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *parts)


def _unit(v: Vec) -> Vec:
    length = v.norm()
    return v * (1.0 / jnp.where(length == 0.0, 1e-6, length))


def _upright(normal: Vec) -> Vec:
    """y, or z where the normal is too close to y."""
    aside = jnp.abs(normal.y) < 0.5
    return Vec(normal.x * 0.0, jnp.where(aside, 1.0, 0.0), jnp.where(aside, 0.0, 1.0))


def _closest(middle: Vec, along: Vec, half: Array, middle2: Vec, along2: Vec, half2: float) -> tuple[Vec, Vec]:
    """Closest points of two segments: between the lines, then mended where an end cuts them. As in MJX.

    MJX mends the point of one segment or the other, whichever comes out closer. Off the ends the two differ by about
    1e-11 in squared distance, less than float32 resolves, and by 2e-4 in the contact's normal: Brax tosses a coin.
    So the difference is computed from the places along the segments, where it is no difference of squares.
    """
    between = middle - middle2
    cosine, a, b = along.dot(along2), along.dot(between), along2.dot(between)
    t = (cosine * b - a) / (1.0 - cosine * cosine + 1e-6)
    t2 = jnp.clip(b + t * cosine, -half2, half2)
    t = jnp.clip(t, -half, half)
    off, off2 = a + t - cosine * t2, b + cosine * t - t2  # the gap along each segment
    by, by2 = _mended(t - off, half) - t, _mended(t2 + off2, half2) - t2
    first = by * (by + 2.0 * off) < by2 * (by2 - 2.0 * off2)  # what each adds to the squared distance
    return middle + along * jnp.where(first, t + by, t), middle2 + along2 * jnp.where(first, t2, t2 + by2)


def _mended(place: Array, half: Array | float) -> Array:
    """The closest place on a segment to a point at `place` along it; MJX adds 1e-6 to the squared length."""
    shrink = 1e-6 / (4.0 * half * half + 1e-6)
    return jnp.clip(place - (place + half) * shrink, -half, half)
