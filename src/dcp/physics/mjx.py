"""MuJoCo's physics by MJX, with contacts and solver of our own: the same numbers as `mjx.step`, at its fraction.

MJX's own functions give the motion without constraints. Contacts (mjx_contacts), their rows (here) and the solver
(newton) follow its maths, and work on all environments at once with their axis last.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from dcp.physics.mjx_contacts import Scene
from dcp.physics.newton import Dynamics, Rows, Settings, cholesky_solve, solve
from dcp.physics.vectors import Vec, where
from dcp.types import Array

if TYPE_CHECKING:
    from brax.base import System, Transform

_TINY, _LEAST, _MOST = 1e-15, 0.0001, 0.9999  # MuJoCo's mjMINVAL, mjMINIMP, mjMAXIMP


class MjxState(NamedTuple):
    """All that the next step needs, of the many fields of `mjx.Data`."""

    q: Array  # [Q]
    qd: Array  # [V]
    x: "Transform"  # link frames; after a step those of its last frame's start, as in Brax
    warm: Array  # [V]: the last acceleration, where the solver starts


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


def environments_last(function: Callable[[Any], Array]) -> Callable[[Any], Array]:
    """One instance of a function that is written for many, so that whoever vmaps it runs that very function."""

    @custom_vmap
    def one(inputs: Any) -> Array:
        return function(jax.tree.map(lambda a: a[..., None], inputs))[..., 0]

    @one.def_vmap
    def many(size: int, batched: Any, inputs: Any) -> tuple[Array, bool]:  # pyright: ignore[reportUnusedFunction]
        def last(a: Array, is_batched: bool) -> Array:
            return jnp.moveaxis(a, 0, -1) if is_batched else jnp.broadcast_to(a[..., None], (*a.shape, size))

        return jnp.moveaxis(function(jax.tree.map(last, inputs, batched[0])), -1, 0), True

    return one


class MjxEngine:
    """For models of spheres and sliding boxes among fixed boxes, pyramidal cones, Newton, Euler without damping."""

    def __init__(self, sys: "System", frames: int):
        from mujoco import mjx

        self.sys, self.frames = sys, frames
        model = sys.mj_model
        supported = (
            model.opt.cone == mjx.ConeType.PYRAMIDAL
            and model.opt.solver == mjx.SolverType.NEWTON
            and model.opt.integrator == mjx.IntegratorType.EULER
            and model.opt.disableflags == mjx.DisableBit.EULERDAMP
        )
        if not supported:
            raise ValueError("MjxEngine solves pyramidal cones by Newton and steps by Euler without its damping")
        self._constraints = Constraints(model)
        self._accelerate = environments_last(self._constraints.accelerate)

    def init(self, q: Array, qd: Array) -> MjxState:
        return self._frame(MjxState(q, qd, None, jnp.zeros_like(qd)), jnp.zeros(self.sys.nu), moves=False)  # pyright: ignore[reportArgumentType]

    def step(self, state: MjxState, control: Array) -> MjxState:
        def frame(state: MjxState, _: None) -> tuple[MjxState, None]:
            return self._frame(state, control), None

        return jax.lax.scan(frame, state, None, self.frames)[0]

    def _frame(self, state: MjxState, control: Array, moves: bool = True) -> MjxState:
        """`mjx.step`; or `mjx.forward`, which at a start only puts the links in place."""
        with jax.numpy_rank_promotion("allow"):  # MJX's own code promotes
            return self._frame_by_mjx(state, control, moves)

    def _frame_by_mjx(self, state: MjxState, control: Array, moves: bool) -> MjxState:
        from brax.base import Transform
        from mujoco import mjx

        m = self.sys
        d = mjx.make_data(m).replace(qpos=state.q, qvel=state.qd, ctrl=control)
        d = mjx.kinematics(m, d)
        x = Transform(pos=d.xpos[1:], rot=d.xquat[1:])
        if not moves:
            return MjxState(d.qpos, d.qvel, x, state.warm)
        for stage in (mjx.com_pos, mjx.crb, mjx.transmission, mjx.fwd_velocity, mjx.fwd_actuation):
            d = stage(m, d)
        roots = np.asarray(m.body_rootid)[np.asarray(m.dof_bodyid)]
        force = d.qfrc_passive - d.qfrc_bias + d.qfrc_actuator
        motion = Motion(
            d.qpos, d.qvel, d.geom_xpos, d.cdof, d.subtree_com[roots], mjx.full_m(m, d), force, state.warm
        )
        with jax.numpy_rank_promotion("raise"):
            acceleration = self._accelerate(motion)
        d = mjx.euler(m, d.replace(qacc=acceleration))
        return MjxState(d.qpos, d.qvel, x, acceleration)


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
        free = Dynamics(motion.mass, motion.force, cholesky_solve(motion.mass, motion.force))
        return solve(self.rows(motion), free, motion.warm, self.settings)

    def rows(self, motion: Motion) -> Rows:
        touch = self.scene.touch(motion.geoms)
        touching = touch.dist < 0.0  # [C, N]
        directions = self._directions(motion, touch.pos, touch.normal) * touching[None, :, None]
        limit, sign = self._limits(motion.q)
        dist = jnp.concatenate([jnp.tile(touch.dist, (4, 1)), limit])  # [R, N]
        rows = Rows(directions, self.friction, self.sides[..., 0] != 0, self.limit_dofs, sign, dist, dist)
        stiffness, damping, impedance = self._impedance(dist)
        inverse = np.asarray(self.stiffness, np.float32)[:, None]
        weight = 1.0 / jnp.maximum(inverse * (1.0 - impedance) / impedance, _TINY)
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
        low, high = np.float32(self.model.jnt_range[self.limited].T[..., None])
        margin = np.float32(self.model.jnt_margin[self.limited, None])
        to_low, to_high = at - low, high - at
        distance = jnp.minimum(to_low, to_high) - margin
        sign = jnp.where(to_low < to_high, 1.0, -1.0)
        return distance, jnp.where(distance < 0.0, sign, 0.0)

    def _impedance(self, dist: Array) -> tuple[np.ndarray, np.ndarray, Array]:
        """MuJoCo's stiffness and damping [R, 1] and impedance [R, N] of each row."""
        time, ratio = self.solref.T
        least, most, width, middle, power = self.solimp.T
        least, most, middle = (np.clip(x, _LEAST, _MOST) for x in (least, most, middle))
        time, width, power = np.maximum(time, 2 * self.model.opt.timestep), np.maximum(width, _TINY), np.maximum(power, 1)
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
