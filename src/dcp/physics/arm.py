"""A chain of hinges: where its links are, its mass matrix and its bias forces, environments last.

The same quantities as brax.kinematics, brax.generalized.dynamics and brax.generalized.mass, by the same algorithms
(composite rigid bodies, recursive Newton-Euler), with spatial vectors taken at one fixed point.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.physics.vectors import Vec
from dcp.types import Array

if TYPE_CHECKING:
    from brax.base import System


@dataclass(frozen=True)
class Arm:
    """What is constant: H hinges, each turning one link about a coordinate axis through the link's origin."""

    axis: tuple[int, ...]  # [H]: 0, 1, 2 for x, y, z
    offset: np.ndarray  # [H, 3]: a link's origin in its parent's frame
    mass: np.ndarray  # [H]
    com: np.ndarray  # [H, 3]: in the link's frame
    principal: np.ndarray  # [H, 3, 3]: the inertia's principal axes in the link's frame, one a row
    inertia: np.ndarray  # [H, 3]: about them
    armature: np.ndarray  # [H]
    gravity: np.ndarray  # [3]


@dataclass(frozen=True)
class Pose:
    """Where the links are; components [H, N]."""

    origin: Vec
    frame: tuple[Vec, Vec, Vec]  # the links' x, y and z axes in the world
    hinge: Vec  # the hinges' axes in the world

    def direction(self, link: int, local: np.ndarray) -> Vec:
        """Directions given in one link's frame: local [K, 3] -> components [K, N]."""
        return _combine(tuple(_map(lambda c: c[link][None], axis) for axis in self.frame), local)

    def point(self, link: int, local: np.ndarray) -> Vec:
        return _map(lambda c: c[link][None], self.origin) + self.direction(link, local)


def _map(function: Callable[[Array], Array], v: Vec) -> Vec:
    return Vec(*map(function, v))


def _stack(vectors: Sequence[Vec]) -> Vec:
    """Along a new first axis."""
    return Vec(*map(jnp.stack, zip(*vectors, strict=True)))


def constant(points: np.ndarray) -> Vec:
    """[..., 3] -> components [..., 1], the same in every environment."""
    points = np.asarray(points, np.float32)
    return Vec(*(jnp.asarray(points[..., i : i + 1]) for i in range(3)))


def _combine(frame: tuple[Vec, Vec, Vec], local: np.ndarray) -> Vec:
    """Sum over axes: frame components [K, N], local [K, 3] -> [K, N]."""
    x, y, z = constant(local)
    return frame[0] * x + frame[1] * y + frame[2] * z


def arm_of(sys: "System", links: int) -> Arm:
    """The first links of a system, as a chain. Says what it cannot take."""
    numbers = jax.tree.map(lambda leaf: np.asarray(leaf)[:links], (sys.link, sys.dof.motion.ang, sys.dof.armature))
    link, turning, armature = numbers
    parents = tuple(int(p) for p in sys.link_parents[:links])
    straight = np.allclose(link.transform.rot, np.eye(4)[0]) and not np.any(link.joint.pos)
    if parents != tuple(range(-1, links - 1)) or not straight or not np.all(np.sort(turning, 1) == np.eye(3)[2]):
        raise ValueError("the arm must be a chain of single hinges about x, y or z, its links not rotated at rest")
    rotations = np.zeros((links, 9))
    for row, quaternion in zip(rotations, link.inertia.transform.rot.astype(float), strict=True):
        mujoco.mju_quat2Mat(row, quaternion)
    return Arm(
        axis=tuple(int(i) for i in turning.argmax(1)),
        offset=link.transform.pos,
        mass=link.inertia.mass,
        com=link.inertia.transform.pos,
        principal=rotations.reshape(links, 3, 3).transpose(0, 2, 1),
        inertia=np.diagonal(link.inertia.i, axis1=1, axis2=2),
        armature=armature,
        gravity=np.asarray(sys.gravity),
    )


def pose(arm: Arm, q: Array) -> Pose:
    """q [H, N]"""
    one, zero = jnp.ones_like(q[0]), jnp.zeros_like(q[0])
    frame = [Vec(one, zero, zero), Vec(zero, one, zero), Vec(zero, zero, one)]
    origin = Vec(zero, zero, zero)
    sin, cos = jnp.sin(q), jnp.cos(q)
    origins, frames, hinges = [], [], []
    for link, k in enumerate(arm.axis):
        for axis, length in zip(frame, arm.offset[link], strict=True):
            if length:
                origin = origin + axis * float(length)
        i, j = (k + 1) % 3, (k + 2) % 3
        frame[i], frame[j] = (
            frame[i] * cos[link] + frame[j] * sin[link],
            frame[j] * cos[link] - frame[i] * sin[link],
        )
        origins.append(origin)
        frames.append(tuple(frame))
        hinges.append(frame[k])
    x, y, z = (_stack(axes) for axes in zip(*frames, strict=True))
    return Pose(_stack(origins), (x, y, z), _stack(hinges))


def _column(values: np.ndarray) -> Array:
    return jnp.asarray(values, jnp.float32)[:, None]


def _down(c: Array) -> Array:
    rows = [c[0]]
    for i in range(1, c.shape[0]):
        rows.append(rows[-1] + c[i])
    return jnp.stack(rows)


def _up(c: Array) -> Array:
    return _down(c[::-1])[::-1]


class Inertia(NamedTuple):
    """Spatial inertia about the fixed point; arrays [H, N] (mass [H, 1])."""

    mass: Array
    moment: Vec  # mass times centre
    xx: Array
    yy: Array
    zz: Array
    xy: Array
    xz: Array
    yz: Array

    def times(self, ang: Vec, vel: Vec) -> tuple[Vec, Vec]:
        """Momentum of a motion: angular, linear."""
        turn = Vec(
            self.xx * ang.x + self.xy * ang.y + self.xz * ang.z,
            self.xy * ang.x + self.yy * ang.y + self.yz * ang.z,
            self.xz * ang.x + self.yz * ang.y + self.zz * ang.z,
        )
        return turn + self.moment.cross(vel), vel * self.mass - self.moment.cross(ang)

    def of_subtrees(self) -> "Inertia":
        return jax.tree.map(_up, self)


def _base(arm: Arm) -> Vec:
    """The fixed point: the first hinge's. [1, 1]"""
    return constant(arm.offset[:1])


def link_inertia(arm: Arm, pose: Pose) -> Inertia:
    mass = _column(arm.mass)
    centre = pose.origin - _base(arm) + _combine(pose.frame, arm.com)
    axes = [_combine(pose.frame, arm.principal[:, i]) for i in range(3)]
    about = [_column(arm.inertia[:, i]) for i in range(3)]

    def entry(a: int, b: int) -> Array:
        own = sum(u[a] * u[b] * i for u, i in zip(axes, about, strict=True))
        return own - mass * centre[a] * centre[b]

    shift = mass * centre.dot(centre)
    diagonal = [entry(a, a) + shift for a in range(3)]
    return Inertia(mass, centre * mass, *diagonal, entry(0, 1), entry(0, 2), entry(1, 2))


def dynamics(arm: Arm, pose: Pose, qd: Array) -> tuple[Array, Array]:
    """The mass matrix [H, H, N], its lower half valid, and the bias forces [H, N]."""
    inertia = link_inertia(arm, pose)
    ang, vel = pose.hinge, pose.hinge.cross(_base(arm) - pose.origin)
    turn, push = inertia.of_subtrees().times(ang, vel)
    turn, push = (_map(lambda c: c[:, None], v) for v in (turn, push))
    matrix = turn.dot(_map(lambda c: c[None], ang)) + push.dot(_map(lambda c: c[None], vel))
    matrix = matrix + jnp.asarray(np.diag(arm.armature), jnp.float32)[:, :, None]

    # Velocities and accelerations down the chain, forces up.
    link_ang, link_vel = _map(_down, ang * qd), _map(_down, vel * qd)
    before_ang, before_vel = link_ang - ang * qd, link_vel - vel * qd
    acc_ang = _map(_down, before_ang.cross(ang) * qd)
    acc_vel = _map(_down, (before_ang.cross(vel) + before_vel.cross(ang)) * qd)
    acc_vel = acc_vel - constant(arm.gravity[None])
    turn, push = inertia.times(link_ang, link_vel)
    force_ang, force_vel = inertia.times(acc_ang, acc_vel)
    force_ang = _map(_up, force_ang + link_ang.cross(turn) + link_vel.cross(push))
    force_vel = _map(_up, force_vel + link_ang.cross(push))
    return matrix, ang.dot(force_ang) + vel.dot(force_vel)


def inverse(matrix: Array) -> Array:
    """Of symmetric positive matrices [H, H, N], of which the lower half is read: the sweep operator, pivot by pivot."""
    size = matrix.shape[0]
    low = np.tril(np.ones((size, size), bool))[:, :, None]
    matrix = jnp.where(low, matrix, matrix.swapaxes(0, 1))
    for k in range(size):
        at_row = (np.arange(size) == k)[:, None, None]
        at_column = (np.arange(size) == k)[None, :, None]
        pivot = 1.0 / matrix[k, k][None]  # [1, N]
        row = matrix[k] * pivot  # [H, N]
        swept = matrix - matrix[:, k][:, None] * row[None]
        swept = jnp.where(at_row, row[None], jnp.where(at_column, row[:, None], swept))
        matrix = jnp.where(at_row & at_column, -pivot[None], swept)
    return -matrix


def rotations(arm: Arm, q: Array) -> Array:
    """The links' quaternions in the world [H, 4, N]; q [H, N]."""
    sin, cos = jnp.sin(0.5 * q), jnp.cos(0.5 * q)
    w, u = jnp.ones_like(q[0]), Vec(*[jnp.zeros_like(q[0])] * 3)
    found = []
    for link, axis in enumerate(arm.axis):
        turn = Vec(*(sin[link] if i == axis else jnp.zeros_like(w) for i in range(3)))
        w, u = w * cos[link] - u.dot(turn), turn * w + u * cos[link] + u.cross(turn)
        found.append(jnp.stack([w, *u]))
    return jnp.stack(found)
