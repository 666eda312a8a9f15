"""Gymnasium-Robotics' four Fetch tasks: its models, observations, starts, goals and limits (v4 of release 1.4.2).

The models and meshes are read from the installed package's files, without importing it: under our MuJoCo its code
fails. An action displaces the gripper by up to 5 cm along each axis; its fourth number opens or closes the fingers,
which only `fetch_pick_and_place` allows.
"""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.envs.mujoco_task import Chain, MujocoTask
from dcp.errors import UserError, install_hint
from dcp.physics.mujoco_engine import MujocoState
from dcp.types import Array

PACKAGE = "gymnasium_robotics"
FRAMES = 20  # of 0.002 s: 25 steps per second
DT = FRAMES * 0.002  # what observed speeds are multiplied by
GRIP, HAND, MOCAP, OBJECT = "robot0:grip", "robot0:gripper_link", "robot0:mocap", "object0"
FINGERS = ("robot0:l_gripper_finger_joint", "robot0:r_gripper_finger_joint")
DOWNWARD = (1.0, 0.0, 1.0, 0.0)  # is added to the gripper's quaternion for that of the mocap body
LEAST, TRIES = 0.1, 128  # metres between gripper and object at the start, and draws until one has it
HIGHEST = 0.45  # metres of a goal in the air above the table
# The spreads of --normalize task: metres; of gripper to object, where a centimetre decides a grasp; radians; per step.
PLACE_SPREAD, RELATIVE_SPREAD, FINGER_SPREAD, ANGLE_SPREAD = 0.1, 0.05, 0.025, 0.5
SPEED_SPREAD, TURNING_SPREAD = 0.015, 0.025


class Kind(NamedTuple):
    """Say what distinguishes a task. The start is recorded from the package, which lets the arm settle first: under our
    MuJoCo it would settle elsewhere, by up to 2 cm, because the fingers touch the table (docs/environments.md)."""

    file: str
    base: float  # the robot's place along x
    arm: tuple[float, ...]  # seven joints, then the right and the left finger
    arm_speed: tuple[float, ...]
    goal_range: float  # metres to either side of the gripper
    object_pose: tuple[float, ...] = ()  # height and quaternion
    object_speed: tuple[float, ...] = ()
    object_range: float = 0.15
    goal_offset: float = 0.0  # along x
    grasps: bool = False  # the fingers move, and half of the goals are in the air


# fmt: off
BASE, BASE_SPEED = (0.48, 2.99e-7, 0.00125632, 0.0, 0.0600288), (0.0, 0.0, 3.14e-7, 0.00327702, 0.0, 7.22106e-05)
ABOVE = (0.00995056, -0.825639, -0.00362417, 1.44389, 0.00306072, 0.953218, 0.00551815)
ABOVE_SPEED = (0.000746363, 0.00647108, -0.00139205, -0.00219983, 0.0011033, -0.00116029, -0.000928445)
BLOCK, BLOCK_SPEED = (0.424702, 1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0011707, 0.0, 0.0, 0.0)
KINDS = {
    "fetch_reach": Kind(
        "reach.xml", 0.4049, (*ABOVE, 0.000390056, 1.17026e-05), (*ABOVE_SPEED, 0.00016639, -7.35458e-05), 0.15
    ),
    "fetch_push": Kind(
        "push.xml", 0.405,
        (0.0123825, -0.589417, -0.00543522, 1.45314, 0.00213883, 0.699145, 0.00758073, 0.0, 0.00121363),
        (0.00532216, 0.00275843, -0.00396937, 0.00777431, 0.000282214, 0.0216643, 0.00307556, 0.0, 0.00187139),
        0.15, BLOCK, BLOCK_SPEED,
    ),
    "fetch_slide": Kind(
        "slide.xml", 0.0499999,
        (0.0139815, -0.586467, -0.00672922, 1.45074, 0.00103377, 0.693259, 0.00915512, 0.0, 0.00155594),
        (0.0096006, 0.000791797, -0.00693752, 0.0119284, -0.00206487, 0.0357189, 0.00746359, 0.0, 0.00295853),
        0.3, (0.413538, 0.999942, -0.0017831, -4.94266e-05, 0.010594),
        (0.000883081, 0.00268619, 0.000887483, -0.514832, -0.00319732, 0.177396), 0.1, 0.4,
    ),
    "fetch_pick_and_place": Kind(
        "pick_and_place.xml", 0.405, (*ABOVE, 0.0, 0.0), (*ABOVE_SPEED, 0.0, 0.0), 0.15, BLOCK, BLOCK_SPEED, grasps=True
    ),
}
# fmt: on


class Fetch(MujocoTask):
    """State: the gripper's place; the object's, also relative to the gripper; the fingers; the object's Euler angles,
    speed relative to the gripper, and turning; the gripper's speed; the fingers' speeds. Speeds are metres per step.
    """

    def __init__(self, name: str):
        self.kind = KINDS[name]
        file = assets() / "fetch" / self.kind.file
        if not file.is_file():
            raise UserError(f"{PACKAGE} has no file {file.name} in {file.parent}: {install_hint('fetch')}")
        super().__init__(
            name,
            _edited(mujoco.MjSpec.from_file(str(file))),
            goal=f"site:{OBJECT if self.kind.object_pose else GRIP}",
            goals=self._draw_goal,
            threshold=0.05,
            episode_length=50,
            observe=(),
            control=f"mocap:{MOCAP}",
            frames=FRAMES,
            starts=self._draw_start,
            # The package reads where the bodies were one time step ago, unless it has just put the fingers back.
            links="lagging" if self.kind.grasps else "current",
            zeroed=() if self.kind.grasps else FINGERS,
        )
        self.spec = replace(self.spec, scale=self._scale())

    def _set_control(self, control: str) -> int:
        super()._set_control(control)
        self._begin_as_recorded()
        self._arm = self.chain(GRIP)
        self._fingers = [self._joint(finger) for finger in reversed(FINGERS)]  # the model has the right one first
        self._hand = self._find("body", HAND) - 1
        if self.kind.object_pose:
            self._object = self.field("site_xpos", self._find("site", OBJECT))
            self._object_turn = self.field("site_xmat", self._find("site", OBJECT))
            self._object_speed = self._joint(f"{OBJECT}:joint")[1]
        return 4

    def _begin_as_recorded(self) -> None:
        kind, data = self.kind, mujoco.MjData(self.compiled)
        data.qpos[:] = [kind.base, *BASE, *kind.arm, *((0.0, 0.0, *kind.object_pose) if kind.object_pose else ())]
        data.qvel[:] = [*BASE_SPEED, *kind.arm_speed, *kind.object_speed]
        self.q0, self.qd0 = data.qpos.astype(np.float32), data.qvel.astype(np.float32)
        # The package measures from where gripper and object were one time step earlier.
        mujoco.mj_integratePos(self.compiled, data.qpos, data.qvel, -self.compiled.opt.timestep)
        mujoco.mj_kinematics(self.compiled, data)
        self.grip0 = data.site(GRIP).xpos.astype(np.float32)
        self.height0 = float(data.site(OBJECT).xpos[2]) if kind.object_pose else 0.0

    def _scale(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return centre and spread of each number of a state, for --normalize task."""
        grip, still = tuple(map(float, self.grip0)), (0.0, 0.0, 0.0)
        fingers, speed = (FINGER_SPREAD,) * 2, (SPEED_SPREAD,) * 3
        if not self.kind.object_pose:
            return (*grip, *fingers, *still, 0.0, 0.0), (*(PLACE_SPREAD,) * 3, *fingers, *speed, *fingers)
        place = (*grip[:2], self.height0)
        centre = (*grip, *place, *still, *fingers, *still, *still, *still, *still, 0.0, 0.0)
        turning, relative = (TURNING_SPREAD,) * 3, (RELATIVE_SPREAD,) * 3
        places = (*(PLACE_SPREAD,) * 6, *relative, *fingers)
        return centre, (*places, *(ANGLE_SPREAD,) * 3, *speed, *turning, *speed, *fingers)

    def goal_dims(self, goal_size: int) -> tuple[int, ...]:
        return (3, 4, 5) if self.kind.object_pose else (0, 1, 2)

    def observe_body(self, body: MujocoState) -> Array:
        arm: Chain = self._arm
        grip = body.read["site_xpos"][arm.site]  # pyright: ignore[reportArgumentType, reportCallIssue]
        speed = DT * (arm.jacobian(body) @ body.qd[arm.qd])
        fingers = [body.q[place] for place, _ in self._fingers]
        moving = [DT * body.qd[speed] for _, speed in self._fingers]
        if not self.kind.object_pose:
            return jnp.concatenate([grip, *fingers, speed, *moving])
        place, turn = self._object(body), self._object_turn(body).reshape(3, 3)
        own = DT * body.qd[self._object_speed]  # a free joint's turning is in the object's own frame
        return jnp.concatenate(
            [grip, place, place - grip, *fingers, euler(turn), own[:3] - speed, turn @ own[3:], speed, *moving]
        )

    def actuate(self, body: MujocoState, action: Array) -> tuple[Array, Array | None]:
        place = body.x.pos[self._hand] + self.max_change * action[:3]
        turn = body.x.rot[self._hand] + jnp.asarray(DOWNWARD)
        fingers = [body.q[place] + action[3:] for place, _ in reversed(self._fingers)][: self.compiled.nu]
        return jnp.concatenate([jnp.zeros(0), *fingers]), jnp.concatenate([place, turn])[None]

    def _draw_start(self, key: Array) -> tuple[Array, Array]:
        q = jnp.asarray(self.q0)
        if self.kind.object_pose:
            spread = self.kind.object_range
            tries = jax.random.uniform(key, (TRIES, 2), minval=-spread, maxval=spread)
            far = jnp.linalg.norm(tries, axis=1) >= LEAST
            at = self._joint(f"{OBJECT}:joint")[0].start
            q = q.at[at : at + 2].set(self.grip0[:2] + tries[jnp.argmax(far)])
        return q, jnp.asarray(self.qd0)

    def _draw_goal(self, key: Array, achieved: Array) -> Array:
        key_place, key_air, key_height = jax.random.split(key, 3)
        kind, spread = self.kind, self.kind.goal_range
        goal = self.grip0 + jax.random.uniform(key_place, (3,), minval=-spread, maxval=spread)
        if not kind.object_pose:
            return goal
        above = jax.random.uniform(key_height, maxval=HIGHEST) * jax.random.bernoulli(key_air) * kind.grasps
        return goal.at[0].add(kind.goal_offset).at[2].set(self.height0 + above)


def assets() -> Path:
    """Return the folder of the installed package's models. Nothing of the package runs."""
    package = find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise UserError(f"the Fetch tasks read their models from {PACKAGE}: {install_hint('fetch')}")
    return Path(package.submodule_search_locations[0]) / "envs" / "assets"


def _edited(spec: mujoco.MjSpec) -> mujoco.MjSpec:
    """Weld the gripper to the mocap body itself, as the package does after compiling. Hide that body and the sites."""
    for weld in spec.equalities:
        weld.data[:10] = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    for geom in (*spec.body(MOCAP).geoms, *spec.sites):
        geom.rgba[3] = 0.0
    return spec


def euler(turn: Any) -> Array:
    """Return the package's Euler angles [3] of a rotation matrix [3, 3]."""
    cy = jnp.sqrt(turn[2, 2] ** 2 + turn[1, 2] ** 2)
    steep = cy <= 4.0 * np.finfo(np.float64).eps
    z = jnp.where(steep, -jnp.arctan2(-turn[1, 0], turn[1, 1]), -jnp.arctan2(turn[0, 1], turn[0, 0]))
    x = jnp.where(steep, 0.0, -jnp.arctan2(turn[1, 2], turn[2, 2]))
    return jnp.stack([x, -jnp.arctan2(-turn[0, 2], cy), z])
