"""Forces that hold a spring model's joints together: Brax's maths, with environments innermost.

A joint is a spring between the frame fixed to the parent and the one fixed to the child; motors and limits act along
its axes. Everything is in the parent's joint frame, for links [G, N].
"""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.physics.batching import compute_once
from dcp.physics.vectors import Quat, Vec, constant, rotate, where
from dcp.types import Array

if TYPE_CHECKING:
    from brax.base import System


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


class Angles(NamedTuple):
    """Intrinsic Euler angles between the two frames, and the axes that they turn about."""

    axes: tuple[Vec, Vec, Vec]
    psi: Array
    theta: Array
    phi: Array


class Joints:
    """Hold links of one kind: with the same number of hinges, or with two slides. Free links have no joint forces."""

    def __init__(self, sys: "System", links: list[int], dof: np.ndarray, slides: bool):
        """`dof` [dofs, G]: where each axis is in tau."""
        from brax.kinematics import link_to_joint_frame

        motion = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[dof.T]), sys.dof.motion)
        frame, parity = jax.vmap(link_to_joint_frame)(motion)
        self.links, self.dof, self.slides = np.array(links), dof, slides
        # [dofs, G, 3]: hinges' or slides' axes
        self.axes = np.asarray(sys.dof.motion.vel if slides else sys.dof.motion.ang)[dof].astype(np.float32)
        self.frame = np.asarray(frame.ang).transpose(1, 0, 2)  # [3, G, 3]
        self.parity = np.broadcast_to(np.asarray(parity, np.float32), (len(links),))  # [G]: of three hinges
        self.limits = np.stack([np.asarray(side)[dof] for side in sys.dof.limit]).astype(np.float32)  # [2, dofs, G]
        self.stiffness, self.vel_damping, self.ang_damping, self.limit_stiffness = (
            np.asarray(getattr(sys.link, f"constraint_{name}"), np.float32)[links][:, None]  # [G, 1]
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


def joints_of(sys: "System") -> list[Joints]:
    """Group a system's links by number and kind of their axes. Mixed joints are refused: no model here has one."""
    groups: dict[tuple[str, bool], list[int]] = {}
    ang, vel = np.asarray(sys.dof.motion.ang), np.asarray(sys.dof.motion.vel)
    starts = np.cumsum([0] + [6 if kind == "f" else int(kind) for kind in sys.link_types])
    for link, kind in enumerate(sys.link_types):
        if kind == "f":
            continue
        dofs = slice(starts[link], starts[link + 1])
        slides = bool(vel[dofs].any())
        if slides and (ang[dofs].any() or kind != "2"):
            raise ValueError(f"link {link}: the spring engine takes hinges, or two slides")
        groups.setdefault((kind, slides), []).append(link)

    joints = []
    for (kind, slides), links in groups.items():
        dof = np.array([[starts[link] + k for link in links] for k in range(int(kind))])  # [dofs, G]
        joints.append(Joints(sys, links, dof, slides))
    return joints
