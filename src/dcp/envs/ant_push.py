"""AntPush: the ant must push a light, tall box out of its way to reach a goal behind it. Physics: MuJoCo's, by MJX."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.envs import ant
from dcp.envs.ant import AntEnv, noisy_start
from dcp.physics import models
from dcp.physics.engine import Engine, PhysicsState
from dcp.types import Array, EnvSpec

FRAMES = 5  # of 0.01: dt = 0.05
# Fixed boxes: centre (x, y), half size (x, y). They stand on the floor and leave free a room with two arms.
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
PASSIVE = 5  # velocities after the ant's: box x, y, z, target x, y
GOAL, GOAL_NOISE = (16.0, 8.0), 2.0  # in either order
INIT_Q = np.concatenate([ant.INIT_Q, np.zeros(PASSIVE, np.float32)])
INIT_Q[2] = 0.75


def model() -> mujoco.MjSpec:
    """The stock ant among the fixed boxes, with the box it can push."""
    spec = models.stock("ant")
    models.set_contact(spec, ant.TORSO + ant.FEET, contype=1, conaffinity=0)
    for name, (centre, half) in WALLS.items():
        position, size = (*centre, WALL_HALF_HEIGHT), (*half, WALL_HALF_HEIGHT)
        spec.worldbody.add_geom(name=name, type=models.BOX, pos=position, size=size, contype=0, conaffinity=1)
    box = models.add_sliding_body(spec, "box", BOX, "xyz", None, armature=0.0, damping=0.0, margin=0.01)
    box.add_geom(type=models.BOX, size=BOX_HALF_SIZE, mass=BOX_MASS, contype=1, conaffinity=1)
    models.add_target(spec, height=0.01, radius=0.9, range_=20.0)
    for geom in spec.geoms:  # the stock defaults are in each geom already, so a new default would reach none
        geom.density = 40.0
        geom.solimp[:3] = (0.995, 0.995, 0.01)
        geom.condim, geom.friction = 3, [1.0, 0.5, 0.5]
    spec.option.solver = mujoco.mjtSolver.mjSOL_NEWTON
    spec.option.iterations, spec.option.ls_iterations = 4, 8
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_EULERDAMP
    models.set_init_q(spec, INIT_Q.tolist())
    return spec


class AntPush(AntEnv):
    links = "lagging"  # MJX's way, which the box in the state and an episode's end follow

    def __init__(self, name: str = "ant_push", fidelity: str = "paper"):
        self.fidelity = fidelity
        self.spec = EnvSpec(
            name=name,
            state_size=ant.Q + ant.V + 2,
            goal_size=2,
            action_size=ant.A,
            goal_dims=(0, 1),
            threshold=0.5,
            episode_length=1000,
            physics="mjx",
            fixes=("the box starts at rest",),
        )

    def model(self) -> mujoco.MjSpec:
        return model()

    def make_engine(self) -> Engine:
        from dcp.physics.mjx import MjxEngine

        return MjxEngine(models.system(self.model()), FRAMES)

    def draw(self, key: Array) -> tuple[Array, Array]:
        key_ant, key_order, key_noise = jax.random.split(key, 3)
        q, qd = noisy_start(key_ant, INIT_Q, ant.V + PASSIVE)
        goal = jax.random.permutation(key_order, jnp.asarray(GOAL))
        goal += jax.random.uniform(key_noise, (2,), maxval=GOAL_NOISE)
        # The peer forgets one of the five: its box starts with a random x velocity (oddity 7).
        at_rest = PASSIVE - 1 if self.fidelity == "paper" else PASSIVE
        return q.at[-2:].set(goal), qd.at[-at_rest:].set(0.0)

    def observe(self, physics: PhysicsState, control: Array) -> tuple[Array, Array]:
        q, qd = physics.q, physics.qd
        box = physics.x.pos[-2, :2]
        return jnp.concatenate([q[: ant.Q], qd[: ant.V], box]), q[-2:]
