"""MuJoCo's physics by MJX, with contacts and solver of our own: the same numbers as `mjx.step`, at its fraction.

MJX's own functions give the motion without constraints. Contacts (mjx_contacts), their rows (mjx_constraints)
and the solver (newton) follow its maths, and work on all environments at once with their axis last.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.physics.lanes import environments_last
from dcp.physics.mjx_constraints import Constraints, Motion
from dcp.types import Array

if TYPE_CHECKING:
    from brax.base import System, Transform


class MjxState(NamedTuple):
    """All that the next step needs, of the many fields of `mjx.Data`."""

    q: Array  # [Q]
    qd: Array  # [V]
    x: "Transform"  # link frames; after a step those of its last frame's start, as in Brax
    warm: Array  # [V]: the last acceleration, where the solver starts


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
        motion = Motion(d.qpos, d.qvel, d.geom_xpos, d.cdof, d.subtree_com[roots], mjx.full_m(m, d), force, state.warm)
        with jax.numpy_rank_promotion("raise"):
            acceleration = self._accelerate(motion)
        d = mjx.euler(m, d.replace(qacc=acceleration))
        return MjxState(d.qpos, d.qvel, x, acceleration)
