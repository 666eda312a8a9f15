"""The SO-101 arm in MuJoCo, without JAX: its model, and a simulated arm with the interface of LeRobot's `Robot`.

The model is built in code from the figures of `dcp.robots.so101`: primitives, no meshes. The simulated arm has a real
one's bus, units and delays. Its physics follows the clock: each read or send finds the arm where it would be by now.
Faults of a real bus can be set: lost packets, a bus that hangs, a joint that is pushed beyond its limits.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import mujoco
import numpy as np

from dcp.errors import UserError
from dcp.robots import so101
from dcp.robots.so101_arm import CUBE, FEATURES, Units, from_radians, to_radians
from dcp.robots.timing import Clock

_GEOM = mujoco.mjtGeom
_KINDS = {"box": _GEOM.mjGEOM_BOX, "sphere": _GEOM.mjGEOM_SPHERE, "capsule": _GEOM.mjGEOM_CAPSULE}
CUBE_HALF = 0.015  # metres: it fits between the jaws
CUBE_MASS = 0.025
TIMESTEP = 0.005
LONGEST = 1.0  # seconds of physics in one call; after a longer pause the arm has come to rest anyway
MIDDLE = 2048  # the encoder's ticks at an angle of zero
START = (0.0, -0.5, 0.6, 0.9, 0.0, 0.0)


# The model


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


# The simulated arm


class Errors:
    """Draw what makes one arm differ from the model, for the kinds of `so101.RANGES` that are named."""

    def __init__(self, kinds: tuple[str, ...], seed: int, delay: float):
        random = np.random.default_rng(seed)
        errors = {kind: random.uniform(low, high, 6) for kind, (low, high) in so101.RANGES.items()}
        self.factors = {kind: errors[kind][0] for kind in so101.VARIED if kind in kinds}
        self.offsets = errors["offsets"] * ("offsets" in kinds)  # [6]: radians
        self.phases = errors["encoders"] * ("encoders" in kinds)  # [6]: radians
        steps = random.integers(0, so101.MAX_DELAY + 1, 2) / so101.RATE_HZ
        self.of_readings, self.of_commands = steps.tolist() if "delay" in kinds else (0.0, delay)  # seconds


class SimulatedBus:
    """Simulate six servos on a serial line, as LeRobot's FeetechMotorsBus shows them. Positions are encoder ticks."""

    def __init__(self, start: Any, cube: Any, errors: Errors, clock: Clock):
        self.model = table_spec(TIMESTEP, cube is not None).compile()
        for kind, factor in errors.factors.items():
            for name in so101.VARIED[kind]:
                getattr(self.model, name)[:] *= factor
        self._gain, self._bias = self.model.actuator_gainprm.copy(), self.model.actuator_biasprm.copy()
        self.data = mujoco.MjData(self.model)
        self.data.qpos[:6] = self.data.ctrl[:] = np.clip(np.asarray(start, float), so101.LOW, so101.HIGH)
        if cube is not None:
            self.data.qpos[6:9] = [*np.asarray(cube, float)[:2], CUBE_HALF]
        self.errors, self.clock = errors, clock
        self.is_connected = self.has_torque = False
        self.lost = 0  # how many of the next packets are lost
        self.hang = 0.0  # seconds that the next packet takes
        self._time = clock.now()
        self._waiting: deque[tuple[float, np.ndarray]] = deque()  # when each target arrives at the servos
        self._seen: deque[np.ndarray] = deque(maxlen=1 + round(errors.of_readings / TIMESTEP))  # [6]: angles, delayed
        self._seen.append(self.data.qpos[:6].copy())

    def sync_read(self, name: str) -> dict[str, int]:
        """Return Present_Position of every servo, in ticks."""
        self._packet()
        if name != "Present_Position":
            raise KeyError(name)
        angles = self._seen[0] + self.errors.offsets + self.errors.phases
        ticks = np.round(angles / (2 * np.pi) * so101.TICKS_PER_TURN).astype(int) + MIDDLE
        return dict(zip(so101.JOINTS, ticks.tolist(), strict=True))

    def sync_write(self, name: str, targets: Mapping[str, int]) -> None:
        """Send Goal_Position to the servos, in ticks. It arrives after the delay."""
        self._packet()
        if name != "Goal_Position":
            raise KeyError(name)
        ticks = np.array([targets[joint] for joint in so101.JOINTS], float)
        angles = (ticks - MIDDLE) / so101.TICKS_PER_TURN * 2 * np.pi - self.errors.offsets - self.errors.phases
        target = np.clip(angles, so101.LOW, so101.CONTROL_HIGH)
        self._waiting.append((self.clock.now() + self.errors.of_commands, target))

    def _packet(self) -> None:
        if not self.is_connected:
            raise ConnectionError("the simulated bus is not connected")
        if self.hang:
            seconds, self.hang = self.hang, 0.0
            self.clock.sleep(seconds)
        self.advance()
        if self.lost > 0:
            self.lost -= 1
            raise ConnectionError("Failed to sync read 'Present_Position': no status packet")

    def advance(self) -> None:
        """Advance the physics to the present time."""
        now = self.clock.now()
        self._time = max(self._time, now - LONGEST)
        while self._time + TIMESTEP <= now:
            while self._waiting and self._waiting[0][0] <= self._time:
                self.data.ctrl[:] = self._waiting.popleft()[1]
            self.model.actuator_gainprm[:] = self._gain * self.has_torque
            self.model.actuator_biasprm[:] = self._bias * self.has_torque
            mujoco.mj_step(self.model, self.data)
            self._time += TIMESTEP
            self._seen.append(self.data.qpos[:6].copy())


class SimulatedSo101:
    """Provide the interface of `lerobot.robots.SO101Follower`, without the manual calibration."""

    name = "simulated_so101"

    def __init__(
        self,
        *,
        units: Units = "degrees",
        start: Any = START,  # radians
        cube: Any = None,  # its place on the table, x and y; None: no cube
        delay: float = 0.02,  # seconds from a command to the servos, unless `randomize` draws it
        randomize: str | None = None,  # the errors of a real arm: kinds of `so101.RANGES`, or all
        seed: int = 0,  # decides what `randomize` draws
        max_relative_target: float | None = None,  # in the robot's units, like LeRobot's setting of this name
        clock: Clock | None = None,
    ):
        self.units: Units = units
        self.max_relative_target = max_relative_target
        errors = Errors(so101.kinds_of(randomize) if randomize else (), seed, delay)
        self.bus = SimulatedBus(start, cube, errors, clock or Clock())
        self.observation_features = dict.fromkeys(FEATURES + (CUBE if cube is not None else ()), float)
        self.action_features = dict.fromkeys(FEATURES, float)
        self.sent: list[dict[str, float]] = []

    @property
    def is_connected(self) -> bool:
        return self.bus.is_connected

    @property
    def is_calibrated(self) -> bool:
        return True

    def connect(self, calibrate: bool = True) -> None:
        if self.is_connected:
            raise UserError("the simulated arm is already connected: disconnect it first")
        self.bus.is_connected = self.bus.has_torque = True

    def calibrate(self) -> None:
        """Do nothing, because the robot's zero is the model's."""

    def get_observation(self) -> dict[str, float]:
        ticks = self.bus.sync_read("Present_Position")
        observation = {f"{joint}.pos": self._from_ticks(i, ticks[joint]) for i, joint in enumerate(so101.JOINTS)}
        if CUBE[0] in self.observation_features:
            observation |= dict(zip(CUBE, self.bus.data.qpos[6:9].tolist(), strict=True))
        return observation

    def send_action(self, action: Mapping[str, float]) -> dict[str, float]:
        target = {name: float(action[name]) for name in FEATURES}
        if self.max_relative_target is not None:
            present, most = self.get_observation(), self.max_relative_target
            target = {name: float(np.clip(x, present[name] - most, present[name] + most)) for name, x in target.items()}
        ticks = {joint: self._to_ticks(i, target[f"{joint}.pos"]) for i, joint in enumerate(so101.JOINTS)}
        self.bus.sync_write("Goal_Position", ticks)
        self.sent.append(target)
        return target

    def disconnect(self) -> None:
        """Release the servos, as LeRobot's disable_torque_on_disconnect does."""
        self.bus.has_torque = self.bus.is_connected = False

    def _from_ticks(self, joint: int, ticks: int) -> float:
        return from_radians(self.units, joint, (ticks - MIDDLE) / so101.TICKS_PER_TURN * 2 * np.pi)

    def _to_ticks(self, joint: int, value: float) -> int:
        return round(to_radians(self.units, joint, value) / (2 * np.pi) * so101.TICKS_PER_TURN) + MIDDLE
