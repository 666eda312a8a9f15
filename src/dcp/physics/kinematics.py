"""Links in the world: from joint coordinates to frames and velocities, and back. The paper's conventions are Brax's.

Everything is for one instance; engines vmap it. The order of sums is Brax's too: a run's bits depend on it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.types import Array

IDENTITY = np.array([1.0, 0.0, 0.0, 0.0], np.float32)
FREE = 6  # speeds of a link without a joint; others have one per hinge or slide
# What a model's custom numbers say besides MuJoCo's fields, and what holds if it does not.
NUMBERS = {"ang_damping": 0.0, "vel_damping": 0.0, "baumgarte_erp": 0.1, "spring_mass_scale": 0.0}


class Transform(NamedTuple):
    """Place and turn of frames."""

    pos: Array  # [..., 3]
    rot: Array  # [..., 4]: quaternions


class Motion(NamedTuple):
    ang: Array  # [..., 3]
    vel: Array  # [..., 3]


# Of one vector and one quaternion each; `many_` are the same for [L, 3] and [L, 4].


def rotate(v: Array, rot: Array) -> Array:
    w, u = rot[0], rot[1:]
    return 2 * (jnp.dot(u, v) * u) + (w * w - jnp.dot(u, u)) * v + 2 * w * jnp.cross(u, v)


def rotate_back(v: Array, rot: Array) -> Array:
    return rotate(v, inverse(rot))


def inverse(rot: Array) -> Array:
    return rot * jnp.array([1, -1, -1, -1])


def multiply(a: Array, b: Array) -> Array:
    return jnp.array(
        [
            a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
            a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
            a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
            a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
        ]
    )


def unit(v: Array) -> Array:
    """Scale to length one; what is nearly zero stays so."""
    nothing = jnp.allclose(v, 0.0)
    length = jnp.linalg.norm(v + nothing * 1.0) * (1.0 - nothing)
    return v / (length + 1e-6 * (length == 0.0))


def matrix(rot: Array) -> Array:
    """Return a quaternion's rotation matrix: [3, 3]."""
    w, x, y, z = rot
    s = 2 / jnp.dot(rot, rot)
    xs, ys, zs = x * s, y * s, z * s
    wx, wy, wz = w * xs, w * ys, w * zs
    xx, xy, xz = x * xs, x * ys, x * zs
    yy, yz, zz = y * ys, y * zs, z * zs
    rows = [1 - (yy + zz), xy - wz, xz + wy], [xy + wz, 1 - (xx + zz), yz - wx], [xz - wy, yz + wx, 1 - (xx + yy)]
    return jnp.array([jnp.array(row) for row in rows])


many_rotate, many_rotate_back, many_units = jax.vmap(rotate), jax.vmap(rotate_back), jax.vmap(unit)
many_cross = jax.vmap(jnp.cross)


def compose(outer: Transform, inner: Transform) -> Transform:
    """Return frames given in those of `outer` as the latter's own are given: [L] each."""
    return Transform(outer.pos + many_rotate(inner.pos, outer.rot), jax.vmap(multiply)(outer.rot, inner.rot))


def velocity_at(motion: Motion, lever: Array) -> Motion:
    """Return how points move that are fixed to links, this far from where `motion` is given: [L] each."""
    unturned = jax.vmap(inverse)(jnp.tile(jnp.asarray(IDENTITY), (len(lever), 1)))
    return Motion(many_rotate(motion.ang, unturned), many_rotate(motion.vel - many_cross(lever, motion.ang), unturned))


class Group(NamedTuple):
    """Links of one kind: free, or with so many hinges or slides."""

    speeds: int  # of each link
    slides: np.ndarray  # [K]: slides instead of hinges
    links: np.ndarray  # [K]
    q: np.ndarray  # [K, positions]: where their coordinates are
    qd: np.ndarray  # [K, speeds]

    def only(self, slides: bool) -> "Group":
        """Return those with slides, or those with hinges."""
        chosen = self.slides == slides
        return Group(self.speeds, *(part[chosen] for part in self[1:]))


class System:
    """Hold a model as the paper's physics reads it: links (bodies without the world) in float32."""

    def __init__(self, model: mujoco.MjModel, timestep: float | None = None):
        if timestep is not None:
            model.opt.timestep = timestep
        self.model, self.timestep = model, float(np.float32(model.opt.timestep))
        self.numbers = NUMBERS | {n.name: float(n.data[0]) for n in map(model.numeric, range(model.nnumeric))}
        self.parents = model.body_parentid[1:] - 1  # [L]: -1 for the world
        self.groups = _groups(model)
        free = np.concatenate([group.links for group in self.groups if group.speeds == FREE] or [np.zeros(0, int)])
        pos, rot = model.body_pos[1:].copy(), model.body_quat[1:].copy()
        pos[free], rot[free] = 0.0, IDENTITY  # a free link's coordinates say where it is
        self.place = Transform(_array(pos), _array(rot))  # [L]: in the parent's frame
        self.joint = _array(model.jnt_pos[model.body_jntadr[1:]])  # [L, 3]: in the link's frame
        self._joints = Transform(self.joint, _array(np.tile(IDENTITY, (self.num_links, 1))))
        self.centre = _array(model.body_ipos[1:])  # [L, 3]: centre of mass in the link's frame
        self.axes = _axes(model)

    @property
    def num_links(self) -> int:
        return len(self.parents)

    def torques(self, control: Array) -> Array:
        """Return what the motors do to each coordinate: [A] -> [V]."""
        model = self.model
        low, high = _array(np.where(model.actuator_ctrllimited[:, None] == 1, model.actuator_ctrlrange, _ANY)).T
        force = _array(model.actuator_gear[:, 0]) * jnp.clip(control, low, high)
        return jnp.zeros(model.nv).at[model.jnt_dofadr[model.actuator_trnid[:, 0]]].add(force)

    def limits(self) -> np.ndarray:
        """Return the lowest and highest value of each coordinate: [2, V]."""
        model = self.model
        joint = model.dof_jntid
        return np.where(model.jnt_limited[joint, None] == 1, model.jnt_range[joint], _ANY).T.astype(np.float32)

    # From coordinates to the world

    def world(self, q: Array, qd: Array) -> tuple[Transform, Motion]:
        """Place the links and say how their origins move: [Q], [V] -> [L]."""
        parts = [self._in_joint(group, q, qd) for group in self.groups]
        local, moving = _joined(parts, [group.links for group in self.groups])
        anchor = compose(Transform(jnp.zeros_like(local.pos), local.rot), self._joints)
        local = compose(self.place, Transform(local.pos + self.joint - anchor.pos, local.rot))
        levels, depths = [], self._depths()
        for depth in range(int(depths.max()) + 1):
            links = np.flatnonzero(depths == depth)
            x, xd = _rows((local, moving), links)
            if depth == 0:
                levels.append((x, Motion(many_rotate(xd.ang, x.rot), xd.vel)))
                continue
            above = np.searchsorted(np.flatnonzero(depths == depth - 1), self.parents[links])
            parent, parent_moving = _rows(levels[-1], above)
            x = compose(parent, x)
            vel = parent_moving.vel + many_cross(parent_moving.ang, x.pos - parent.pos)
            vel += many_rotate(xd.vel, parent.rot)
            levels.append((x, Motion(parent_moving.ang + many_rotate(xd.ang, x.rot), vel)))
        x, xd = _joined(levels, [np.flatnonzero(depths == depth) for depth in range(len(levels))])
        return Transform(x.pos, many_units(x.rot)), xd

    def _depths(self) -> np.ndarray:
        depths = np.zeros(self.num_links, int)
        for link, parent in enumerate(self.parents):  # parents come first
            depths[link] = 0 if parent < 0 else depths[parent] + 1
        return depths

    def _in_joint(self, group: Group, q: Array, qd: Array) -> tuple[Transform, Motion]:
        """Place links in the frames of their joints: [Q], [V] -> [K]."""
        q, qd = _rows(q, group.q.ravel()), _rows(qd, group.qd.ravel())
        if group.speeds == FREE:
            q, qd = q.reshape(-1, 7), qd.reshape(-1, 6)
            return Transform(q[:, :3], q[:, 3:]), Motion(qd[:, 3:], qd[:, :3])
        ang, vel = _rows(self.axes, group.qd.ravel())  # [K * axes, 3] each
        frames = Transform(jax.vmap(jnp.multiply)(vel, q), jax.vmap(_turned)(ang, q))
        motions = Motion(jax.vmap(jnp.multiply)(ang, qd), jax.vmap(jnp.multiply)(vel, qd))
        frames, motions = jax.tree.map(lambda a: a.reshape(-1, group.speeds, a.shape[1]), (frames, motions))
        x, xd = jax.tree.map(lambda a: jnp.take(a, 0, axis=1), (frames, motions))
        for i in range(1, group.speeds):
            frame, motion = jax.tree.map(lambda a, i=i: jnp.take(a, i, axis=1), (frames, motions))
            x = compose(x, frame)
            vel = motion.vel + many_cross(frame.pos, motion.ang)
            xd = Motion(xd.ang + many_rotate(motion.ang, frame.rot), xd.vel + many_rotate(vel, frame.rot))
        return x, xd

    def to_centres(self, x: Transform, xd: Motion) -> tuple[Transform, Motion]:
        """Turn frames at the links' origins into frames at their centres of mass."""
        centres = compose(x, Transform(self.centre, self._joints.rot))
        return centres, velocity_at(xd, centres.pos - x.pos)

    def to_origins(self, x: Transform, xd: Motion) -> tuple[Transform, Motion]:
        origins = compose(x, Transform(-self.centre, self._joints.rot))
        return origins, velocity_at(xd, origins.pos - x.pos)

    # From the world to coordinates

    def coordinates(self, x: Transform, xd: Motion) -> tuple[Array, Array]:
        """Return q [Q] and qd [V] of links in the world: [L] each."""
        world = Transform(jnp.zeros((1, 3)), jnp.asarray(IDENTITY[None])), Motion(jnp.zeros((1, 3)), jnp.zeros((1, 3)))
        above, moving = _rows(jax.tree.map(lambda a, b: jnp.concatenate([a, b]), (x, xd), world), self.parents)
        anchor = compose(above, self.place)  # the joint's frame on the parent
        anchor = Transform(anchor.pos + many_rotate(self.joint, anchor.rot), anchor.rot)
        back = jax.vmap(inverse)(anchor.rot)
        pos = many_rotate(x.pos + many_rotate(self.joint, x.rot) - anchor.pos, back)
        local = Transform(pos, jax.vmap(multiply)(back, x.rot))
        moving = velocity_at(moving, above.pos - anchor.pos)
        moving = jax.tree.map(lambda a, b: many_rotate_back(a - b, anchor.rot), xd, moving)
        parts = [self._coordinates(group, *_rows((local, moving), group.links)) for group in self.groups]
        q, qd = zip(*parts, strict=True)
        return (
            _joined([part.ravel() for part in q], [group.q.ravel() for group in self.groups]),
            _joined([part.ravel() for part in qd], [group.qd.ravel() for group in self.groups]),
        )

    def _coordinates(self, group: Group, x: Transform, xd: Motion) -> tuple[Array, Array]:
        """Return [K, positions], [K, speeds] of links in the frames of their joints."""
        if group.speeds == FREE:
            turning = many_rotate_back(xd.ang, x.rot)
            return jnp.concatenate([x.pos, x.rot], axis=1), jnp.concatenate([xd.vel, turning], axis=1)
        axes = jax.tree.map(lambda a: a.reshape(-1, group.speeds, 3), _rows(self.axes, group.qd.ravel()))
        of_world = jnp.asarray(self.parents[group.links] == -1)
        return jax.vmap(_coordinates)(x, xd, axes, of_world)


def _coordinates(x: Transform, xd: Motion, axes: Motion, of_world: Array) -> tuple[Array, Array]:
    """Return coordinates [n] and speeds [n] of one link with these hinges or slides [n, 3]."""
    turning = rotate_back(xd.ang, jnp.where(of_world, x.rot, jnp.asarray(IDENTITY)))
    angles, turned = euler_angles(x.rot, *joint_frame(axes))
    hinge, count = axes.ang.any(axis=1), len(axes.ang)
    speeds = [jnp.dot(axis, turning) for axis in turned]
    q = jnp.where(hinge, jnp.array(angles[:count]), axes.vel @ x.pos)
    return q, jnp.where(hinge, jnp.array(speeds[:count]), axes.vel @ xd.vel)


_ANY = np.array([-np.inf, np.inf])


def _array(values: np.ndarray) -> Array:
    with jax.ensure_compile_time_eval():  # it outlives the trace that may ask first
        return jnp.asarray(values, jnp.float32)


def _rows(tree: Any, rows: np.ndarray) -> Any:
    """Return rows of each leaf: a slice where they are in sequence, because XLA gathers more slowly."""
    first, last = int(rows[0]), int(rows[-1])
    if np.array_equal(rows, np.arange(first, last + 1)):
        return jax.tree.map(lambda leaf: leaf[first : last + 1], tree)
    return jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=0, mode="wrap"), tree)


def _joined(parts: Any, orders: list[np.ndarray]) -> Any:
    """Concatenate what was computed by groups, and put it into the model's order."""
    return _rows(jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts), np.argsort(np.concatenate(orders)))


def _groups(model: mujoco.MjModel) -> list[Group]:
    """Group the links by number of speeds. A link of hinges and slides, or without a joint, is refused."""
    members: dict[int, list[int]] = {}
    slides = np.zeros(model.nbody, bool)
    for body in range(1, model.nbody):
        joints = slice(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body])
        kinds = set(model.jnt_type[joints].tolist())
        if len(kinds) != 1 or mujoco.mjtJoint.mjJNT_BALL in kinds or (model.body_dofnum[body] > 3 and 0 not in kinds):
            raise ValueError(f"link {body - 1} must be free, or have one to three hinges, or as many slides")
        slides[body] = kinds == {int(mujoco.mjtJoint.mjJNT_SLIDE)}
        members.setdefault(int(model.body_dofnum[body]), []).append(body)
    groups = []
    for speeds, bodies in members.items():
        q, qd = model.jnt_qposadr[model.body_jntadr[bodies]], model.body_dofadr[bodies]
        positions = np.arange(7 if speeds == FREE else speeds)
        links = np.array(bodies) - 1
        groups.append(Group(speeds, slides[bodies], links, q[:, None] + positions, qd[:, None] + np.arange(speeds)))
    return groups


def _axes(model: mujoco.MjModel) -> Motion:
    """Return about or along what each coordinate moves its link: [V, 3]."""
    ang, vel = np.zeros((2, model.nv, 3))
    for joint, dof in enumerate(model.jnt_dofadr):
        if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE:
            vel[dof : dof + 3] = ang[dof + 3 : dof + 6] = np.eye(3)
        else:
            kind = vel if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE else ang
            kind[dof] = model.jnt_axis[joint]
    return Motion(_array(ang), _array(vel))


def _turned(axis: Array, angle: Array) -> Array:
    """Return the quaternion of a turn."""
    sine = jnp.sin(angle / 2)
    return unit(jnp.array([jnp.cos(angle / 2), axis[0] * sine, axis[1] * sine, axis[2] * sine]))


def joint_frame(axes: Motion) -> tuple[Array, Array]:
    """Return three axes [3, 3] for a link with these hinges [n, 3], and 1 if they are right-handed, else -1. Slides
    leave the axes of the world."""
    ang = axes.ang
    if len(ang) == 1:
        return jnp.where(ang[0].any(), _around(ang[0]), jnp.eye(3)), jnp.ones(())
    third = jnp.cross(ang[0], ang[1])
    frame = jnp.where(axes.vel.any(), jnp.eye(3), jnp.array([ang[0], ang[1], third]))
    return frame, jnp.dot(third, ang[2]) if len(ang) == 3 else jnp.ones(())


def _around(axis: Array) -> Array:
    """Return an axis and two at right angles to it."""
    second = jnp.where((-0.5 < axis[1]) & (axis[1] < 0.5), jnp.array([0.0, 1.0, 0.0]), jnp.array([0.0, 0.0, 1.0]))
    second = unit(second - axis * axis.dot(second))
    return jnp.array([axis, second, jnp.cross(axis, second)])


def euler_angles(rot: Array, frame: Array, parity: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Return the x-y'-z'' angles [] of a turn by the line of nodes, and the axes [3] whose speeds are theirs."""
    first, second = frame[0], frame[1]
    turned = jax.vmap(rotate, in_axes=(0, None))(frame, rot)
    nodes = unit(jnp.cross(turned[2], first))
    shadow = unit(jnp.dot(first, turned[0]) * turned[0] + jnp.dot(first, turned[1]) * turned[1])
    theta = jnp.arccos(jnp.clip(jnp.dot(shadow, first), -1, 1)) * jnp.sign(jnp.dot(first, turned[2]))
    psi = _signed_angle(first, second, nodes)
    phi = _signed_angle(-turned[2] * parity, turned[1], nodes)
    return (psi, theta, phi), (turned[0], turned[1], turned[2] * parity)


def _signed_angle(axis: Array, start: Array, end: Array) -> Array:
    return jnp.arctan2(jnp.dot(jnp.cross(start, end), axis), jnp.dot(start, end))
