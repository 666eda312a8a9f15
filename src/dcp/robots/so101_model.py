"""The SO-101 arm as a MuJoCo model, built in code from the figures of `dcp.robots.so101`: primitives, no meshes."""

import os
from pathlib import Path
from typing import NamedTuple

import mujoco
import numpy as np

from dcp.errors import UserError
from dcp.robots import so101

_GEOM = mujoco.mjtGeom
_KINDS = {"box": _GEOM.mjGEOM_BOX, "sphere": _GEOM.mjGEOM_SPHERE, "capsule": _GEOM.mjGEOM_CAPSULE}
CUBE_HALF = 0.015  # metres: it fits between the jaws
CUBE_MASS = 0.025
MENAGERIE = "MENAGERIE_ROOT"  # names a checkout of MuJoCo Menagerie, whose meshes are then drawn
MENAGERIE_FILE = "robotstudio_so101/so101.xml"


class Geom(NamedTuple):
    body: str
    kind: str
    size: tuple[float, ...]  # half sizes, or a radius; a capsule's radius and half length
    pos: tuple[float, float, float]
    quat: tuple[float, float, float, float] = (1, 0, 0, 0)


def _about_x(angle: float) -> tuple[float, float, float, float]:
    return float(np.cos(angle / 2)), float(np.sin(angle / 2)), 0.0, 0.0


# fmt: off
ARM_GEOMS = (
    Geom("shoulder", "box", (0.023, 0.015, 0.01), (-0.030399, 0.000422, -0.0387), (1, 1, 1, -1)),
    Geom("shoulder", "box", (0.038, 0.025, 0.02), (-0.025, 0, 0.0), (1, 1, -1, 1)),
    Geom("upper_arm", "box", (0.01, 0.07, 0.03), (-0.06, 0, 0.02), (0, -1, 1, 0)),
    Geom("upper_arm", "box", (0.01, 0.02, 0.015), (-0.12, -0.014, 0.0182), (0, 1, 0, 0)),
    Geom("lower_arm", "box", (0.07, 0.01, 0.03), (-0.05, 0, 0.0182), (0, 1, 0, 0)),
    Geom("lower_arm", "box", (0.023, 0.013, 0.018), (-0.125, 0.005, 0.018), (0, -1, 0, 0)),
    Geom("wrist", "box", (0.029, 0.015, 0.018), (0, -0.0424, 0.0256), (1, 1, 1, -1)),
    Geom("wrist", "box", (0.027, 0.01, 0.03), (0, -0.02, 0.0191), (1, -1, -1, -1)),
    Geom("gripper", "box", (0.01, 0.01, 0.018), (0, -0.000218, 0.00095), (0, 1, 0, 0)),
)
GRIPPER_GEOMS = (
    Geom("gripper", "box", (0.0325, 0.015, 0.015), (-0.0025, 0, -0.022)),
    Geom("gripper", "box", (0.01, 0.015, 0.005), (-0.024, 0, -0.04)),
    Geom("gripper", "sphere", (0.00075,), (-0.0081, 0, -0.101)),
    Geom("gripper", "sphere", (0.00075,), (-0.0081, 0.0035, -0.0975)),
    Geom("gripper", "sphere", (0.00075,), (-0.0081, -0.0035, -0.0975)),
    Geom("gripper", "capsule", (0.0011, 0.002), (-0.009, 0, -0.103), _about_x(1.57)),
    Geom("gripper", "box", (0.001, 0.004, 0.004), (-0.009, 0, -0.0982)),
    Geom("gripper", "box", (0.001, 0.005, 0.006), (-0.0108, 0, -0.0905)),
    Geom("gripper", "box", (0.001, 0.009, 0.008), (-0.0125, 0, -0.0727)),
    Geom("gripper", "box", (0.001, 0.01, 0.008), (-0.0143, 0, -0.053)),
    Geom("camera_mount", "box", (0.015, 0.015, 0.003), (-0.0025, 0.03, -0.03)),
    Geom("camera_mount", "box", (0.021, 0.021, 0.003), (-0.001, 0.06, -0.04), _about_x(-0.55)),
    Geom("moving_jaw_so101_v1", "box", (0.01, 0.01, 0.015), (-0.0, -0.013, 0.019)),
    Geom("moving_jaw_so101_v1", "sphere", (0.00075,), (-0.012, -0.078, 0.0192)),
    Geom("moving_jaw_so101_v1", "sphere", (0.00075,), (-0.012, -0.0745, 0.0225)),
    Geom("moving_jaw_so101_v1", "sphere", (0.00075,), (-0.012, -0.0745, 0.0155)),
    Geom("moving_jaw_so101_v1", "box", (0.001, 0.004, 0.004), (-0.0113, -0.076, 0.01875)),
    Geom("moving_jaw_so101_v1", "box", (0.001, 0.005, 0.006), (-0.0093, -0.067, 0.01875)),
)
# fmt: on


def arm_spec(timestep: float = 0.005) -> mujoco.MjSpec:
    """Return only the arm, as a new model that the caller may edit."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.timestep, spec.option.iterations, spec.option.ls_iterations = timestep, 10, 20
    spec.option.impratio = 10.0
    bodies = {"world": spec.worldbody}
    for link in so101.LINKS:
        body = bodies[link.name] = bodies[link.parent].add_body(name=link.name, pos=link.pos, quat=_unit(link.quat))
        if link.mass:
            body.mass, body.ipos, body.fullinertia, body.explicitinertial = link.mass, link.com, link.inertia, True
        if link.joint is not None:
            _add_joint(spec, body, link)
    for geom in ARM_GEOMS:
        _add_geom(bodies[geom.body], geom).condim = 3
    for geom in GRIPPER_GEOMS:
        pad = _add_geom(bodies[geom.body], geom)
        pad.condim, pad.friction, pad.solref, pad.priority = 6, [1.0, 0.005, 0.0005], [0.01, 1.0], 1
    bodies["base"].add_site(name="baseframe")
    bodies["gripper"].add_site(name="gripperframe", pos=so101.TOOL[0], quat=so101.TOOL[1])
    bodies["camera_mount"].add_camera(name="wrist_camera", pos=[0, 0.055, -0.045], fovy=48.5, quat=_about_x(-0.57))
    return spec


def table_spec(timestep: float, cube: bool) -> mujoco.MjSpec:
    """Return the arm on a table, z = 0, with a cube or without."""
    spec = arm_spec(timestep)
    spec.worldbody.add_geom(name="table", type=_GEOM.mjGEOM_PLANE, size=[0, 0, 1.0], condim=3)
    if cube:
        body = spec.worldbody.add_body(name="cube", pos=[0.25, 0.0, CUBE_HALF])
        body.add_freejoint(name="cube")
        geom = body.add_geom(type=_GEOM.mjGEOM_BOX, size=[CUBE_HALF] * 3, mass=CUBE_MASS, friction=[1.0, 0.03, 0.003])
        geom.condim = 3
    return spec


def _unit(quat: tuple[float, ...]) -> np.ndarray:
    return np.asarray(quat, float) / np.linalg.norm(quat)


def _add_joint(spec: mujoco.MjSpec, body: mujoco.MjsBody, link: so101.Link) -> None:
    name = str(link.joint)
    joint = body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 0, 1], range=link.limits)
    joint.limited = mujoco.mjtLimited.mjLIMITED_TRUE
    joint.armature, joint.frictionloss = so101.ARMATURE, so101.FRICTION_LOSS
    joint.damping[0] = so101.DAMPING
    low, high = link.limits[0], so101.CONTROL_HIGH[so101.JOINTS.index(name)]
    servo = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT, ctrlrange=[low, high])
    servo.set_to_position(kp=so101.KP, kv=so101.KV)
    servo.ctrllimited = servo.forcelimited = mujoco.mjtLimited.mjLIMITED_TRUE
    servo.forcerange = [-so101.MAX_TORQUE, so101.MAX_TORQUE]


def _add_geom(body: mujoco.MjsBody, geom: Geom) -> mujoco.MjsGeom:
    size = [*geom.size, *[0.0] * (3 - len(geom.size))]
    return body.add_geom(type=_KINDS[geom.kind], size=size, pos=geom.pos, quat=_unit(geom.quat), mass=0.0)


def drawn_spec(spec: mujoco.MjSpec) -> mujoco.MjSpec:
    """Return the model with Menagerie's meshes instead of the arm's primitives, if MENAGERIE_ROOT names a checkout.

    Only for pictures: no body or joint changes.
    """
    root = os.environ.get(MENAGERIE)
    if not root:
        return spec
    path = Path(root) / MENAGERIE_FILE
    if not path.is_file():
        raise UserError(f"{MENAGERIE} is {root}, which has no {MENAGERIE_FILE}: name a checkout of MuJoCo Menagerie")
    menagerie = mujoco.MjSpec.from_file(str(path))
    folder = path.parent / menagerie.meshdir
    meshes = {mesh.name or Path(mesh.file).stem: mesh for mesh in menagerie.meshes}
    links = {link.name for link in so101.LINKS}
    for geom in list(spec.geoms):
        if geom.parent.name in links:
            spec.delete(geom)
    for body in menagerie.bodies:
        for geom in body.geoms if body.name in links else ():
            if geom.type != _GEOM.mjGEOM_MESH or geom.meshname not in meshes:
                continue
            if spec.mesh(geom.meshname) is None:
                mesh = meshes[geom.meshname]
                spec.add_mesh(name=geom.meshname, file=str((folder / mesh.file).resolve()), scale=mesh.scale)
            kind = {"type": _GEOM.mjGEOM_MESH, "meshname": geom.meshname, "mass": 0.0}
            spec.body(body.name).add_geom(**kind, pos=geom.pos, quat=geom.quat)
    return spec
