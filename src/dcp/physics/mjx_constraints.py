"""Contacts and joint limits as rows for the solver, by MuJoCo's rules. The environments' axis comes last."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dcp.physics.constraint_rows import Dynamics, Rows
from dcp.physics.line_search import TINY, Settings
from dcp.physics.mjx_contacts import Scene
from dcp.physics.newton import solve, solve_positive
from dcp.physics.vectors import Vec, where
from dcp.types import Array

_LEAST, _MOST = 0.0001, 0.9999  # MuJoCo's mjMINIMP, mjMAXIMP


class Motion(NamedTuple):
    """What contacts and solver read of MJX's data; the environments' axis is last."""

    q: Array  # [Q, N]
    qd: Array  # [V, N]
    geoms: Array  # [geoms, 3, N]: positions
    axes: Array  # [V, 6, N]: each degree of freedom's motion (angular, linear) about `centres`
    centres: Array  # [V, 3, N]
    mass: Array  # [V, V, N]
    force: Array  # [V, N]
    warm: Array  # [V, N]


class Constraints:
    """Contacts and joint limits as rows for the solver, with MuJoCo's reference accelerations and weights."""

    def __init__(self, model: Any):
        self.scene = Scene(model)
        slots = self.scene.slots
        first, second = model.geom_bodyid[slots.first], model.geom_bodyid[slots.second]
        chains = _chains(model)  # [bodies, V]
        self.sides = (chains[second] - chains[first])[..., None].astype(np.float32)  # [C, V, 1]
        self.friction = model.geom_friction[slots.second, :1].astype(np.float32)  # [C, 1]
        squared = self.friction[:, 0] ** 2
        weight = model.body_invweight0[first, 0] + model.body_invweight0[second, 0]
        weight = weight * (1 + squared) * 2 * squared / model.opt.impratio
        self.count = np.tile(slots.count, 4)[:, None].astype(np.float32)  # [4 C, 1]
        self.limited = np.flatnonzero(model.jnt_limited)
        self.limit_dofs = model.jnt_dofadr[self.limited]
        self.stiffness = np.concatenate([np.tile(weight, 4), model.dof_invweight0[self.limit_dofs]])
        self.solref = np.concatenate([np.tile(model.geom_solref[slots.second], (4, 1)), model.jnt_solref[self.limited]])
        self.solimp = np.concatenate([np.tile(model.geom_solimp[slots.second], (4, 1)), model.jnt_solimp[self.limited]])
        self.model = model
        opt = model.opt
        self.settings = Settings(opt.iterations, opt.ls_iterations, opt.tolerance, opt.ls_tolerance)

    def accelerate(self, motion: Motion) -> Array:
        """[V, N]: the constrained acceleration."""
        free = Dynamics(motion.mass, motion.force, solve_positive(motion.mass, motion.force))
        return solve(self.rows(motion), free, motion.warm, self.settings)

    def rows(self, motion: Motion) -> Rows:
        touch = self.scene.touch(motion.geoms)
        touching = touch.dist < 0.0  # [C, N]
        directions = self._directions(motion, touch.pos, touch.normal) * touching[None, :, None]
        limit, sign = self._limits(motion.q)
        dist = jnp.concatenate([jnp.tile(touch.dist, (4, 1)), limit])  # [R, N]
        rows = Rows(directions, self.friction, self.limit_dofs, sign, dist, dist)
        stiffness, damping, impedance = self._impedance(dist)
        inverse = np.asarray(self.stiffness, np.float32)[:, None]
        weight = 1.0 / jnp.maximum(inverse * (1.0 - impedance) / impedance, TINY)
        count = np.concatenate([self.count, np.ones((len(self.limited), 1), np.float32)])
        acts = jnp.where(dist < 0.0, dist, 0.0)
        target = -damping * rows.apply(motion.qd) - stiffness * impedance * acts
        return rows._replace(weight=count * weight, target=target)

    def _directions(self, motion: Motion, pos: Vec, normal: Vec) -> Array:
        """[3, C, V, N]: how fast the second geom leaves the first along normal and tangents, for each velocity."""
        angular = Vec(*(motion.axes[None, :, i] for i in range(3)))  # [1, V, N]
        linear = Vec(*(motion.axes[None, :, i] for i in range(3, 6)))
        centre = Vec(*(motion.centres[None, :, i] for i in range(3)))
        arm = Vec(*(p[:, None] for p in pos)) - centre  # [C, V, N]
        velocity = (linear + angular.cross(arm)) * self.sides
        return jnp.stack([velocity.dot(Vec(*(c[:, None] for c in axis))) for axis in _frame_of(normal)])

    def _limits(self, q: Array) -> tuple[Array, Array]:
        """Distance to the nearer limit [L, N], and which way it pushes where it is passed."""
        at = q[self.model.jnt_qposadr[self.limited]]
        low, high = self.model.jnt_range[self.limited].T[..., None].astype(np.float32)
        margin = self.model.jnt_margin[self.limited, None].astype(np.float32)
        to_low, to_high = at - low, high - at
        distance = jnp.minimum(to_low, to_high) - margin
        sign = jnp.where(to_low < to_high, 1.0, -1.0)
        return distance, jnp.where(distance < 0.0, sign, 0.0)

    def _impedance(self, dist: Array) -> tuple[np.ndarray, np.ndarray, Array]:
        """MuJoCo's stiffness and damping [R, 1] and impedance [R, N] of each row."""
        time, ratio = self.solref.T
        least, most, width, middle, power = self.solimp.T
        least, most, middle = (np.clip(x, _LEAST, _MOST) for x in (least, most, middle))
        time, width, power = (
            np.maximum(time, 2 * self.model.opt.timestep),
            np.maximum(width, TINY),
            np.maximum(power, 1),
        )
        stiffness = 1.0 / (most * time * ratio) ** 2
        damping = 2.0 / (most * time)

        def column(x: np.ndarray) -> np.ndarray:
            return np.asarray(x, np.float32)[:, None]

        part = jnp.abs(dist) / column(width)
        below = column(1.0 / middle ** (power - 1)) * _power(part, power)
        above = 1.0 - column(1.0 / (1 - middle) ** (power - 1)) * _power(1.0 - part, power)
        curve = jnp.where(part < column(middle), below, above)
        impedance = jnp.clip(column(least) + curve * column(most - least), column(least), column(most))
        return column(stiffness), column(damping), jnp.where(part > 1.0, column(most), impedance)


def _power(x: Array, power: np.ndarray) -> Array:
    """x [R, N] to each row's power; MuJoCo's own, 2, without the cost of a general one."""
    return jnp.square(x) if (power == 2).all() else x ** np.asarray(power, np.float32)[:, None]


def _chains(model: Any) -> np.ndarray:
    """[bodies, V]: which velocities move a body."""
    chains = np.zeros((model.nbody, model.nv), int)
    for body in range(1, model.nbody):
        chains[body] = chains[model.body_parentid[body]] | (model.dof_bodyid == body)
    return chains


def _frame_of(normal: Vec) -> tuple[Vec, Vec, Vec]:
    """The normal and two tangents, as MuJoCo chooses them."""
    upright = (normal.y > -0.5) & (normal.y < 0.5)
    zero, one = jnp.zeros_like(normal.x), jnp.ones_like(normal.x)
    guess = where(upright, Vec(zero, one, zero), Vec(zero, zero, one))
    tangent = guess - normal * normal.dot(guess)
    tangent = tangent * (1.0 / tangent.norm())
    return normal, tangent, normal.cross(tangent)
