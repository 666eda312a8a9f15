"""The SO-101 arm's tasks: reach a place, with or without a tilt, push a cube over the table, lift it.

A state holds what the real arm can measure: joint angles, their change since the last reading, and the tool point that
follows from them; and the cube's place, which needs a camera. An action is a change of the present pose, bounded like
LeRobot's `max_relative_target`, and the servos get the resulting target. In the cube's tasks it may be the tool point's
displacement instead (`by_tool`), and the state then has the cube's place relative to the tool, too.
"""

from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.config import cores
from dcp.envs.base import EnvState
from dcp.envs.physics_env import MUJOCO, PhysicsEnv
from dcp.physics import Engine, PhysicsState
from dcp.robots import so101
from dcp.robots.so101 import MAX_DELAY, RANGES, VARIED
from dcp.robots.so101_simulated import CUBE_HALF, table_spec
from dcp.types import Array, EnvSpec

FRAMES = 6  # of 1/180 s: a control step is LeRobot's 1/30 s
STEP = 1.0 / so101.RATE_HZ
HOME = np.array([0.0, -0.5, 0.6, 0.9, 0.0, 0.0])  # the tool point ahead and low, the jaws closed
SPREAD = np.array([1.2, 0.5, 0.4, 0.4, 0.6, 0.0])  # of the reaching tasks' starts around HOME
START_HEIGHTS = (0.04, np.inf)  # metres of the tool point above the table
# The cube's tasks start with the tool low and beside the cube: from farther away random actions hardly ever touch it,
# and a policy learns to leave it alone (docs/so101.md).
CUBE_HOME = np.array([0.0, 0.35, -0.2, 1.35, 0.0, 0.0])  # the gripper points down
CUBE_SPREAD = np.array([0.6, 0.1, 0.1, 0.1, 0.1, 0.0])
CUBE_START_HEIGHTS = (0.03, 0.05)
BESIDE = (0.04, 0.07)  # metres from the tool point to the cube over the table
CUBE_RADII, CUBE_ANGLE = (0.19, 0.30), 0.7  # from the pan axis; radians to either side
LEAST_PUSH = 0.06  # metres between cube and goal at the start
LIFT_HEIGHTS = (0.05, 0.15)
# Limits of a goal with a tilt: the gripper points down by at least 30 degrees. Flatter or lower, near the base, it
# would touch the table.
FLATTEST, LEAST_TILTED = -0.5, 0.06
TRIES = 32
# What inputs of about unit size are measured from and by, for --normalize task
SPEED_SPREAD, PLACE_SPREAD, RELATIVE_SPREAD = 1 / 0.3, 0.1, 0.05  # rad/s, metres, metres; angles: 1 rad
CUBE_CENTRE = (0.27, 0.0, 0.02)


class Draw(NamedTuple):
    """Hold an episode's random draws; neutral for what is not randomised."""

    factors: Array  # [3]: of gains, friction, masses
    delays: Array  # int32 [2]: of readings, of commands
    offsets: Array  # [6]
    phases: Array  # [6]


class ArmState(NamedTuple):
    """Hold all that the next step needs. Both histories start with the newest."""

    body: PhysicsState
    goal: Array  # [G]
    readings: Array  # [4, 6 + 3]: joint angles as the encoders give them, and the cube's place
    commands: Array  # [3, 6]: targets that the servos get 0, 1 and 2 steps later
    draw: Draw

    @property
    def q(self) -> Array:
        return self.body.q

    @property
    def qd(self) -> Array:
        return self.body.qd

    @property
    def x(self) -> Any:
        return self.body.x


class So101Task(PhysicsEnv):
    """Share what the arm's tasks have. State: the moved joints' angles and speeds, the tool point, the task's own."""

    links = "lagging"  # the tool point follows from the angles, and the cube's place is in q
    moved = 5  # joints that the policy moves; the jaws stay closed
    cube = False
    home, spread, heights = HOME, SPREAD, START_HEIGHTS
    tool_centre = (0.27, 0.0, 0.2)

    def __init__(self, name: str, goal_size: int, more: int, threshold: float, episode_length: int):
        state_size = 2 * self.moved + 3 + more
        self.randomize: tuple[str, ...] = ()
        self.spec = EnvSpec(
            name=name,
            state_size=state_size,
            goal_size=goal_size,
            action_size=self.moved,
            goal_dims=self.goal_dims(),
            threshold=threshold,
            episode_length=episode_length,
            physics=MUJOCO,
            scale=(
                (0.0,) * 2 * self.moved + self.tool_centre + (CUBE_CENTRE if self.cube else (0.0,) * more),
                (1.0,) * self.moved + (SPEED_SPREAD,) * self.moved + (PLACE_SPREAD,) * (3 + more),
            ),
        )

    def goal_dims(self) -> tuple[int, ...]:
        return tuple(range(2 * self.moved, 2 * self.moved + 3))

    def randomized(self, kinds: str) -> Self:
        """Return this task with these kinds of `RANGES` drawn in each episode: gains,delay, or all."""
        task = self.by_mujoco()
        task.randomize = so101.kinds_of(kinds)
        return task

    # The model

    def model(self) -> mujoco.MjSpec:
        return table_spec(STEP / FRAMES, self.cube)

    def make_engine(self) -> Engine:
        return self.make_mujoco_engine()

    def make_mujoco_engine(self) -> Engine:
        from dcp.physics.mujoco_engine import MujocoEngine

        varied = tuple(VARIED.values()) if self.varies_model else ()
        return MujocoEngine(self.model().compile(), FRAMES, cores(), self.links, varied)

    @property
    def varies_model(self) -> bool:
        return any(kind in VARIED for kind in self.randomize)

    # Starts and goals

    def draw(self, key: Array) -> tuple[Array, Array]:
        key_arm, key_cube = jax.random.split(key)
        home, spread = jnp.asarray(self.home)[None], jnp.asarray(self.spread)[None]  # [1, 6] each
        tries = home + spread * jax.random.uniform(key_arm, (TRIES, 6), minval=-1.0, maxval=1.0)
        poses, (low, high) = jnp.concatenate([tries, home]), self.heights
        heights = so101.tool_pose(tries, jnp)[0][:, 2]
        q = _first((heights >= low) & (heights <= high), poses)
        if self.cube:
            upright = jnp.array([CUBE_HALF, 1.0, 0.0, 0.0, 0.0])
            q = jnp.concatenate([q, draw_beside(key_cube, so101.tool_pose(q, jnp)[0][:2]), upright])
        return q, jnp.zeros(6 + 6 * self.cube)

    def draw_goal(self, key: Array, q: Array) -> Array:
        return draw_in_reach(key)

    def draw_episode(self, key: Array) -> Draw:
        keys = dict(zip(RANGES, jax.random.split(key, len(RANGES)), strict=True))

        def uniform(kind: str, shape: tuple[int, ...], neutral: float) -> Array:
            low, high = RANGES[kind]
            if kind not in self.randomize:
                return jnp.full(shape, neutral)
            return jax.random.uniform(keys[kind], shape, minval=low, maxval=high)

        delays = jnp.zeros(2, jnp.int32)
        if "delay" in self.randomize:
            delays = jax.random.randint(keys["delay"], (2,), 0, MAX_DELAY + 1)
        factors = jnp.concatenate([uniform(kind, (1,), 1.0) for kind in VARIED])
        return Draw(factors, delays, uniform("offsets", (6,), 0.0), uniform("encoders", (6,), 0.0))

    def reset(self, key: Array) -> EnvState:
        key_start, key_goal, key_episode = jax.random.split(key, 3)
        q, qd = self.draw(key_start)
        return self._begin(q, qd, self.draw_goal(key_goal, q), self.draw_episode(key_episode))

    def reset_toward(self, key: Array, goal: Array) -> EnvState:
        """Return the start that `reset` draws, with this goal [G] instead of the drawn one."""
        key_start, _, key_episode = jax.random.split(key, 3)
        return self._begin(*self.draw(key_start), goal, self.draw_episode(key_episode))

    def reset_to(self, q: Array, qd: Array) -> EnvState:
        """Start from q and qd, with the goal and the episode's draws of key 0."""
        q, qd = jnp.asarray(q, jnp.float32), jnp.asarray(qd, jnp.float32)
        return self._begin(q, qd, self.draw_goal(jax.random.key(0), q), self.draw_episode(jax.random.key(0)))

    def _begin(self, q: Array, qd: Array, goal: Array, draw: Draw) -> EnvState:
        body = self.engine.init(q, qd)
        reading = self._read(body, draw)
        readings = jnp.tile(reading, (MAX_DELAY + 2, 1))  # the arm was at rest before
        commands = jnp.tile(reading[:6], (MAX_DELAY + 1, 1))
        return self._env_state(ArmState(body, goal, readings, commands, draw))

    # A step

    def step(self, state: EnvState, action: Array) -> EnvState:
        arm: ArmState = state.physics
        present = arm.readings[arm.draw.delays[0], :6]
        change = jnp.zeros(6).at[: self.moved].set(self.change(present, action))
        target = jnp.clip(present + change, jnp.asarray(so101.LOW), jnp.asarray(so101.HIGH))
        if self.moved == 5:
            target = target.at[5].set(HOME[5])
        commands = jnp.concatenate([target[None], arm.commands[:-1]])
        control = commands[arm.draw.delays[1]] - arm.draw.offsets  # the servo counts from its own zero
        factors = (arm.draw.factors,) if self.varies_model else ()
        body = self.engine.step(arm.body, control, *factors)
        readings = jnp.concatenate([self._read(body, arm.draw)[None], arm.readings[:-1]])
        return self._env_state(arm._replace(body=body, readings=readings, commands=commands))

    def change(self, pose: Array, action: Array) -> Array:
        """Return the change of the moved joints [5 or 6] that an action [A] asks for at a pose [6]."""
        return so101.MAX_CHANGE * jnp.clip(action, -1.0, 1.0)

    def _read(self, body: PhysicsState, draw: Draw) -> Array:
        """Return the sensors' present readings: [6 + 3]."""
        angles = body.q[:6] + draw.offsets
        if "encoders" in self.randomize:
            tick = 2 * np.pi / so101.TICKS_PER_TURN
            angles = jnp.round((angles + draw.phases) / tick) * tick - draw.phases
        return jnp.concatenate([angles, body.q[6:9] if self.cube else jnp.zeros(3)])

    def _env_state(self, arm: ArmState) -> EnvState:
        readings = jax.lax.dynamic_slice_in_dim(arm.readings, arm.draw.delays[0], 2)  # [2, 9]: now and before
        state = self.observe_readings(readings)
        near_goal = jnp.linalg.norm(self.achieved(arm.body.q) - arm.goal) < self.spec.threshold
        obs = jnp.concatenate([state, arm.goal])
        return EnvState(obs, near_goal.astype(jnp.float32), jnp.zeros((), bool), near_goal, arm)

    def observe_readings(self, readings: Array) -> Array:
        """Return the state [S] from two readings [2, 9], the newer first."""
        angles = readings[0, : self.moved]
        speeds = (angles - readings[1, : self.moved]) / STEP
        return jnp.concatenate([angles, speeds, so101.tool_pose(readings[0, :5], jnp)[0], self.extra(readings[0])])

    def observe(self, physics: PhysicsState, control: Array) -> tuple[Array, Array]:
        raise NotImplementedError("the arm's state follows from its readings: see observe_readings")

    def extra(self, reading: Array) -> Array:
        """Return what the task adds to the state: [K]."""
        return reading[6:9] if self.cube else jnp.zeros(0)

    def achieved(self, q: Array) -> Array:
        """Return the true achieved goal [G], not the sensors' reading of it."""
        return so101.tool_pose(q[:5], jnp)[0]


class Reach(So101Task):
    """Reach a place with the tool point, which is the goal."""

    def __init__(self, name: str = "so101_reach"):
        super().__init__(name, goal_size=3, more=0, threshold=0.02, episode_length=100)


class ReachPose(So101Task):
    """Reach a pose. Goal: the tool point's place, and the gripper's tilt as a length (`so101.tilt_of`; 0.03 is 17
    degrees)."""

    def __init__(self, name: str = "so101_reach_pose"):
        super().__init__(name, goal_size=4, more=1, threshold=0.03, episode_length=100)

    def goal_dims(self) -> tuple[int, ...]:
        return tuple(range(2 * self.moved, 2 * self.moved + 4))

    def extra(self, reading: Array) -> Array:
        return so101.tilt_of(so101.tool_pose(reading[:5], jnp)[1])[None]

    def achieved(self, q: Array) -> Array:
        place, turn = so101.tool_pose(q[:5], jnp)
        return jnp.append(place, so101.tilt_of(turn))

    def draw_goal(self, key: Array, q: Array) -> Array:
        """Return the place and tilt of a drawn pose: the first of many in the goals' range that points down."""
        low, high = jnp.asarray(so101.LOW[None, :5]), jnp.asarray(so101.HIGH[None, :5])
        poses = jax.random.uniform(key, (8 * TRIES, 5), minval=low, maxval=high)
        poses = jnp.concatenate([poses, jnp.asarray(HOME[:5])[None]])
        places, turns = so101.tool_pose(poses, jnp)
        good = so101.in_reach(places, jnp) & (turns[:, 2, 2] <= FLATTEST) & (places[:, 2] >= LEAST_TILTED)
        return _first(good[:-1], jnp.concatenate([places, so101.tilt_of(turns)[:, None]], axis=1))


class CubeTask(So101Task):
    """Move a cube, whose place is in the state, by the joints or by the tool point."""

    cube, home, spread, heights = True, CUBE_HOME, CUBE_SPREAD, CUBE_START_HEIGHTS
    tool_centre = (0.27, 0.0, 0.05)

    def by_tool(self) -> Self:
        """Return this task with the tool point's displacement as its action (`so101.change_by_tool`).

        The state ends with the cube's place relative to the tool point, in the goal's dimensions.
        """
        task, size = copy(self), self.spec.goal_size
        assert self.spec.scale is not None
        centre, spread = self.spec.scale
        task.spec = replace(
            self.spec,
            control="tool",
            state_size=self.spec.state_size + size,
            action_size=size + self.moved - 5,
            scale=(centre + (0.0,) * size, spread + (RELATIVE_SPREAD,) * size),
        )
        return task

    def change(self, pose: Array, action: Array) -> Array:
        by_tool = self.spec.control == "tool"
        return so101.change_by_tool(pose, action, jnp) if by_tool else super().change(pose, action)

    def observe_readings(self, readings: Array) -> Array:
        state = super().observe_readings(readings)
        if self.spec.control != "tool":
            return state
        tool, cube = jnp.split(state[2 * self.moved :], 2)
        return jnp.concatenate([state, (cube - tool)[: self.spec.goal_size]])


class Push(CubeTask):
    """Push a cube to a place on the table, which is the goal."""

    def __init__(self, name: str = "so101_push"):
        super().__init__(name, goal_size=2, more=3, threshold=0.03, episode_length=150)

    def goal_dims(self) -> tuple[int, ...]:
        return (2 * self.moved + 3, 2 * self.moved + 4)

    def achieved(self, q: Array) -> Array:
        return q[6:8]

    def draw_goal(self, key: Array, q: Array) -> Array:
        tries = jax.vmap(draw_on_table)(jax.random.split(key, TRIES))  # [TRIES, 2]
        return _first(jnp.linalg.norm(tries[:-1] - q[None, 6:8], axis=1) >= LEAST_PUSH, tries)


class Lift(CubeTask):
    """Lift a cube to a place in the air, which is the goal. The policy moves the jaws too."""

    moved = 6

    def __init__(self, name: str = "so101_lift"):
        super().__init__(name, goal_size=3, more=3, threshold=0.03, episode_length=150)

    def goal_dims(self) -> tuple[int, ...]:
        return tuple(range(2 * self.moved + 3, 2 * self.moved + 6))

    def achieved(self, q: Array) -> Array:
        return q[6:9]

    def draw_goal(self, key: Array, q: Array) -> Array:
        key_place, key_height = jax.random.split(key)
        low, high = LIFT_HEIGHTS
        return jnp.append(draw_on_table(key_place), jax.random.uniform(key_height, minval=low, maxval=high))


TASKS = {"so101_reach": Reach, "so101_reach_pose": ReachPose, "so101_push": Push, "so101_lift": Lift}


def draw_on_table(key: Array) -> Array:
    """Draw a place uniformly from a part of a ring in front of the arm: [2]."""
    key_radius, key_angle = jax.random.split(key)
    low, high = CUBE_RADII
    radius = jnp.sqrt(jax.random.uniform(key_radius, minval=low**2, maxval=high**2))
    angle = jax.random.uniform(key_angle, minval=-CUBE_ANGLE, maxval=CUBE_ANGLE)
    return jnp.asarray(so101.PAN_AXIS) + radius * jnp.array([jnp.cos(angle), jnp.sin(angle)])


def draw_beside(key: Array, tool: Array) -> Array:
    """Draw the cube's place [2] beside the tool point's [2], at any side where the arm can push it."""
    key_gap, key_side = jax.random.split(key)
    gaps = jax.random.uniform(key_gap, (TRIES + 1, 1), minval=BESIDE[0], maxval=BESIDE[1])
    sides = jax.random.uniform(key_side, (TRIES + 1,), minval=-np.pi, maxval=np.pi)
    tries = tool[None] + gaps * jnp.stack([jnp.cos(sides), jnp.sin(sides)], axis=1)  # [TRIES + 1, 2]
    radii = jnp.linalg.norm(tries[:-1] - jnp.asarray(so101.PAN_AXIS)[None], axis=1)
    return _first((radii >= CUBE_RADII[0]) & (radii <= CUBE_RADII[1]), tries)


def draw_in_reach(key: Array) -> Array:
    """Draw a place uniformly from the shell of `so101.in_reach`, by rejection: [3]."""
    key_radius, key_angle, key_height = jax.random.split(key, 3)
    low, high = so101.RADII
    radii = jnp.sqrt(jax.random.uniform(key_radius, (TRIES,), minval=low**2, maxval=high**2))
    angles = jax.random.uniform(key_angle, (TRIES,), minval=-so101.WIDEST, maxval=so101.WIDEST)
    heights = jax.random.uniform(key_height, (TRIES,), minval=so101.HEIGHTS[0], maxval=so101.HEIGHTS[1])
    x, y = so101.PAN_AXIS[0] + radii * jnp.cos(angles), radii * jnp.sin(angles)
    tries = jnp.stack([x, y, heights], axis=1)
    sure = so101.tool_pose(jnp.asarray(HOME[:5]), jnp)[0]
    return _first(so101.in_reach(tries, jnp), jnp.concatenate([tries, sure[None]]))


def _first(good: Array, values: Array) -> Array:
    """Return the first of values [K + 1, ...] that is good [K]; the last one if none is."""
    return values[jnp.where(jnp.any(good), jnp.argmax(good), len(good))]
