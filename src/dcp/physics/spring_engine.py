"""Brax's spring pipeline, number for number, with environments innermost and contacts found on the maze's grid.

Brax initialises a state and computes joint coordinates from it. The frames in between are ours, because under a vmap of
Brax's code a CPU vectorises over only three numbers. We leave out what has no effect: distant walls (a contact that
does not penetrate has no impulse) and joint coordinates between the frames of one step (nothing reads them).
`brax.spring.pipeline` and this agree frame by frame: see tests/physics/test_spring_engine.py.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.physics.contacts import ContactFinder, Contacts
from dcp.physics.kinematics import FREE, Group, Motion, System, Transform, compose, joint_frame
from dcp.physics.vectors import (
    Quat,
    Vec,
    compute_once,
    concatenate,
    constant,
    constant_quat,
    environments_last,
    quat,
    rotate,
    take_rows,
    vec,
    where,
)
from dcp.types import Array, MazeLayout


def spring_engine(
    spec: mujoco.MjSpec, timestep: float, frames: int, layout: MazeLayout | None = None
) -> "SpringEngine":
    """Build the engine of a task's model; `layout` says where its walls are."""
    sys = System(spec.compile(), timestep)
    return SpringEngine(sys, frames, ContactFinder(sys.model, layout))


class JointState(NamedTuple):
    """The child's joint frame as the parent's sees it, [G, N] each."""

    pos: Vec
    rot: Quat
    vel: Vec
    ang: Vec


class Wrench(NamedTuple):
    """A force and a torque, or the impulses of both."""

    force: Vec
    torque: Vec


class SpringState(NamedTuple):
    """Hold what the next step needs (links' centres of mass) and what a task reads."""

    q: Array  # [Q]
    qd: Array  # [V]
    x: Transform  # pos [L, 3], rot [L, 4]
    xd: Motion  # vel [L, 3], ang [L, 3]
    x_i: Transform  # the same at the links' centres of mass
    xd_i: Motion


class Links(NamedTuple):
    """Links of N environments at their centres of mass, [L, N] each. This is all that one frame passes to the next."""

    pos: Vec
    rot: Quat
    vel: Vec
    ang: Vec


class SpringEngine:
    """Step any model of motors, hinges and pairs of slides. Other models are refused when the engine is built."""

    def __init__(self, sys: System, frames: int, contacts: ContactFinder):
        model, numbers = sys.model, sys.numbers
        if model.opt.viscosity or model.opt.density or numbers.get("spring_inertia_scale") != 1.0:
            raise ValueError("the spring engine has no fluid, and every link's inertia of rotation is 1")
        if model.actuator_biastype.any() or (model.actuator_gainprm[:, 0] != 1.0).any():
            raise ValueError("the spring engine takes motors only: others read joint coordinates at every frame")
        self.sys, self.frames, self.contacts = sys, frames, contacts
        size, dt = sys.num_links, sys.timestep
        self.timestep, self.gravity = dt, model.opt.gravity.astype(np.float32)  # [3]
        # Shares of the velocities that damping leaves after a frame.
        self.keep_vel, self.keep_ang = (
            float(np.exp(np.float32(numbers[name]) * np.float32(dt))) for name in ("vel_damping", "ang_damping")
        )
        # Share of a penetration that a contact takes back in a second.
        self.erp_rate = float(np.float32(numbers["baumgarte_erp"])) / dt
        mass = model.body_mass[1:].astype(np.float32) ** (1.0 - numbers["spring_mass_scale"])
        self.mass = mass[:, None].astype(np.float32)  # [L, 1]
        # Brax's contact solver reads a single number of inverse inertia for a link: entry `link` of all inverse
        # matrices laid end to end, here unit matrices. Surely an oversight, but it is the paper's physics.
        self.contact_inertia = np.tile(np.eye(3, dtype=np.float32).ravel(), size)[:size, None]  # [L, 1]
        self.centre, self.joint = np.asarray(sys.centre), np.asarray(sys.joint)  # [L, 3]: in the link's frame
        anchor = compose(sys.place, Transform(sys.joint, jnp.tile(jnp.array([1.0, 0.0, 0.0, 0.0]), (size, 1))))
        self.anchor, self.anchor_rot = np.asarray(anchor.pos), np.asarray(anchor.rot)  # [L, 3], [L, 4]: in the parent's
        self.parents = sys.parents
        kinds = [group.only(slides) for group in sys.groups for slides in (False, True) if group.speeds != FREE]
        kinds = sorted((group for group in kinds if len(group.links)), key=lambda group: group.links[0])
        self.groups = [Joints(sys, group) for group in kinds]
        self.jointed = np.concatenate([group.links for group in self.groups])  # [J]: the links that have a joint

    def init(self, q: Array, qd: Array) -> SpringState:
        x, xd = self.sys.world(q, qd)
        return SpringState(q, qd, x, xd, *self.sys.to_centres(x, xd))

    def step(self, state: SpringState, control: Array) -> SpringState:
        tau = self.sys.torques(control)
        links = jnp.concatenate([state.x_i.pos, state.x_i.rot, state.xd_i.vel, state.xd_i.ang], axis=1)  # [L, 13]
        links = environments_last(self._frames)(links.T, tau).T
        x_i, xd_i = Transform(links[:, :3], links[:, 3:7]), Motion(vel=links[:, 7:10], ang=links[:, 10:])
        x, xd = self.sys.to_origins(x_i, xd_i)
        return SpringState(*self.sys.coordinates(x, xd), x, xd, x_i, xd_i)

    def _frames(self, packed: Array, tau: Array) -> Array:
        """Take one environment step: [13, L, N], [V, N] -> [13, L, N]."""

        def frame(packed: Array, _: None) -> tuple[Array, None]:
            links = Links(vec(packed), quat(packed[3:]), vec(packed[7:]), vec(packed[10:]))
            return jnp.stack(jax.tree.leaves(self._frame(links, tau))), None

        return jax.lax.scan(frame, packed, None, self.frames)[0]

    def _frame(self, links: Links, tau: Array) -> Links:
        origin, velocity = compute_once(self._origins(links))
        wrench = self._joint_wrenches(links, origin, velocity, tau)
        dt, mass = self.timestep, self.mass
        falls = zip(links.vel, wrench.force, self.gravity, strict=True)
        vel = Vec(*(v + (f / mass + g) * dt for v, f, g in falls))
        vel, ang = compute_once((vel, links.ang + wrench.torque * dt))

        frames = jnp.stack([*origin, links.rot.w, *links.rot.u])  # [7, L, N]
        bodies = Bodies(links.pos, vel, ang, self.contact_inertia, 1.0 / mass)
        impulse = mean_impulses(self.contacts(frames), bodies, self.erp_rate)
        return self._integrate(links, vel, ang, impulse)

    def _integrate(self, links: Links, vel: Vec, ang: Vec, impulse: Wrench) -> Links:
        """Integrate by semi-implicit Euler; damping comes before the impulses, as in Brax."""
        dt = self.timestep
        vel = vel * self.keep_vel + impulse.force * (1.0 / self.mass)
        ang = ang * self.keep_ang + impulse.torque
        vel, ang = compute_once((vel, ang))
        turn = Quat(jnp.zeros_like(ang.x), ang * (0.5 * dt)).times(links.rot)
        w, u = links.rot.w + turn.w, links.rot.u + turn.u
        scale = 1.0 / jnp.sqrt(w * w + u.dot(u))
        return Links(links.pos + vel * dt, Quat(w * scale, u * scale), vel, ang)

    def _origins(self, links: Links) -> tuple[Vec, Vec]:
        """Return position and velocity of the links' own frames."""
        lever = rotate(constant(-self.centre), links.rot)
        return links.pos + lever, links.vel - lever.cross(links.ang)

    def _joint_wrenches(self, links: Links, origin: Vec, velocity: Vec, tau: Array) -> Wrench:
        """Return what acts on each link's centre of mass [L, N]: from its own joint, and from its children's."""
        rows = self.jointed  # [J]
        parent = self.parents[rows]  # the last row stands for the world

        def of_parent(v: Vec) -> Vec:
            return Vec(*(jnp.concatenate([c, jnp.zeros_like(c[:1])])[parent] for c in v))

        w = links.rot.w
        parent_rot = Quat(jnp.concatenate([w, jnp.ones_like(w[:1])])[parent], of_parent(links.rot.u))
        parent_pos, parent_vel, parent_ang = of_parent(origin), of_parent(velocity), of_parent(links.ang)
        rot, ang = Quat(w[rows], links.rot.u.rows(rows)), links.ang.rows(rows)

        to_anchor = rotate(constant(self.anchor[rows]), parent_rot)
        anchor = parent_pos + to_anchor
        anchor_rot = parent_rot.times(constant_quat(self.anchor_rot[rows]))
        child = origin.rows(rows) + rotate(constant(self.joint[rows]), rot)
        anchor, anchor_rot, child, to_anchor = compute_once((anchor, anchor_rot, child, to_anchor))
        back = anchor_rot.inverse()
        joint = compute_once(
            JointState(
                pos=rotate(child - anchor, back),
                rot=back.times(rot),
                vel=rotate(velocity.rows(rows) - (parent_vel + to_anchor.cross(parent_ang)), back),
                ang=rotate(ang - parent_ang, back),
            )
        )
        wrench = compute_once(self._group_wrenches(joint, tau))
        force, torque = compute_once((rotate(wrench.force, anchor_rot), rotate(wrench.torque, anchor_rot)))
        own = torque + (child - links.pos.rows(rows)).cross(force)
        reaction = torque + (anchor - of_parent(links.pos)).cross(force)
        return self._summed(compute_once(Wrench(force, own)), compute_once(Wrench(force, reaction)), rows, parent)

    def _group_wrenches(self, joint: JointState, tau: Array) -> Wrench:
        parts, start = [], 0
        for group in self.groups:
            end = start + len(group.links)
            parts.append(group.wrench(jax.tree.map(lambda leaf, a=start, b=end: leaf[a:b], joint), tau))
            start = end
        return Wrench(concatenate([p.force for p in parts]), concatenate([p.torque for p in parts]))

    def _summed(self, own: Wrench, reaction: Wrench, rows: np.ndarray, parent: np.ndarray) -> Wrench:
        size = len(self.parents)
        adds = np.eye(size, dtype=np.float32)[rows].T  # [L, J]
        takes = np.concatenate([np.eye(size, dtype=np.float32), np.zeros((1, size), np.float32)])[parent].T
        member = np.concatenate([adds, -takes], axis=1)  # [L, 2J]
        stacked = jnp.concatenate([jnp.stack(jax.tree.leaves(side), axis=1) for side in (own, reaction)])  # [2J, 6, N]
        total = (member @ stacked.reshape(stacked.shape[0], -1)).reshape(size, *stacked.shape[1:])  # [L, 6, N]
        return Wrench(Vec(*(total[:, i] for i in range(3))), Vec(*(total[:, i] for i in range(3, 6))))


# What contacts do to links: Brax's spring contact solver, for contacts [K, N].


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
        centre, vel, ang = take_rows((bodies.pos, bodies.vel, bodies.ang), links)
        arm = pos - centre
        velocity = vel + ang.cross(arm)
        self.arm, self.velocity = compute_once((arm, velocity))
        self.inverse_inertia, self.inverse_mass = bodies.inverse_inertia[links], bodies.inverse_mass[links]

    def resistance(self, direction: Vec) -> Array:
        """Return how much a unit impulse at the contact speeds it up by turning the body."""
        turn = self.arm.cross(direction) * self.inverse_inertia
        return direction.dot(turn.cross(self.arm))


def mean_impulses(groups: list[Contacts], bodies: Bodies, erp: float) -> Wrench:
    """Return for each link [L, N] the mean impulse over the contacts that act on it."""
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
    return Wrench(Vec(*mean[:3]), Vec(*mean[3:]))


def _impulses(contacts: Contacts, bodies: Bodies, erp: float) -> list[tuple[np.ndarray, Array]]:
    """Return for each side its links [K], and impulse, angular impulse and whether the contact acts [K, 7, N]."""
    dist, pos, normal = contacts.touch
    n = -normal  # the direction in which the first body is pushed
    sides = [_Side(bodies, links, pos) for links in (contacts.first, contacts.second) if links is not None]
    velocity = sides[0].velocity if len(sides) == 1 else sides[0].velocity - sides[1].velocity
    mass = sum(side.inverse_mass for side in sides)

    approach = n.dot(velocity)
    resistance = sum(side.resistance(n) for side in sides)
    # Nothing bounces. The factor is an array, as in Brax with its elasticities, because XLA rounds differently without.
    bounce = np.full_like(contacts.friction, -1.0)  # [K, 1]
    impulse = (bounce * approach - erp * dist) / (mass + resistance)
    acts = (dist < 0.0) & (approach < 0.0) & (impulse > 0.0)
    approach, impulse, acts = compute_once((approach, impulse, acts))

    # Friction acts against the motion along the surface, and never reverses it.
    sliding = velocity - n * approach
    speed = sliding.norm()
    along, speed = compute_once((sliding * (1.0 / (1e-6 + speed)), speed))
    drag = speed / (mass + sum(side.resistance(along) for side in sides))
    drag = jnp.where(speed > 1e-3, jnp.minimum(drag, contacts.friction * impulse), 0.0)
    p = compute_once((n * impulse - along * drag) * acts)

    parts = []
    for side, sign in zip(sides, (1.0, -1.0), strict=False):
        numbers = [*(p * sign), *(side.arm.cross(p) * sign), acts.astype(p.x.dtype)]
        parts.append((side.links, jnp.stack(numbers, axis=1)))
    return parts


# The forces that hold the joints together: a joint is a spring between the frame fixed to the parent and the one fixed
# to the child; motors and limits act along its axes. Everything is in the parent's joint frame, for links [G, N].


class Angles(NamedTuple):
    """Intrinsic Euler angles between the two frames, and the axes that they turn about."""

    axes: tuple[Vec, Vec, Vec]
    psi: Array
    theta: Array
    phi: Array


class Joints:
    """Hold links of one kind: with the same number of hinges, or with two slides. Free links have no joint forces."""

    def __init__(self, sys: System, group: Group):
        self.links, self.slides = group.links, bool(group.slides[0])
        if self.slides and group.speeds != 2:
            raise ValueError(f"links {group.links}: the spring engine takes hinges, or two slides")
        self.dof = dof = group.qd.T  # [dofs, G]: where each axis is in tau
        axes = jax.tree.map(lambda axis: axis[group.qd], sys.axes)
        # [dofs, G, 3]: hinges' or slides' axes
        self.axes = np.asarray(axes.vel if self.slides else axes.ang).transpose(1, 0, 2)
        frame, parity = jax.vmap(joint_frame)(axes)
        self.frame = np.asarray(frame).transpose(1, 0, 2)  # [3, G, 3]
        self.parity = np.asarray(parity, np.float32)  # [G]: of three hinges
        self.limits = sys.limits()[:, dof]  # [2, dofs, G]
        self.stiffness, self.vel_damping, self.ang_damping, self.limit_stiffness = (
            np.full((len(group.links), 1), sys.numbers[f"constraint_{name}"], np.float32)  # [G, 1]
            for name in ("stiffness", "vel_damping", "ang_damping", "limit_stiffness")
        )

    def wrench(self, joint: JointState, tau: Array) -> Wrench:
        """Return what the joints do to their links; tau [V, N]."""
        force = -(joint.pos * self.stiffness) - joint.vel * self.vel_damping
        torque = -(joint.ang * self.ang_damping)
        motors = [tau[self.dof[k]] for k in range(len(self.axes))]  # [G, N] each
        if self.slides:
            return self._sliding(joint, force, torque, motors)
        angles = euler_angles(joint.rot, [constant(axis) for axis in self.frame], self.parity[:, None])
        return Wrench(force, torque + self._turning(angles, motors))

    def _turning(self, angles: Angles, motors: list[Array]) -> Vec:
        first = constant(self.frame[0])
        axes = [first, angles.axes[1], angles.axes[2]][: len(motors)]
        turn = _combined(axes, motors)
        values = [angles.psi, angles.theta, angles.phi][: len(motors)]
        over = [self._beyond(k, value) for k, value in enumerate(values)]
        turn = turn - _combined(axes, over) * self.limit_stiffness
        if len(motors) == 1:  # the hinge's axis stays on the parent's
            return turn - first.cross(angles.axes[0]) * self.stiffness
        if len(motors) == 2:  # the second axis stays at a right angle to the first
            second = angles.axes[1]
            upright = second - first * second.dot(first)
            length = upright.norm()
            upright = upright * (1.0 / length)
            return turn - upright.cross(second) * self.limit_stiffness
        return turn

    def _sliding(self, joint: JointState, force: Vec, torque: Vec, motors: list[Array]) -> Wrench:
        """Return force and torque of two slides, which move freely along their axes and do not turn."""
        axes = [constant(axis) for axis in self.axes]
        force = force - _combined(axes, [axis.dot(force) for axis in axes])
        over = [self._beyond(k, axis.dot(joint.pos)) for k, axis in enumerate(axes)]
        force = force + _combined(axes, motors) - _combined(axes, over) * self.limit_stiffness
        y, z = constant(self.frame[1]), constant(self.frame[2])
        torque = torque - y.cross(rotate(y, joint.rot)) * self.limit_stiffness
        torque = torque - z.cross(rotate(z, joint.rot)) * self.stiffness
        return Wrench(force, torque)

    def _beyond(self, axis: int, value: Array) -> Array:
        """Return how far a coordinate is outside its limits."""
        low, high = self.limits[0, axis][:, None], self.limits[1, axis][:, None]
        return value - jnp.clip(value, low, high)


def euler_angles(rot: Quat, frame: list[Vec], parity: np.ndarray) -> Angles:
    """Return the x-y'-z'' angles of the child's frame in the parent's, by the line of nodes."""
    first, second = frame[0], frame[1]
    c0, c1, c2 = compute_once([rotate(axis, rot) for axis in frame])
    nodes = _unit(c2.cross(first))
    psi = _signed_angle(first, second, nodes)
    shadow = _unit(c0 * first.dot(c0) + c1 * first.dot(c1))
    theta = jnp.arccos(jnp.clip(shadow.dot(first), -1.0, 1.0)) * jnp.sign(first.dot(c2))
    third = c2 * parity
    phi = _signed_angle(-third, c1, nodes)
    return Angles((c0, c1, third), psi, theta, phi)


def _unit(v: Vec) -> Vec:
    length = v.norm()
    return where(length == 0.0, v, v * (1.0 / jnp.where(length == 0.0, 1.0, length)))


def _signed_angle(axis: Vec, reference: Vec, other: Vec) -> Array:
    return jnp.arctan2(reference.cross(other).dot(axis), reference.dot(other))


def _combined(axes: list[Vec], weights: list[Array]) -> Vec:
    total = axes[0] * weights[0]
    for axis, weight in zip(axes[1:], weights[1:], strict=True):
        total = total + axis * weight
    return total
