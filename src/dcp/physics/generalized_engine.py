"""Brax's generalized pipeline for an arm that pushes a body on a table: the same numbers, without the waste.

Brax spends nearly all of its time in the constraint solver, on rows that are zero (limits and contacts that are not
violated) and on iterations after convergence. Here only environments with a violated constraint enter the solver, in
groups, and environments are the last axis, over which a CPU vectorises.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.physics import arm as arms
from dcp.physics.arm import Arm
from dcp.physics.arm_constraints import ConstraintInputs, Constraints, Gripper
from dcp.physics.kinematics import System, Transform
from dcp.physics.vectors import Vec, column, environments_last
from dcp.types import Array


class GeneralizedState(NamedTuple):
    """Hold what the next step needs (q, qd) and what a task reads."""

    q: Array  # [Q]
    qd: Array  # [Q]
    x: Transform  # pos [L, 3], rot [L, 4]: links in the world


class GeneralizedEngine:
    """Step a chain of hinges and bodies that slide in the world. Other models are refused when the engine is built."""

    def __init__(self, sys: System, frames: int, group: int = 128):
        """`group`: environments that are solved together."""
        self.sys, self.frames, self.group, model = sys, frames, group, sys.model
        self.timestep = sys.timestep
        self._dof_link = model.dof_bodyid - 1  # [V]
        self.arm = Arm(sys, int(min(each.links[each.slides].min() for each in sys.groups if each.slides.any())))
        hinges = self.arm.hinges
        if model.opt.viscosity or model.opt.density or model.jnt_stiffness.any():
            raise ValueError("the generalized engine has no fluid and no springs")
        ang, vel = (np.asarray(part)[hinges:] for part in sys.axes)
        free = (sys.parents[hinges:] == -1).all() and not model.opt.gravity.any()
        if ang.any() or (np.abs(vel).sum(1) != 1.0).any() or not free:
            raise ValueError("bodies other than the arm must slide in the world along x, y or z, without gravity")
        self.gripper = Gripper(model, hinges)
        mass, armature = model.body_mass.astype(np.float32)[model.dof_bodyid], model.dof_armature.astype(np.float32)
        self._slide_mass = (mass + armature)[hinges:]
        self._damping = column(model.dof_damping)
        pushed = np.flatnonzero(self._dof_link == self.gripper.body.link[0])
        self.constraints = Constraints(sys, self.gripper, hinges, pushed, self._slide_mass)

    def init(self, q: Array, qd: Array) -> GeneralizedState:
        return GeneralizedState(q, qd, Transform(*environments_last(self._links)(q)))

    def step(self, state: GeneralizedState, control: Array) -> GeneralizedState:
        tau = self.sys.torques(control)
        q, qd, *x = environments_last(self._frames)(state.q, state.qd, tau)
        return GeneralizedState(q, qd, Transform(*x))

    # Below, arrays have environments last.

    def _frames(self, q: Array, qd: Array, tau: Array) -> tuple[Array, ...]:
        def frame(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
            return self._frame(*state, tau)

        q, qd = jax.lax.fori_loop(0, self.frames, frame, (q, qd))
        return q, qd, *self._links(q)

    def _frame(self, q: Array, qd: Array, tau: Array) -> tuple[Array, Array]:
        at, hinges = self._constraint_inputs(q, qd, tau), self.arm.hinges
        force = tau - self._damping * qd
        force = force.at[self.constraints.joints].set(at.force + self._constrain(at))
        arm_qdd = jnp.sum(at.inverse * force[None, :hinges], axis=1)
        qdd = jnp.concatenate([arm_qdd, force[hinges:] / column(self._slide_mass)])
        qd = qd + qdd * self.timestep
        return q + qd * self.timestep, qd

    def _constraint_inputs(self, q: Array, qd: Array, tau: Array) -> ConstraintInputs:
        arm, hinges, mine = self.arm, self.arm.hinges, self.constraints.joints
        pose = arms.pose(arm, q[:hinges])
        matrix, bias = arms.dynamics(arm, pose, qd[:hinges])
        force = tau - self._damping * qd
        force = force.at[:hinges].add(-bias)
        return ConstraintInputs(
            origin=pose.origin,
            hinge=jnp.stack(pose.hinge(arm), axis=1),
            contacts=self.gripper.touch(pose, self._slid(q, self.gripper.body.link[0])),
            inverse=arms.inverse(matrix),
            q=q[mine],
            qd=qd[mine],
            force=force[mine],
        )

    def _constrain(self, at: ConstraintInputs) -> Array:
        """Solve the constraints' forces [D, N].

        On a CPU the environments with violated constraints are solved, a group at a time, until each has converged.
        Elsewhere all are solved at once in a fixed number of rounds: with a loop whose length depends on the data, the
        host would wait for the device in each round.
        """
        return jax.lax.platform_dependent(at, cpu=self._constrain_in_groups, default=self.constraints.forces_of_all)

    def _constrain_in_groups(self, at: ConstraintInputs) -> Array:
        total = at.q.shape[-1]
        if total <= self.group:
            return self.constraints.forces(at)
        violated = self.constraints.violated(at.q, at.contacts.dist)
        order = jnp.argsort(~violated)
        groups = (jnp.sum(violated) + self.group - 1) // self.group

        def solve(i: Array, forces: Array) -> Array:
            members = jax.lax.dynamic_slice(order, (i * self.group,), (self.group,))
            group = jax.tree.map(lambda a: jnp.take(a, members, axis=-1), at)
            return forces.at[:, members].set(self.constraints.forces(group))

        return jax.lax.fori_loop(0, groups, solve, jnp.zeros_like(at.q))

    def _slid(self, q: Array, link: int) -> Vec:
        """Return a sliding body's origin, [1, N] each."""
        dofs = np.asarray([i for i, of in enumerate(self._dof_link) if of == link])
        axes = np.asarray(self.sys.axes.vel)[dofs]  # [S, 3]
        offset = np.asarray(self.sys.place.pos)[link]
        return Vec(*(jnp.sum(column(axes[:, i]) * q[dofs], 0, keepdims=True) + float(offset[i]) for i in range(3)))

    def _links(self, q: Array) -> tuple[Array, Array]:
        """Return positions [L, 3, N] and rotations [L, 4, N] of the links."""
        hinges = self.arm.hinges
        pose = arms.pose(self.arm, q[:hinges])
        sliding = [jnp.concatenate(self._slid(q, link)) for link in range(hinges, self.sys.num_links)]
        rot = arms.rotations(self.arm, q[:hinges])
        still = jnp.broadcast_to(column(np.eye(4)[0])[None], (len(sliding), 4, q.shape[-1]))
        pos = jnp.concatenate([pose.origin, jnp.stack(sliding)])
        return pos, jnp.concatenate([rot, still])
