"""MuJoCo models of the paper's three bodies (ant, humanoid, the pusher's arm with its table) and of their surroundings.

Their measures are those of Brax 0.14's models of the same names (Apache-2.0), with parts that are rigidly connected
made one body. So a simulation is the paper's to the bit: see tests/physics/test_models.py. Each function returns a new
model, ready for edits. How things look is not defined here.
"""

from collections.abc import Sequence
from typing import Any

import mujoco

from dcp.types import MazeLayout

PLANE, SPHERE = int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_SPHERE)
CAPSULE, BOX = int(mujoco.mjtGeom.mjGEOM_CAPSULE), int(mujoco.mjtGeom.mjGEOM_BOX)
FREE, HINGE, SLIDE = mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE
ORIGIN = (0.0, 0.0, 0.0)
AXES = {"x": (1, 0, 0), "y": (0, 1, 0), "z": (0, 0, 1)}
WALL = "wall"  # wall geoms are named wall_<row>_<column>


def ant() -> mujoco.MjSpec:
    spec = _empty(timestep=0.01, iterations=4, armature=1.0, density=5.0, friction=(1.0, 0.5, 0.5))
    _add_numbers(
        spec,
        constraint_limit_stiffness=1000.0,
        constraint_stiffness=4000.0,
        constraint_ang_damping=10.0,
        constraint_vel_damping=20.0,
        spring_mass_scale=1.0,
        spring_inertia_scale=1.0,
    )
    spec.worldbody.add_geom(name="floor", type=PLANE, size=[40.0, 40.0, 40.0], conaffinity=1)
    torso = spec.worldbody.add_body(name="torso", pos=[0.0, 0.0, 0.75])
    torso.add_geom(name="torso_geom", type=SPHERE, size=[0.25, 0.0, 0.0])
    torso.add_joint(name="root", type=FREE, armature=0.0, damping=0.0, limited=False, margin=0.01)
    for leg, (x, y) in enumerate([(1, 1), (-1, 1), (-1, -1), (1, -1)], 1):
        near, far = (0.2 * x, 0.2 * y, 0.0), (0.4 * x, 0.4 * y, 0.0)
        _add_capsule(torso, ORIGIN, near, 0.08, name=f"aux_{leg}")
        thigh = torso.add_body(name=f"thigh_{leg}", pos=near)
        thigh.add_joint(name=f"hip_{leg}", type=HINGE, axis=[0.0, 0.0, 1.0], range=[-30.0, 30.0])
        _add_capsule(thigh, ORIGIN, near, 0.08)
        shin = thigh.add_body(name=f"shin_{leg}", pos=near)
        bend = [30.0, 70.0] if x > 0 else [-70.0, -30.0]
        shin.add_joint(name=f"ankle_{leg}", type=HINGE, axis=[-x * y, 1.0, 0.0], range=bend)
        _add_capsule(shin, ORIGIN, far, 0.08, name=f"shin_{leg}")
        shin.add_geom(name=f"foot_{leg}", type=SPHERE, pos=far, size=[0.08, 0.0, 0.0], mass=0.0, contype=1)
    for leg in (4, 1, 2, 3):
        for joint in (f"hip_{leg}", f"ankle_{leg}"):
            _add_motor(spec, joint, limit=1.0, gear=150.0)
    return spec


def humanoid() -> mujoco.MjSpec:
    spec = _empty(timestep=0.003, iterations=8, armature=1.0)
    _add_numbers(
        spec,
        constraint_limit_stiffness=2500.0,
        constraint_stiffness=27000.0,
        constraint_ang_damping=30.0,
        constraint_vel_damping=80.0,
        ang_damping=-0.05,
        spring_inertia_scale=1.0,
    )
    floor = {"size": [20.0, 20.0, 0.125], "friction": [1.0, 0.1, 0.1], "conaffinity": 1}
    spec.worldbody.add_geom(name="floor", type=PLANE, **floor)
    torso = spec.worldbody.add_body(name="torso", pos=[0.0, 0.0, 1.4])
    torso.add_joint(name="root", type=FREE, armature=0.0, damping=0.0, limited=False)
    _add_capsule(torso, (0.0, -0.07, 0.0), (0.0, 0.07, 0.0), 0.07)
    torso.add_geom(type=SPHERE, pos=[0.0, 0.0, 0.19], size=[0.09, 0.0, 0.0])  # the head
    _add_capsule(torso, (-0.01, -0.06, -0.12), (-0.01, 0.06, -0.12), 0.06)

    tilt = [1.0, 0.0, -0.002, 0.0]
    waist = torso.add_body(name="lwaist", pos=[-0.01, 0.0, -0.26], quat=tilt)
    _add_capsule(waist, (0.0, -0.06, 0.0), (0.0, 0.06, 0.0), 0.06)
    low = {"pos": [0.0, 0.0, 0.065], "armature": 0.02, "damping": 5.0}
    _add_hinge(waist, "abdomen_z", (0, 0, 1), (-45, 45), stiffness=20.0, **low)
    _add_hinge(waist, "abdomen_y", (0, 1, 0), (-75, 30), stiffness=10.0, **low)
    pelvis = waist.add_body(name="pelvis", pos=[0.0, 0.0, -0.165], quat=tilt)
    low["pos"] = [0.0, 0.0, 0.1]
    _add_hinge(pelvis, "abdomen_x", (1, 0, 0), (-35, 35), stiffness=10.0, **low)
    _add_capsule(pelvis, (-0.02, -0.07, 0.0), (-0.02, 0.07, 0.0), 0.09)
    for side, y in (("right", -1), ("left", 1)):  # not quite alike: a hip's armature and a knee's stiffness differ
        thigh = pelvis.add_body(name=f"{side}_thigh", pos=[0.0, 0.1 * y, -0.04])
        _add_hinge(thigh, f"{side}_hip_x", (-y, 0, 0), (-25, 5), stiffness=10.0, armature=0.01, damping=5.0)
        _add_hinge(thigh, f"{side}_hip_z", (0, 0, -y), (-60, 35), stiffness=10.0, armature=0.01, damping=5.0)
        armature = 0.008 if side == "right" else 0.01
        _add_hinge(thigh, f"{side}_hip_y", (0, 1, 0), (-110, 20), stiffness=20.0, armature=armature, damping=5.0)
        _add_capsule(thigh, ORIGIN, (0.0, -0.01 * y, -0.34), 0.06)
        shin = thigh.add_body(name=f"{side}_shin", pos=[0.0, -0.01 * y, -0.403])
        knee = {"pos": [0.0, 0.0, 0.02], "armature": 0.006, "stiffness": 0.0 if side == "right" else 1.0}
        _add_hinge(shin, f"{side}_knee", (0, -1, 0), (-160, -2), **knee)
        _add_capsule(shin, ORIGIN, (0.0, 0.0, -0.3), 0.049)
        shin.add_geom(type=SPHERE, pos=[0.0, 0.0, -0.35], size=[0.075, 0.0, 0.0], contype=1)
    for side, y in (("right", -1), ("left", 1)):
        upper = torso.add_body(name=f"{side}_upper_arm", pos=[0.0, 0.17 * y, 0.06])
        swing = (-85, 60) if side == "right" else (-60, 85)
        _add_hinge(upper, f"{side}_shoulder1", (2, -y, 1), swing, stiffness=1.0, armature=0.0068)
        _add_hinge(upper, f"{side}_shoulder2", (0, y, 1), swing, stiffness=1.0, armature=0.0051)
        _add_capsule(upper, ORIGIN, (0.16, 0.16 * y, -0.16), 0.04)
        lower = upper.add_body(name=f"{side}_lower_arm", pos=[0.18, 0.18 * y, -0.18])
        _add_hinge(lower, f"{side}_elbow", (0, -1, -y), (-90, 50), armature=0.0028)
        _add_capsule(lower, (0.01, -0.01 * y, 0.01), (0.17, -0.17 * y, 0.17), 0.031)
        lower.add_geom(type=SPHERE, pos=[0.18, -0.18 * y, 0.18], size=[0.04, 0.0, 0.0])  # the hand
    for joint in ("abdomen_y", "abdomen_z", "abdomen_x"):
        _add_motor(spec, joint, limit=0.4, gear=100.0)
    gears = {"hip_x": 100.0, "hip_z": 100.0, "hip_y": 300.0, "knee": 200.0}
    arm = {"shoulder1": 25.0, "shoulder2": 25.0, "elbow": 25.0}
    for part in (gears, arm):
        for side in ("right", "left"):
            for joint, gear in part.items():
                _add_motor(spec, f"{side}_{joint}", limit=0.4, gear=gear)
    return spec


def pusher() -> mujoco.MjSpec:
    """An arm of seven hinges over a table, an object and a goal, both of which slide."""
    spec = _empty(timestep=0.01, iterations=20, armature=0.04, density=300.0, friction=(0.8, 0.1, 0.1), margin=0.002)
    spec.compiler.degree = False
    spec.option.gravity = ORIGIN
    _add_numbers(spec, solver_maxls=10.0)
    table = {"pos": [0.0, 0.5, -0.325], "size": [1.0, 1.0, 0.1]}
    spec.worldbody.add_geom(name="table", type=PLANE, contype=1, **table)

    x, y, z = (1, 0, 0), (0, 1, 0), (0, 0, 1)
    pan = spec.worldbody.add_body(name="r_shoulder_pan_link", pos=[0.0, -0.6, 0.0])
    for place, radius in ((0.05, 0.05), (0.09, 0.03)):  # a face, to look at: two eyes with pupils
        for across in (-0.06, 0.06):
            pan.add_geom(type=SPHERE, pos=[across, place, 0.2], size=[radius, 0.0, 0.0])
    _add_capsule(pan, (0.0, 0.0, -0.4), (0.0, 0.0, 0.2), 0.1)
    _add_hinge(pan, "r_shoulder_pan_joint", z, (-2.2854, 1.714602), damping=1.0)
    lift = pan.add_body(name="r_shoulder_lift_link", pos=[0.1, 0.0, 0.0])
    _add_capsule(lift, (0.0, -0.1, 0.0), (0.0, 0.1, 0.0), 0.1)
    _add_hinge(lift, "r_shoulder_lift_joint", y, (-0.5236, 1.3963), damping=1.0)
    upper = lift.add_body(name="r_upper_arm_roll_link")
    _add_capsule(upper, (-0.1, 0.0, 0.0), (0.1, 0.0, 0.0), 0.02)
    _add_capsule(upper, ORIGIN, (0.4, 0.0, 0.0), 0.06)
    _add_hinge(upper, "r_upper_arm_roll_joint", x, (-1.5, 1.7), damping=0.1)
    elbow = upper.add_body(name="r_elbow_flex_link", pos=[0.4, 0.0, 0.0])
    _add_capsule(elbow, (0.0, -0.02, 0.0), (0.0, 0.02, 0.0), 0.06)
    _add_hinge(elbow, "r_elbow_flex_joint", y, (-2.3213, 0.0), damping=0.1)
    forearm = elbow.add_body(name="r_forearm_roll_link")
    _add_capsule(forearm, (-0.1, 0.0, 0.0), (0.1, 0.0, 0.0), 0.02)
    _add_capsule(forearm, ORIGIN, (0.291, 0.0, 0.0), 0.05)
    _add_hinge(forearm, "r_forearm_roll_joint", x, (-1.5, 1.5), damping=0.1)
    wrist = forearm.add_body(name="r_wrist_flex_link", pos=[0.321, 0.0, 0.0])
    _add_capsule(wrist, (0.0, -0.02, 0.0), (0.0, 0.02, 0.0), 0.01)
    _add_hinge(wrist, "r_wrist_flex_joint", y, (-1.094, 0.0), damping=0.1)
    fork = wrist.add_body(name="r_wrist_roll_link")
    _add_hinge(fork, "r_wrist_roll_joint", x, (-1.5, 1.5), damping=0.1)
    left, right = (0.0, -0.1, 0.0), (0.0, 0.1, 0.0)
    tips = (0.1, -0.1, 0.0), (0.1, 0.1, 0.0)
    for start, end in ((left, right), (left, tips[0]), (right, tips[1])):
        _add_capsule(fork, start, end, 0.02, conaffinity=1)
    for tip in tips:
        fork.add_geom(type=SPHERE, pos=tip, size=[0.01, 0.0, 0.0])

    thing = spec.worldbody.add_body(name="object", pos=[0.45, -0.05, -0.275])
    thing.add_geom(type=SPHERE, size=[0.05] * 3, density=1.0, rgba=[1.0, 1.0, 1.0, 0.0])
    thing.add_geom(name="object_geom", type=CAPSULE, size=[0.05] * 3, density=1.0, contype=1)
    goal = spec.worldbody.add_body(name="goal", pos=[0.45, -0.05, -0.323])
    goal.add_geom(type=CAPSULE, size=[0.08, 0.001, 0.1], density=0.00001)
    for body, name in ((thing, "obj"), (goal, "goal")):
        for axis, along in (("y", y), ("x", x)):
            slide = {"axis": along, "range": [-10.3213, 10.3], "damping": 0.5}
            body.add_joint(name=f"{name}_slide{axis}", type=SLIDE, **slide)
    for joint in spec.joints[:7]:
        _add_motor(spec, joint.name, limit=2.0, gear=1.0)
    return spec


# What stands around a body: walls, targets, balls and boxes.


def set_contact(spec: mujoco.MjSpec, geoms: Sequence[str], contype: int, conaffinity: int) -> None:
    for name in geoms:
        geom = spec.geom(name)
        geom.contype, geom.conaffinity = contype, conaffinity


def add_sliding_body(
    spec: mujoco.MjSpec, name: str, position: Sequence[float], axes: str, range_: float | None, **joint: Any
) -> Any:
    """Add a body of the world that slides along these axes; its joints are <name>_<axis>."""
    body = spec.worldbody.add_body(name=name, pos=list(position))
    limits = {"limited": False} if range_ is None else {"range": [-range_, range_], "limited": True}
    for axis in axes:
        body.add_joint(name=f"{name}_{axis}", type=SLIDE, axis=list(AXES[axis]), **limits, **joint)
    return body


def add_target(spec: mujoco.MjSpec, height: float, radius: float, range_: float) -> None:
    """Add the goal's marker, which slides in the plane and touches nothing."""
    body = add_sliding_body(spec, "target", (0.0, 0.0, height), "xy", range_, armature=0.0, damping=0.0)
    colour = [0.85, 0.2, 0.2, 0.6]
    body.add_geom(type=SPHERE, size=[radius, 0, 0], mass=1.0, contype=0, conaffinity=0, rgba=colour)


def add_walls(spec: mujoco.MjSpec, layout: MazeLayout) -> None:
    """Add a box per wall cell. Neighbours stay separate, because the spring solver averages over contacts."""
    half = layout.scale / 2
    for row, cells in enumerate(layout.rows):
        for column, cell in enumerate(cells):
            if cell == "#":
                spec.worldbody.add_geom(
                    name=f"{WALL}_{row}_{column}",
                    type=BOX,
                    pos=[row * layout.scale, column * layout.scale, half / 2],
                    size=[half, half, half / 2],
                    contype=1,
                    conaffinity=1,
                )


def _empty(timestep: float, iterations: int, armature: float, **geoms: Any) -> mujoco.MjSpec:
    """Return a model without bodies, and with the stock models' defaults: joints have limits, and nothing collides."""
    spec = mujoco.MjSpec()
    spec.option.timestep, spec.option.iterations = timestep, iterations
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE
    joint, geom = spec.default.joint, spec.default.geom
    joint.armature, joint.damping[0], joint.limited = armature, 1.0, True
    geom.contype = geom.conaffinity = 0
    for name, value in geoms.items():
        setattr(geom, name, value)
    return spec


def _add_numbers(spec: mujoco.MjSpec, **numbers: float) -> None:
    """Add what Brax's physics reads of a model besides MuJoCo's own fields."""
    for name, number in numbers.items():
        spec.add_numeric(name=name, data=[number], size=1)


def _add_capsule(body: Any, start: Any, end: Any, radius: float, **more: Any) -> None:
    body.add_geom(type=CAPSULE, fromto=[*start, *end], size=[radius, 0.0, 0.0], **more)


def _add_hinge(body: Any, name: str, axis: Any, range_: Any, **more: Any) -> None:
    body.add_joint(name=name, type=HINGE, axis=axis, range=range_, **more)


def _add_motor(spec: mujoco.MjSpec, joint: str, limit: float, gear: float) -> None:
    spec.add_actuator(
        name=joint,
        target=joint,
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        ctrllimited=True,
        ctrlrange=[-limit, limit],
        gear=[gear, 0.0, 0.0, 0.0, 0.0, 0.0],
    )
