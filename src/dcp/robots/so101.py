"""The SO-101 arm in figures: links, joints, servos and limits; where its tool point is, and where it can be.

It needs only NumPy, so that a robot's loop and a simulation can read the same figures. They are those of the
robotstudio_so101 model of MuJoCo Menagerie (Apache-2.0, commit 4c358ef9). Angles are in radians, lengths in metres;
quaternions are w x y z, not normalised.
"""

from typing import Any, NamedTuple

import numpy as np

from dcp.errors import UserError


class Link(NamedTuple):
    name: str
    parent: str
    pos: tuple[float, float, float]
    quat: tuple[float, float, float, float]
    joint: str | None = None  # a hinge about the link's z
    limits: tuple[float, float] = (0.0, 0.0)
    mass: float = 0.0
    com: tuple[float, float, float] = (0.0, 0.0, 0.0)
    inertia: tuple[float, ...] = ()  # xx yy zz xy xz yz, about the centre of mass


# fmt: off
LINKS = (
    Link("base", "world", (0.0, 0.0, 0.0), (1, 0, 0, 0), None, (0.0, 0.0), 0.147,
         (0.0137179, -5.19711e-05, 0.0334843),
         (0.000114686, 0.000136117, 0.000130364, -4.59787e-07, 4.97151e-06, 9.75275e-08)),
    Link("shoulder", "base", (0.0388353, 0.0, 0.0624), (0, 0, -1, 0), "shoulder_pan", (-1.91986, 1.91986), 0.100006,
         (-0.0307604, -1.7e-05, -0.0252713),
         (8.3759e-05, 8.10403e-05, 2.39783e-05, 7.55525e-08, -1.16342e-06, 1.54663e-07)),
    Link("upper_arm", "shoulder", (-0.0303992, -0.0182778, -0.0542), (1, -1, -1, -1), "shoulder_lift",
         (-1.7453293, 1.7453293), 0.103, (-0.089847, -0.008382, 0.018409),
         (4.08002e-05, 0.000147318, 0.000142487, -1.97819e-05, -4.03016e-08, 8.97326e-09)),
    Link("lower_arm", "upper_arm", (-0.11257, -0.028, 0.0), (1, 0, 0, 1), "elbow_flex", (-1.69, 1.69), 0.104,
         (-0.098070, 0.0032438, 0.018283),
         (2.87438e-05, 0.000159844, 0.00014529, 7.41152e-06, 1.26409e-06, -4.90188e-08)),
    Link("wrist", "lower_arm", (-0.1349, 0.0052, 0.0), (1, 0, 0, -1), "wrist_flex", (-1.658063, 1.658063), 0.079,
         (-0.000103312, -0.0386143, 0.0281156),
         (3.68263e-05, 2.5391e-05, 2.1e-05, 1.7893e-08, -5.28128e-08, 3.6412e-06)),
    Link("gripper", "wrist", (5.55112e-17, -0.0611, 0.0181), (0.0172091, -0.0172091, 0.706897, 0.706897), "wrist_roll",
         (-2.7438473, 2.7438473), 0.087, (0.000214, 0.000245, -0.025187),
         (2.75087e-05, 4.33657e-05, 3.45059e-05, -3.35241e-07, -5.7352e-06, -5.17847e-08)),
    Link("camera_mount", "gripper", (0.0, 0.0, 0.0), (1, 0, 0, 0)),
    Link("moving_jaw_so101_v1", "gripper", (0.0202, 0.0188, -0.0234), (1, 1, 0, 0), "gripper", (-0.174533, 1.7453292),
         0.012, (-0.001575, -0.0300244, 0.0192755),
         (6.61427e-06, 1.89032e-06, 5.28738e-06, -3.19807e-07, -5.90717e-09, -1.09945e-07)),
)
# fmt: on
CHAIN = LINKS[:6]  # from the table to the body that carries the tool point
TOOL = ((0.012, -0.000218, -0.098127), (0.0, 0.0, 1.0, 0.0))  # the site gripperframe, in the gripper's frame

JOINTS = tuple(link.joint for link in LINKS if link.joint)
LOW, HIGH = np.array([link.limits for link in LINKS if link.joint]).T  # [6], [6]
CONTROL_HIGH = np.where(np.array(JOINTS) == "wrist_roll", 2.84121, HIGH)  # the servo's own range reaches further

KP, KV, MAX_TORQUE = 998.22, 2.731, 2.94  # STS3215, its proportional gain at 16
DAMPING, FRICTION_LOSS, ARMATURE = 0.60, 0.052, 0.028
TICKS_PER_TURN = 4096

RATE_HZ = 30  # LeRobot's control loop
MAX_CHANGE = 0.1  # radians per step: 3 rad/s, below the servo's 4.7 rad/s without a load

# What --randomize draws once per episode or run. docs/so101.md says why each has its range.
MAX_DELAY = 2  # steps
RANGES: dict[str, tuple[float, float]] = {
    "gains": (0.7, 1.3),  # factor of the servos' gains and of their torque
    "friction": (0.5, 1.5),  # factor of the contacts' and the joints' friction
    "masses": (0.8, 1.2),  # factor of all masses
    "delay": (0.0, float(MAX_DELAY)),  # steps, of the readings and of the commands
    "offsets": (-0.02, 0.02),  # radians, of each joint's calibration
    "encoders": (0.0, 2 * np.pi / TICKS_PER_TURN),  # radians, where a tick begins
}
VARIED = {  # the model's arrays that a factor multiplies
    "gains": ("actuator_gainprm", "actuator_biasprm", "actuator_forcerange"),
    "friction": ("geom_friction", "dof_frictionloss", "dof_damping"),
    "masses": ("body_mass", "body_inertia"),
}


def kinds_of(names: str) -> tuple[str, ...]:
    """Return the kinds of `RANGES` that a flag names: gains,delay, or all."""
    kinds = tuple(RANGES) if names == "all" else tuple(name.strip() for name in names.split(","))
    for kind in kinds:
        if kind not in RANGES:
            raise UserError(f"cannot randomize {kind!r}: choose from {', '.join(RANGES)}, or all")
    return kinds


# Where the reaching tasks draw their goals: a shell before the arm, around its shoulder's lift axis.
PAN_AXIS = np.array([0.0388353, 0.0])  # x, y
LIFT_AXIS = (0.0303992, 0.1166)  # its distance from the pan axis, and its height
REACH = (0.13, 0.38)  # metres from the lift axis
RADII = (0.15, 0.42)  # from the pan axis: nearer, the arm is in its own way
HEIGHTS = (0.02, 0.40)
WIDEST = 1.5  # radians to either side


def quat_matrix(quat: Any) -> np.ndarray:
    """Return the rotation [3, 3] of a quaternion of any length but zero."""
    w, x, y, z = np.asarray(quat, float) / np.linalg.norm(quat)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


_TURNS = [quat_matrix(link.quat) for link in CHAIN]
_TOOL_TURN = quat_matrix(TOOL[1])


def tool_pose(q: Any, xp: Any = np) -> tuple[Any, Any]:
    """Return the tool point's place [..., 3] and rotation [..., 3, 3] at joint angles q [..., 5 or 6].

    `xp`: NumPy, or jax.numpy for a simulation.
    """
    place, turn, _, _ = _gripper(q, xp)
    return place + turn @ xp.asarray(TOOL[0]), turn @ xp.asarray(_TOOL_TURN)


def _gripper(q: Any, xp: Any) -> tuple[Any, Any, list[Any], list[Any]]:
    """Return the gripper's place and rotation, and the place and axis of each of the five joints on the way to it."""
    shape = q.shape[:-1]
    place, turn = xp.zeros((*shape, 3)), xp.broadcast_to(xp.eye(3), (*shape, 3, 3))
    pivots, axes = [], []
    for link, fixed in zip(CHAIN, _TURNS, strict=True):
        place = place + turn @ xp.asarray(link.pos)
        turn = turn @ xp.asarray(fixed)
        if link.joint is not None:
            pivots.append(place)
            axes.append(turn[..., 2])
            turn = turn @ _about_z(q[..., len(axes) - 1], xp)
    return place, turn, pivots, axes


def _about_z(angle: Any, xp: Any) -> Any:
    c, s = xp.cos(angle), xp.sin(angle)
    zero, one = xp.zeros_like(c), xp.ones_like(c)
    rows = [xp.stack([c, -s, zero], -1), xp.stack([s, c, zero], -1), xp.stack([zero, zero, one], -1)]
    return xp.stack(rows, -2)


TILT_LENGTH = 0.1  # metres


def tilt_of(turn: Any) -> Any:
    """Return how much higher [...] the tool point is than a point of the gripper 0.1 m behind it.

    It is a length, so that it can be combined with places in one goal; -0.1 m: the gripper points straight down.
    """
    return TILT_LENGTH * turn[..., 2, 2]


def in_reach(place: Any, xp: Any = np) -> Any:
    """Tell of places [..., 3] whether the reaching tasks draw goals there."""
    x, y, z = place[..., 0] - PAN_AXIS[0], place[..., 1] - PAN_AXIS[1], place[..., 2]
    radius = xp.hypot(x, y)
    away = xp.hypot(radius - LIFT_AXIS[0], z - LIFT_AXIS[1])
    inside = (away >= REACH[0]) & (away <= REACH[1]) & (z >= HEIGHTS[0]) & (z <= HEIGHTS[1])
    return inside & (radius >= RADII[0]) & (radius <= RADII[1]) & (xp.abs(xp.arctan2(y, x)) <= WIDEST)


MOST_DISPLACEMENT = 0.02  # metres per step of the tool point, where a policy steers by it
DAMPING_OF_STEPS = 1e-4  # of the least squares below, in square metres
TILT_WEIGHT = 0.2  # of the tilt beside the place: far out, where the arm cannot point down, it hardly moves the tool
PUSH_HEIGHT = 0.02  # metres above the table, at which a tool that only pushes is held
TOOL_SIZES = {2: 5, 4: 6}  # numbers of an action that displaces the tool point -> joints that it moves


def tool_jacobian(q: Any, xp: Any = np) -> tuple[Any, Any, Any]:
    """Return the tool point [..., 3], its axis [..., 3], and how both change with five joints: [..., 6, 5]."""
    place, turn, pivots, axes = _gripper(q, xp)
    tool, axis = place + turn @ xp.asarray(TOOL[0]), (turn @ xp.asarray(_TOOL_TURN))[..., 2]
    moves = [xp.cross(about, tool - pivot) for pivot, about in zip(pivots, axes, strict=True)]
    turns = [xp.cross(about, axis) for about in axes]
    return tool, axis, xp.concatenate([xp.stack(moves, -1), xp.stack(turns, -1)], -2)


def step_of_tool(
    q: Any, displacement: Any, xp: Any = np, height: float | None = None, most: float = MOST_DISPLACEMENT
) -> Any:
    """Return the change of five joint angles [5] that displaces the tool point and turns it to point down.

    q [5]; displacement [3] in metres, or [2] where the tool is held at `height`. Damped least squares on the place
    and on the tilt, the latter as the place of a point 0.1 m along the tool's axis; each at most `most` in a step. Far
    out or high up a joint's limit forbids to point down: that joint stops there, and the others move the tool alone.
    """
    q = q[:5]
    tool, axis, jacobian = tool_jacobian(q, xp)
    up = displacement[2:] if height is None else height - tool[2:]
    error = xp.clip(xp.concatenate([displacement[:2], up, -TILT_LENGTH * axis[:2]]), -most, most)  # [5]
    weights = xp.asarray([1.0, 1.0, 1.0, TILT_WEIGHT, TILT_WEIGHT])
    rows = weights[:, None] * xp.concatenate([jacobian[:3], TILT_LENGTH * jacobian[3:5]])  # [5, 5]
    error = weights * error
    target = q + _least_squares(rows, error, xp)
    within = xp.clip(target, xp.asarray(LOW[:5]), xp.asarray(HIGH[:5]))
    free = within == target
    stopped = xp.where(free, 0.0, within - q)
    counts = xp.where(xp.all(free), 1.0, xp.asarray([1.0, 1.0, 1.0, 0.0, 0.0]))  # without the tilt, if one stops
    others = _least_squares(counts[:, None] * rows * free[None], counts * (error - rows @ stopped), xp)
    return xp.where(free, others, stopped)


def _least_squares(rows: Any, error: Any, xp: Any) -> Any:
    return rows.T @ xp.linalg.solve(rows @ rows.T + DAMPING_OF_STEPS * xp.eye(5), error)


def change_by_tool(q: Any, action: Any, xp: Any = np, speed: float = 1.0) -> Any:
    """Return the change of joint angles, [5] or with the jaws [6], that an action [2] or [4] of the tool asks for.

    An action is the tool point's displacement in x and y, where it is held at PUSH_HEIGHT; or in x, y and z, and the
    jaws' change. 1 is MOST_DISPLACEMENT, or MAX_CHANGE of the jaws. Zeros hold the pose, whatever its height and tilt.
    `speed`: the share of either limit that one step may use. A change beyond MAX_CHANGE is shortened as a whole, so
    that the tool moves less far in the same direction, and not down into the table.
    """
    action, most = xp.clip(action, -speed, speed), speed * MAX_CHANGE
    height = PUSH_HEIGHT if action.shape[-1] == 2 else None
    change = step_of_tool(q, MOST_DISPLACEMENT * action[:3], xp, height, speed * MOST_DISPLACEMENT)
    change = change * (most / xp.maximum(xp.max(xp.abs(change)), most))
    return xp.where(xp.any(action != 0.0), xp.concatenate([change, MAX_CHANGE * action[3:]]), 0.0)
