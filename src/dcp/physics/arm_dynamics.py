"""An arm's mass matrix and bias forces, environments last.

The same quantities as brax.generalized.dynamics and brax.generalized.mass, by the same algorithms (composite rigid
bodies, recursive Newton-Euler), with spatial vectors taken at one fixed point.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.physics.arm import Arm, Pose, combine, to_vec
from dcp.physics.vectors import Vec, constant
from dcp.types import Array


def _column(values: np.ndarray) -> Array:
    return jnp.asarray(values, jnp.float32)[:, None]


def _down(parts: Sequence[Array]) -> list[Array]:
    """Sums over each link and all before it; parts [H, N]. A product, because XLA would compute the parts anew."""
    return _sums(parts, np.tril)


def _up(parts: Sequence[Array]) -> list[Array]:
    """Sums over each link and all after it."""
    return _sums(parts, np.triu)


def _sums(parts: Sequence[Array], half: Callable[[np.ndarray], np.ndarray]) -> list[Array]:
    stacked = jnp.stack(parts, axis=1)  # [H, P, N]
    links, count, lanes = stacked.shape
    chosen = jnp.asarray(half(np.ones((links, links), np.float32)))
    total = (chosen @ stacked.reshape(links, count * lanes)).reshape(stacked.shape)
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
        """Momentum of a motion: angular, linear."""
        turn = Vec(
            self.xx * ang.x + self.xy * ang.y + self.xz * ang.z,
            self.xy * ang.x + self.yy * ang.y + self.yz * ang.z,
            self.xz * ang.x + self.yz * ang.y + self.zz * ang.z,
        )
        return turn + self.moment.cross(vel), vel * self.mass - self.moment.cross(ang)

    def of_subtrees(self, mass: Array) -> "Inertia":
        """`mass`: of the subtrees, a constant."""
        moved = _up([*self.moment, *self[2:]])
        return Inertia(mass, Vec(*moved[:3]), *moved[3:])


def _base(arm: Arm) -> Vec:
    """The fixed point: the first hinge's. [1, 1]"""
    return constant(arm.offset[:1])


def link_inertia(arm: Arm, pose: Pose) -> Inertia:
    mass = _column(arm.mass)
    centre = to_vec(pose.origin) - _base(arm) + combine(pose.frame, arm.com)
    axes = [combine(pose.frame, arm.principal[:, i]) for i in range(3)]
    about = [_column(arm.inertia[:, i]) for i in range(3)]

    def entry(a: int, b: int) -> Array:
        own = sum(u[a] * u[b] * i for u, i in zip(axes, about, strict=True))
        return own - mass * centre[a] * centre[b]

    shift = mass * centre.dot(centre)
    entries = [entry(a, a) + shift for a in range(3)] + [entry(0, 1), entry(0, 2), entry(1, 2)]
    x, y, z, *entries = _kept([*(centre * mass), *entries])
    return Inertia(mass, Vec(x, y, z), *entries)


def _kept(parts: Sequence[Array]) -> list[Array]:
    """Computed once, however many read them."""
    return list(jax.lax.optimization_barrier(tuple(parts)))


def dynamics(arm: Arm, pose: Pose, qd: Array) -> tuple[Array, Array]:
    """The mass matrix [H, H, N], its lower half valid, and the bias forces [H, N]."""
    inertia, ang = link_inertia(arm, pose), pose.hinge(arm)
    motion = _kept([*ang, *ang.cross(_base(arm) - to_vec(pose.origin))])
    ang, vel = Vec(*motion[:3]), Vec(*motion[3:])
    turn, push = inertia.of_subtrees(_column(arm.mass[::-1].cumsum()[::-1])).times(ang, vel)
    momentum = [c[:, None] for c in _kept([*turn, *push])]
    matrix = sum(m * c[None] for m, c in zip(momentum, motion, strict=True))
    matrix = matrix + jnp.asarray(np.diag(arm.armature), jnp.float32)[:, :, None]

    # Velocities and accelerations down the chain, forces up.
    own = Vec(*(ang * qd)), Vec(*(vel * qd))
    summed = _down([*own[0], *own[1]])
    link_ang, link_vel = Vec(*summed[:3]), Vec(*summed[3:])
    before_ang, before_vel = link_ang - own[0], link_vel - own[1]
    acc_ang, acc_vel = before_ang.cross(ang) * qd, (before_ang.cross(vel) + before_vel.cross(ang)) * qd
    summed = _down([*acc_ang, *acc_vel])
    acc_ang, acc_vel = Vec(*summed[:3]), Vec(*summed[3:]) - constant(arm.gravity[None])
    turn, push = inertia.times(link_ang, link_vel)
    force_ang, force_vel = inertia.times(acc_ang, acc_vel)
    force_ang = force_ang + link_ang.cross(turn) + link_vel.cross(push)
    force_vel = force_vel + link_ang.cross(push)
    summed = _up([*force_ang, *force_vel])
    return matrix, ang.dot(Vec(*summed[:3])) + vel.dot(Vec(*summed[3:]))


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
