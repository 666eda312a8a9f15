"""The ant's tasks: mazes, a ball to push, a box to push out of the way."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.envs.physics_env import MUJOCO_FRAMES, PhysicsEnv
from dcp.physics import Engine, PhysicsState, models
from dcp.types import Array, EnvSpec, MazeLayout

Q, V, A = 15, 14, 8  # positions (free joint 7, legs 8), velocities, actions
INIT_Q = np.array([0.0, 0.0, 0.55, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0], np.float32)
TORSO = ("torso_geom",)
AUX = tuple(f"aux_{leg}" for leg in range(1, 5))  # between torso and legs
FEET = tuple(f"foot_{leg}" for leg in range(1, 5))
HEALTHY_Z = (0.2, 1.0)
TIMESTEP, FRAMES = 0.005, 10  # of spring physics; dt = 0.05

# AntSoccer
TARGET_DISTANCE = 5.0
BALL_RADIUS = 0.5

# AntPush. Fixed boxes: centre (x, y), half size (x, y). They stand on the floor around a free room with two arms.
WALLS = {
    "A": ((-4.0, 20.0), (8.0, 8.0)),
    "B": ((8.0, 24.0), (4.0, 4.0)),
    "C": ((20.0, 20.0), (8.0, 8.0)),
    "D": ((-8.0, 4.0), (4.0, 8.0)),
    "E": ((24.0, 8.0), (4.0, 4.0)),
    "F": ((20.0, -4.0), (8.0, 8.0)),
    "G": ((0.0, -8.0), (12.0, 4.0)),
}
WALL_HALF_HEIGHT = 2.0
BOX, BOX_HALF_SIZE, BOX_MASS = (8.0, 8.0, 2.0), (3.6, 3.6, 1.8), 0.0002
GOAL, GOAL_NOISE = (16.0, 8.0), 2.0  # in either order
PUSH_HEIGHT = 0.75  # of the torso at the start


class AntEnv(PhysicsEnv):
    """Share what all of the ant's tasks have: the model, its sizes, its noisy start and its healthy range."""

    extra: int  # sliding coordinates besides the ant's: balls, boxes and, last, the target
    height = float(INIT_Q[2])  # of the torso at the start
    healthy_z = HEALTHY_Z

    @staticmethod
    def make_spec(
        name: str, physics: str, state_size: int = Q + V, goal_dims: tuple[int, ...] = (0, 1), **settings: Any
    ) -> EnvSpec:
        return EnvSpec(name, state_size, 2, A, goal_dims, 0.5, 1000, physics=physics, **settings)

    @property
    def init_q(self) -> np.ndarray:
        q = np.concatenate([INIT_Q, np.zeros(self.extra, np.float32)])
        q[2] = self.height
        return q

    def noisy_start(self, key: Array) -> tuple[Array, Array]:
        """Draw q = init + U(-0.1, 0.1) and qd = 0.1 N(0, 1); a task overwrites the noise of its other coordinates."""
        key_q, key_qd = jax.random.split(key)
        q = jnp.asarray(self.init_q) + jax.random.uniform(key_q, (Q + self.extra,), minval=-0.1, maxval=0.1)
        return q, 0.1 * jax.random.normal(key_qd, (V + self.extra,))

    def make_engine(self) -> Engine:
        from dcp.physics.spring_engine import spring_engine

        return spring_engine(self.model(), TIMESTEP, FRAMES, self.spec.maze)


class AntMaze(AntEnv):
    """Reach a cell of a maze. State: the ant's q and qd. Goal: the target's x, y."""

    extra = 2  # target x, y

    def __init__(self, name: str, layout: MazeLayout):
        self.layout = layout
        self.spec = self.make_spec(name, "spring", maze=layout, maze_dims=(0, 1))

    def model(self) -> mujoco.MjSpec:
        spec = models.ant()
        models.set_contact(spec, TORSO + AUX, contype=0, conaffinity=1)
        models.set_contact(spec, FEET, contype=1, conaffinity=1)
        models.add_walls(spec, self.layout)
        models.add_target(spec, height=0.01, radius=0.9, range_=100.0)
        return spec

    def draw(self, key: Array) -> tuple[Array, Array]:
        key_noise, key_start, key_goal = jax.random.split(key, 3)
        q, qd = self.noisy_start(key_noise)
        start = jax.random.choice(key_start, jnp.asarray(self.layout.cells("r")))
        goal = jax.random.choice(key_goal, jnp.asarray(self.layout.cells("g")))
        return q.at[:2].set(start).at[-2:].set(goal), qd.at[-2:].set(0.0)

    def observe(self, physics: PhysicsState, control: Array) -> tuple[Array, Array]:
        return jnp.concatenate([physics.q[:Q], physics.qd[:V]]), physics.q[Q:]


class AntSoccer(AntEnv):
    """Push a ball to a target in the open. State: the ant's q and qd, the ball's x, y. Goal: the ball's place."""

    extra = 4  # ball x, y, target x, y

    def __init__(self, name: str, fidelity: str = "paper"):
        self.fidelity = fidelity
        fix = "the ball's offset is (cos b, sin b), not (cos b, sin a) with the target's angle a"
        self.spec = self.make_spec(name, "spring", state_size=Q + V + 2, goal_dims=(29, 30), fixes=(fix,))

    def model(self) -> mujoco.MjSpec:
        spec = models.ant()
        models.set_contact(spec, TORSO, contype=0, conaffinity=1)
        models.set_contact(spec, FEET, contype=1, conaffinity=1)
        ball = models.add_sliding_body(spec, "ball", (0.0, 0.0, BALL_RADIUS), "xy", 100.0, damping=0.0)
        sphere = {"type": models.SPHERE, "size": [BALL_RADIUS, 0, 0]}
        ball.add_geom(**sphere, density=1.0, contype=0, conaffinity=0)
        ball.add_geom(**sphere, density=0.1, contype=1, conaffinity=0)
        models.add_target(spec, height=0.01, radius=0.9, range_=100.0)
        return spec

    def draw(self, key: Array) -> tuple[Array, Array]:
        key_noise, key_target, key_ball = jax.random.split(key, 3)
        q, qd = self.noisy_start(key_noise)
        a, b = (jax.random.uniform(k, maxval=2.0 * jnp.pi) for k in (key_target, key_ball))
        target = TARGET_DISTANCE * jnp.stack([jnp.cos(a), jnp.sin(a)])
        offset = jnp.stack([jnp.cos(b), jnp.sin(a if self.fidelity == "paper" else b)])
        ball = 0.2 * target + offset
        return q.at[-4:].set(jnp.concatenate([ball, target])), qd.at[-4:].set(0.0)

    def observe(self, physics: PhysicsState, control: Array) -> tuple[Array, Array]:
        ball, target = physics.q[Q : Q + 2], physics.q[Q + 2 :]
        return jnp.concatenate([physics.q[:Q], physics.qd[:V], ball]), target


class AntPush(AntEnv):
    """Push a light, tall box out of the way to reach a goal behind it. State: the ant's q and qd, the box's x, y.

    The paper's physics is MuJoCo's, computed by MJX. On a CPU we step it with MuJoCo's own engine, which is the same
    physics and faster there; on other backends with MJX. `engine` names one of the two.
    """

    extra = 5  # box x, y, z, target x, y
    height = PUSH_HEIGHT
    links = "lagging"  # as in MJX: the box in the state and an episode's end depend on them

    def __init__(self, name: str = "ant_push", fidelity: str = "paper", engine: Literal["mujoco", "mjx"] | None = None):
        self.fidelity, self._engine_name = fidelity, engine
        self.spec = self.make_spec(name, "mjx", state_size=Q + V + 2, fixes=("the box starts at rest",))

    def model(self) -> mujoco.MjSpec:
        spec = models.ant()
        models.set_contact(spec, TORSO + FEET, contype=1, conaffinity=0)
        for name, (centre, half) in WALLS.items():
            position, size = (*centre, WALL_HALF_HEIGHT), (*half, WALL_HALF_HEIGHT)
            spec.worldbody.add_geom(name=name, type=models.BOX, pos=position, size=size, contype=0, conaffinity=1)
        box = models.add_sliding_body(spec, "box", BOX, "xyz", None, armature=0.0, damping=0.0, margin=0.01)
        box.add_geom(type=models.BOX, size=BOX_HALF_SIZE, mass=BOX_MASS, contype=1, conaffinity=1)
        models.add_target(spec, height=0.01, radius=0.9, range_=20.0)
        for geom in spec.geoms:  # each geom already has the stock defaults, so a new default would change none
            geom.density = 40.0
            geom.solimp[:3] = (0.995, 0.995, 0.01)
            geom.condim, geom.friction = 3, [1.0, 0.5, 0.5]
        spec.option.solver = mujoco.mjtSolver.mjSOL_NEWTON
        spec.option.iterations, spec.option.ls_iterations = 4, 8
        spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_EULERDAMP
        return spec

    def make_engine(self) -> Engine:
        if (self._engine_name or ("mujoco" if jax.default_backend() == "cpu" else "mjx")) == "mujoco":
            return self.make_mujoco_engine()
        from dcp.physics.mujoco_engine import MjxEngine

        return MjxEngine(self.model().compile(), MUJOCO_FRAMES)

    def draw(self, key: Array) -> tuple[Array, Array]:
        key_ant, key_order, key_noise = jax.random.split(key, 3)
        q, qd = self.noisy_start(key_ant)
        goal = jax.random.permutation(key_order, jnp.asarray(GOAL))
        goal += jax.random.uniform(key_noise, (2,), maxval=GOAL_NOISE)
        # JaxGCRL forgets one of the five: its box starts with a random x velocity (oddity 7).
        at_rest = self.extra - 1 if self.fidelity == "paper" else self.extra
        return q.at[-2:].set(goal), qd.at[-at_rest:].set(0.0)

    def observe(self, physics: PhysicsState, control: Array) -> tuple[Array, Array]:
        box = physics.x.pos[-2, :2]
        return jnp.concatenate([physics.q[:Q], physics.qd[:V], box]), physics.q[-2:]
