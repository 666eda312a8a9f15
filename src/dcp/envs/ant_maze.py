"""The ant in a maze: reach a cell."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.envs import ant
from dcp.envs.ant import AntEnv, noisy_start
from dcp.envs.spring import spring_engine
from dcp.physics import models
from dcp.physics.engine import Engine, PhysicsState
from dcp.types import Array, EnvSpec, MazeLayout

SCALE = 4.0
INIT_Q = np.concatenate([ant.INIT_Q, np.zeros(2, np.float32)])  # the target's x, y last


class AntMaze(AntEnv):
    """State: the ant's q and qd. Goal: the target's x, y."""

    def __init__(self, name: str, layout: MazeLayout):
        self.layout = layout
        self.spec = EnvSpec(
            name=name,
            state_size=ant.Q + ant.V,
            goal_size=2,
            action_size=ant.A,
            goal_dims=(0, 1),
            threshold=0.5,
            episode_length=1000,
            maze=layout,
            maze_dims=(0, 1),
            physics="spring",
        )

    def model(self) -> mujoco.MjSpec:
        spec = models.stock("ant")
        models.set_contact(spec, ant.TORSO + ant.AUX, contype=0, conaffinity=1)
        models.set_contact(spec, ant.FEET, contype=1, conaffinity=1)
        models.add_walls(spec, self.layout)
        models.add_target(spec, height=0.01, radius=0.9, range_=100.0)
        models.set_init_q(spec, INIT_Q.tolist())
        return spec

    def make_engine(self) -> Engine:
        return spring_engine(self.model(), ant.TIMESTEP, ant.FRAMES, self.layout)

    def draw(self, key: Array) -> tuple[Array, Array]:
        key_noise, key_start, key_goal = jax.random.split(key, 3)
        q, qd = noisy_start(key_noise, INIT_Q, ant.V + 2)
        start = jax.random.choice(key_start, jnp.asarray(self.layout.cells("r")))
        goal = jax.random.choice(key_goal, jnp.asarray(self.layout.cells("g")))
        return q.at[:2].set(start).at[-2:].set(goal), qd.at[-2:].set(0.0)

    def observe(self, physics: PhysicsState, control: Array) -> tuple[Array, Array]:
        return jnp.concatenate([physics.q[: ant.Q], physics.qd[: ant.V]]), physics.q[ant.Q :]
