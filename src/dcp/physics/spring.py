"""Brax's spring pipeline, number for number, with environments innermost and contacts found on the maze's grid.

Brax starts a state and reads joint coordinates from it; the frames between are ours, because vmapped as Brax writes
them they leave a CPU three numbers at a time. Left out is what changes nothing: walls far away (a contact that does not
penetrate has no impulse) and joint coordinates between the frames of one step (nothing reads them there).
`brax.spring.pipeline` and this agree frame by frame: see tests/physics/test_spring.py.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from brax import actuator, com, kinematics
from brax.base import Motion, Transform
from brax.spring import pipeline

from dcp.physics.buffers import once
from dcp.physics.contacts import ContactFinder
from dcp.physics.impulses import Bodies, mean_impulses
from dcp.physics.joints import JointState, Pull
from dcp.physics.lanes import environments_last
from dcp.physics.spring_model import SpringModel, spring_model
from dcp.physics.vectors import Quat, Vec, concatenate, constant, constant_quat, quat, rotate, vec
from dcp.types import Array

if TYPE_CHECKING:
    from brax.base import System


class SpringState(NamedTuple):
    """What the next step needs (links' centres of mass) and what a task reads."""

    q: Array  # [Q]
    qd: Array  # [V]
    x: Transform  # pos [L, 3], rot [L, 4]
    xd: Motion  # vel [L, 3], ang [L, 3]
    x_i: Transform  # the same at the links' centres of mass
    xd_i: Motion


class Links(NamedTuple):
    """Links of N environments at their centres of mass, [L, N] each. All that a frame hands to the next."""

    pos: Vec
    rot: Quat
    vel: Vec
    ang: Vec


@dataclass(frozen=True)
class SpringEngine:
    sys: "System"
    frames: int
    contacts: ContactFinder

    def __post_init__(self) -> None:
        _ = self.model

    @cached_property
    def model(self) -> SpringModel:
        return spring_model(self.sys)

    def init(self, q: Array, qd: Array) -> SpringState:
        state = pipeline.init(self.sys, q, qd)
        return SpringState(state.q, state.qd, state.x, state.xd, state.x_i, state.xd_i)

    def step(self, state: SpringState, control: Array) -> SpringState:
        tau = actuator.to_tau(self.sys, control, state.q, state.qd)
        links = jnp.concatenate([state.x_i.pos, state.x_i.rot, state.xd_i.vel, state.xd_i.ang], axis=1)  # [L, 13]
        links = environments_last(self._frames)(links.T, tau).T
        x_i, xd_i = Transform(links[:, :3], links[:, 3:7]), Motion(vel=links[:, 7:10], ang=links[:, 10:])
        x, xd = com.to_world(self.sys, x_i, xd_i)
        j, jd, _, _ = kinematics.world_to_joint(self.sys, x, xd)
        q, qd = kinematics.inverse(self.sys, j, jd)
        return SpringState(q, qd, x, xd, x_i, xd_i)

    def _frames(self, packed: Array, tau: Array) -> Array:
        """[13, L, N], [V, N] -> [13, L, N]: one environment step"""

        def frame(packed: Array, _: None) -> tuple[Array, None]:
            links = Links(vec(packed), quat(packed[3:]), vec(packed[7:]), vec(packed[10:]))
            return jnp.stack(jax.tree.leaves(self._frame(links, tau))), None

        return jax.lax.scan(frame, packed, None, self.frames)[0]

    def _frame(self, links: Links, tau: Array) -> Links:
        origin, velocity = once(self._origins(links))
        force = self._joint_forces(links, origin, velocity, tau)
        dt, mass = self.model.timestep, self.model.mass
        falls = zip(links.vel, force.vel, self.model.gravity, strict=True)
        vel = Vec(*(v + (f / mass + g) * dt for v, f, g in falls))
        vel, ang = once((vel, links.ang + force.ang * dt))

        frames = jnp.stack([*origin, links.rot.w, *links.rot.u])  # [7, L, N]
        bodies = Bodies(links.pos, vel, ang, self.model.contact_inertia, 1.0 / mass)
        impulse = mean_impulses(self.contacts(frames), bodies, self.model.erp_rate)
        return self._integrate(links, vel, ang, impulse)

    def _integrate(self, links: Links, vel: Vec, ang: Vec, impulse: Pull) -> Links:
        """Semi-implicit Euler; damping before the impulses, as Brax has it."""
        dt = self.model.timestep
        vel = vel * self.model.keep_vel + impulse.vel * (1.0 / self.model.mass)
        ang = ang * self.model.keep_ang + impulse.ang
        vel, ang = once((vel, ang))
        turn = Quat(jnp.zeros_like(ang.x), ang * (0.5 * dt)).times(links.rot)
        w, u = links.rot.w + turn.w, links.rot.u + turn.u
        scale = 1.0 / jnp.sqrt(w * w + u.dot(u))
        return Links(links.pos + vel * dt, Quat(w * scale, u * scale), vel, ang)

    def _origins(self, links: Links) -> tuple[Vec, Vec]:
        """Position and velocity of the links' own frames."""
        lever = rotate(constant(-self.model.centre), links.rot)
        return links.pos + lever, links.vel - lever.cross(links.ang)

    def _joint_forces(self, links: Links, origin: Vec, velocity: Vec, tau: Array) -> Pull:
        """On each link's centre of mass [L, N]: from its own joint, and from its children's."""
        rows = self.model.jointed  # [J]
        parent = self.model.parents[rows]
        world_rot = Quat(jnp.ones_like(links.rot.w[:1]), Vec(*[jnp.zeros_like(links.rot.w[:1])] * 3))
        nothing = Vec(*[jnp.zeros_like(links.rot.w[:1])] * 3)

        def of_parent(v: Vec) -> Vec:
            return Vec(*(jnp.concatenate([c, z])[parent] for c, z in zip(v, nothing, strict=True)))

        parent_rot = Quat(
            jnp.concatenate([links.rot.w, world_rot.w])[parent],
            Vec(*(jnp.concatenate([c, z])[parent] for c, z in zip(links.rot.u, world_rot.u, strict=True))),
        )
        parent_pos, parent_vel, parent_ang = of_parent(origin), of_parent(velocity), of_parent(links.ang)
        rot, ang = Quat(links.rot.w[rows], _rows(links.rot.u, rows)), _rows(links.ang, rows)

        to_anchor = rotate(constant(self.model.anchor[rows]), parent_rot)
        anchor = parent_pos + to_anchor
        anchor_rot = parent_rot.times(constant_quat(self.model.anchor_rot[rows]))
        child = _rows(origin, rows) + rotate(constant(self.model.joint[rows]), rot)
        anchor, anchor_rot, child, to_anchor = once((anchor, anchor_rot, child, to_anchor))
        back = anchor_rot.inverse()
        joint = once(
            JointState(
                pos=rotate(child - anchor, back),
                rot=back.times(rot),
                vel=rotate(_rows(velocity, rows) - (parent_vel + to_anchor.cross(parent_ang)), back),
                ang=rotate(ang - parent_ang, back),
            )
        )
        pull = once(self._pulls(joint, tau))
        vel, turn = once((rotate(pull.vel, anchor_rot), rotate(pull.ang, anchor_rot)))
        own = turn + (child - _rows(links.pos, rows)).cross(vel)
        parent_centre = of_parent(links.pos)
        reaction = turn + (anchor - parent_centre).cross(vel)
        forces = once(Pull(Vec(*vel), own)), once(Pull(Vec(*vel), reaction))
        return self._summed(*forces, rows, parent)

    def _pulls(self, joint: JointState, tau: Array) -> Pull:
        parts, start = [], 0
        for group in self.model.groups:
            end = start + len(group.links)
            parts.append(group.pull(jax.tree.map(lambda leaf, a=start, b=end: leaf[a:b], joint), tau))
            start = end
        return Pull(concatenate([p.vel for p in parts]), concatenate([p.ang for p in parts]))

    def _summed(self, own: Pull, reaction: Pull, rows: np.ndarray, parent: np.ndarray) -> Pull:
        size = len(self.model.parents)
        adds = np.eye(size, dtype=np.float32)[rows].T  # [L, J]
        takes = np.concatenate([np.eye(size, dtype=np.float32), np.zeros((1, size), np.float32)])[parent].T
        member = np.concatenate([adds, -takes], axis=1)  # [L, 2J]
        stacked = jnp.concatenate([jnp.stack(jax.tree.leaves(pull), axis=1) for pull in (own, reaction)])  # [2J, 6, N]
        total = (member @ stacked.reshape(stacked.shape[0], -1)).reshape(size, *stacked.shape[1:])  # [L, 6, N]
        return Pull(Vec(*(total[:, i] for i in range(3))), Vec(*(total[:, i] for i in range(3, 6))))


def _rows(v: Vec, rows: np.ndarray) -> Vec:
    return Vec(*(c[rows] for c in v))
