"""A chain of hinges: where its links are, its mass matrix and its bias forces. Environments are the last axis.

The same quantities as brax.kinematics, brax.generalized.dynamics and brax.generalized.mass, by the same algorithms
(composite rigid bodies, recursive Newton-Euler), with spatial vectors taken at one fixed point.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.physics.kinematics import IDENTITY, System
from dcp.physics.vectors import Vec, column, constant
from dcp.types import Array


class Arm:
    """Hold the first links of a system as a chain: H hinges, each turning one link about one coordinate axis.

    The axis passes through the link's origin. Other systems are refused.
    """

    def __init__(self, sys: System, links: int):
        model, turning = sys.model, np.asarray(sys.axes.ang)[:links]
        straight = np.allclose(sys.place.rot[:links], IDENTITY) and not np.any(sys.joint[:links])
        chain = np.array_equal(sys.parents[:links], np.arange(-1, links - 1))
        if not chain or not straight or not np.all(np.sort(turning, 1) == np.eye(3)[2]):
            raise ValueError("the arm must be a chain of single hinges about x, y or z, its links not rotated at rest")
        bodies = slice(1, links + 1)
        rotations = np.zeros((links, 9))
        for row, quaternion in zip(rotations, model.body_iquat[bodies].astype(np.float32).astype(float), strict=True):
            mujoco.mju_quat2Mat(row, quaternion)
        self.hinges = links
        self.axis = tuple(int(i) for i in turning.argmax(1))  # [H]: 0, 1, 2 for x, y, z
        self.offset = np.asarray(sys.place.pos)[:links]  # [H, 3]: a link's origin in its parent's frame
        self.mass = model.body_mass[bodies].astype(np.float32)  # [H]
        self.com = np.asarray(sys.centre)[:links]  # [H, 3]: in the link's frame
        # [H, 3, 3]: the inertia's principal axes in the link's frame, one per row; [H, 3]: about them
        self.principal = rotations.reshape(links, 3, 3).transpose(0, 2, 1)
        self.inertia = model.body_inertia[bodies].astype(np.float32)
        self.armature = model.dof_armature[:links].astype(np.float32)  # [H]
        self.gravity = model.opt.gravity.astype(np.float32)  # [3]


class Pose(NamedTuple):
    """Where the links are."""

    origin: Array  # [H, 3, N]
    frame: Array  # [H, 3, 3, N]: the links' axes in the world, one per column

    def hinge(self, arm: Arm) -> Vec:
        """Return the hinges' axes in the world, [H, N] each."""
        columns = np.eye(3, dtype=np.float32)[list(arm.axis)]
        return to_vec(jnp.sum(self.frame * jnp.asarray(columns)[:, None, :, None], axis=2))

    def direction(self, link: int, local: np.ndarray) -> Vec:
        """Turn directions given in one link's frame into the world's: local [K, 3] -> [K, N] each."""
        return combine(self.frame[link][None], local)

    def point(self, link: int, local: np.ndarray) -> Vec:
        return to_vec(self.origin[link][None]) + self.direction(link, local)


def to_vec(array: Array) -> Vec:
    """[K, 3, N] -> [K, N] each"""
    return Vec(array[:, 0], array[:, 1], array[:, 2])


def combine(frame: Array, local: np.ndarray) -> Vec:
    """frame [K or 1, 3, 3, N], local [K, 3] -> [K, N] each"""
    x, y, z = (c[:, None] for c in constant(local))  # [K, 1, 1]
    return to_vec(frame[:, :, 0] * x + frame[:, :, 1] * y + frame[:, :, 2] * z)


def pose(arm: Arm, q: Array) -> Pose:
    """Place the links; q [H, N].

    On a CPU this is a scan, because XLA would compute the chain again for every link that depends on it. Elsewhere the
    loop is unrolled, because each of its rounds would be several launches.
    """
    envs = q.shape[-1:]

    def link(parent: tuple[Array, Array], own: tuple[Array, Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        turn, offset = own  # [3, 3, N], [3, 1]
        origin, frame = parent
        origin = origin + jnp.sum(frame * offset[None], axis=1)
        frame = jnp.sum(frame[:, :, None] * turn[None], axis=1)
        return (origin, frame), (origin, frame)

    still = jnp.zeros((3, *envs)), jnp.broadcast_to(jnp.eye(3)[:, :, None], (3, 3, *envs))
    turns, offsets = _turns(arm, q), jnp.asarray(arm.offset, jnp.float32)[:, :, None]

    def place(unroll: bool, turns: Array, offsets: Array) -> tuple[Array, Array]:
        return jax.lax.scan(link, still, (turns, offsets), unroll=unroll)[1]

    forms = {"cpu": partial(place, False), "default": partial(place, True)}
    return Pose(*jax.lax.platform_dependent(turns, offsets, **forms))


def _turns(arm: Arm, q: Array) -> Array:
    """Return each hinge's rotation matrix [H, 3, 3, N]."""
    with_cos, with_sin, fixed = np.zeros((3, arm.hinges, 3, 3), np.float32)
    for hinge, k in enumerate(arm.axis):
        i, j = (k + 1) % 3, (k + 2) % 3
        fixed[hinge, k, k] = with_cos[hinge, i, i] = with_cos[hinge, j, j] = with_sin[hinge, j, i] = 1.0
        with_sin[hinge, i, j] = -1.0
    sin, cos = jnp.sin(q)[:, None, None], jnp.cos(q)[:, None, None]
    with_cos, with_sin, fixed = (jnp.asarray(m)[..., None] for m in (with_cos, with_sin, fixed))
    return with_cos * cos + with_sin * sin + fixed


def rotations(arm: Arm, q: Array) -> Array:
    """Return the links' quaternions in the world [H, 4, N]; q [H, N]."""
    sin, cos = jnp.sin(0.5 * q), jnp.cos(0.5 * q)
    w, u = jnp.ones_like(q[0]), Vec(*[jnp.zeros_like(q[0])] * 3)
    quaternions = []
    for link, axis in enumerate(arm.axis):
        turn = Vec(*(sin[link] if i == axis else jnp.zeros_like(w) for i in range(3)))
        w, u = w * cos[link] - u.dot(turn), turn * w + u * cos[link] + u.cross(turn)
        quaternions.append(jnp.stack([w, *u]))
    return jnp.stack(quaternions)


def _sums(half: Callable[[np.ndarray], np.ndarray], parts: Sequence[Array]) -> list[Array]:
    """Sum each part [H, N] over a link and all before it (np.tril) or after it (np.triu).

    This is a matrix product, because XLA would compute the parts again for each link.
    """
    stacked = jnp.stack(parts, axis=1)  # [H, P, N]
    links, count, envs = stacked.shape
    chosen = jnp.asarray(half(np.ones((links, links), np.float32)))
    total = (chosen @ stacked.reshape(links, count * envs)).reshape(stacked.shape)
    return [total[:, i] for i in range(count)]


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
        """Return the momentum of a motion: angular, linear."""
        turn = Vec(
            self.xx * ang.x + self.xy * ang.y + self.xz * ang.z,
            self.xy * ang.x + self.yy * ang.y + self.yz * ang.z,
            self.xz * ang.x + self.yz * ang.y + self.zz * ang.z,
        )
        return turn + self.moment.cross(vel), vel * self.mass - self.moment.cross(ang)

    def of_subtrees(self, mass: Array) -> "Inertia":
        """Sum over each link and all after it; `mass`: of these subtrees, a constant."""
        sums = _sums(np.triu, [*self.moment, *self[2:]])
        return Inertia(mass, Vec(*sums[:3]), *sums[3:])


def _base(arm: Arm) -> Vec:
    """Return the fixed point, the first hinge's: [1, 1] each."""
    return constant(arm.offset[:1])


def link_inertia(arm: Arm, pose: Pose) -> Inertia:
    mass = column(arm.mass)
    centre = to_vec(pose.origin) - _base(arm) + combine(pose.frame, arm.com)
    axes = [combine(pose.frame, arm.principal[:, i]) for i in range(3)]
    about = [column(arm.inertia[:, i]) for i in range(3)]

    def entry(a: int, b: int) -> Array:
        own = sum(u[a] * u[b] * i for u, i in zip(axes, about, strict=True))
        return own - mass * centre[a] * centre[b]

    shift = mass * centre.dot(centre)
    entries = [entry(a, a) + shift for a in range(3)] + [entry(0, 1), entry(0, 2), entry(1, 2)]
    x, y, z, *entries = _barrier([*(centre * mass), *entries])
    return Inertia(mass, Vec(x, y, z), *entries)


def _barrier(parts: Sequence[Array]) -> list[Array]:
    """Have XLA compute these once, even if many operations read them."""
    return list(jax.lax.optimization_barrier(tuple(parts)))


def dynamics(arm: Arm, pose: Pose, qd: Array) -> tuple[Array, Array]:
    """Return the mass matrix [H, H, N], its lower half valid, and the bias forces [H, N]."""
    inertia, ang = link_inertia(arm, pose), pose.hinge(arm)
    motion = _barrier([*ang, *ang.cross(_base(arm) - to_vec(pose.origin))])
    ang, vel = Vec(*motion[:3]), Vec(*motion[3:])
    turn, push = inertia.of_subtrees(column(arm.mass[::-1].cumsum()[::-1])).times(ang, vel)
    momentum = [c[:, None] for c in _barrier([*turn, *push])]
    matrix = sum(m * c[None] for m, c in zip(momentum, motion, strict=True))
    matrix = matrix + jnp.asarray(np.diag(arm.armature), jnp.float32)[:, :, None]

    # Velocities and accelerations down the chain, forces up.
    own = Vec(*(ang * qd)), Vec(*(vel * qd))
    summed = _sums(np.tril, [*own[0], *own[1]])
    link_ang, link_vel = Vec(*summed[:3]), Vec(*summed[3:])
    before_ang, before_vel = link_ang - own[0], link_vel - own[1]
    acc_ang, acc_vel = before_ang.cross(ang) * qd, (before_ang.cross(vel) + before_vel.cross(ang)) * qd
    summed = _sums(np.tril, [*acc_ang, *acc_vel])
    acc_ang, acc_vel = Vec(*summed[:3]), Vec(*summed[3:]) - constant(arm.gravity[None])
    turn, push = inertia.times(link_ang, link_vel)
    force_ang, force_vel = inertia.times(acc_ang, acc_vel)
    force_ang = force_ang + link_ang.cross(turn) + link_vel.cross(push)
    force_vel = force_vel + link_ang.cross(push)
    summed = _sums(np.triu, [*force_ang, *force_vel])
    return matrix, ang.dot(Vec(*summed[:3])) + vel.dot(Vec(*summed[3:]))


def inverse(matrix: Array) -> Array:
    """Invert symmetric positive matrices [H, H, N] by the sweep operator, pivot by pivot; reads their lower half."""
    size = matrix.shape[0]
    low = np.tril(np.ones((size, size), bool))[:, :, None]
    matrix = jnp.where(low, matrix, matrix.swapaxes(0, 1))
    for k in range(size):
        at_row = (np.arange(size) == k)[:, None, None]
        at_column = (np.arange(size) == k)[None, :, None]
        pivot = 1.0 / matrix[k, k][None]  # [1, N]
        row = matrix[k] * pivot  # [H, N]
        after = matrix - matrix[:, k][:, None] * row[None]
        after = jnp.where(at_row, row[None], jnp.where(at_column, row[:, None], after))
        matrix = jnp.where(at_row & at_column, -pivot[None], after)
    return -matrix
