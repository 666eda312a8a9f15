"""A chain of hinges and where its links are: brax.kinematics, environments last."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.physics.vectors import Vec, constant
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


class Pose(NamedTuple):
    """Where the links are."""

    origin: Array  # [H, 3, N]
    frame: Array  # [H, 3, 3, N]: the links' axes in the world, one a column

    def hinge(self, arm: Arm) -> Vec:
        """The hinges' axes in the world, [H, N] each."""
        columns = np.eye(3, dtype=np.float32)[list(arm.axis)]
        return to_vec(jnp.sum(self.frame * jnp.asarray(columns)[:, None, :, None], axis=2))

    def direction(self, link: int, local: np.ndarray) -> Vec:
        """Directions given in one link's frame: local [K, 3] -> [K, N] each."""
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
    """q [H, N]. A scan, because XLA would compute a chain anew for every link that hangs on it."""
    lanes = q.shape[-1:]

    def link(parent: tuple[Array, Array], own: tuple[Array, Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        turn, offset = own  # [3, 3, N], [3, 1]
        origin, frame = parent
        origin = origin + jnp.sum(frame * offset[None], axis=1)
        frame = jnp.sum(frame[:, :, None] * turn[None], axis=1)
        return (origin, frame), (origin, frame)

    still = jnp.zeros((3, *lanes)), jnp.broadcast_to(jnp.eye(3)[:, :, None], (3, 3, *lanes))
    turns, offsets = _turns(arm, q), jnp.asarray(arm.offset, jnp.float32)[:, :, None]
    return Pose(*jax.lax.scan(link, still, (turns, offsets))[1])


def _turns(arm: Arm, q: Array) -> Array:
    """Each hinge's own rotation [H, 3, 3, N]: cosine, sine and a constant, in their places."""
    with_cos, with_sin, fixed = np.zeros((3, len(arm.axis), 3, 3), np.float32)
    for hinge, k in enumerate(arm.axis):
        i, j = (k + 1) % 3, (k + 2) % 3
        fixed[hinge, k, k] = with_cos[hinge, i, i] = with_cos[hinge, j, j] = with_sin[hinge, j, i] = 1.0
        with_sin[hinge, i, j] = -1.0
    sin, cos = jnp.sin(q)[:, None, None], jnp.cos(q)[:, None, None]
    with_cos, with_sin, fixed = (jnp.asarray(m)[..., None] for m in (with_cos, with_sin, fixed))
    return with_cos * cos + with_sin * sin + fixed


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
