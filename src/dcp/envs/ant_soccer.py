"""AntSoccer: push a ball to a target in the open."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.envs import ant
from dcp.envs.ant import AntEnv, noisy_start
from dcp.envs.spring import spring_engine
from dcp.physics import models
from dcp.physics.engine import Engine, PhysicsState
from dcp.types import Array, EnvSpec

TARGET_DISTANCE = 5.0
BALL_RADIUS = 0.5
INIT_Q = np.concatenate([ant.INIT_Q, np.zeros(4, np.float32)])  # ball x, y, target x, y


class AntSoccer(AntEnv):
    """State: the ant's q and qd, the ball's x, y. Goal: where the ball should be."""

    def __init__(self, name: str, fidelity: str = "paper"):
        self.fidelity = fidelity
        self.spec = EnvSpec(
            name=name,
            state_size=ant.Q + ant.V + 2,
            goal_size=2,
            action_size=ant.A,
            goal_dims=(29, 30),
            threshold=0.5,
            episode_length=1000,
            physics="spring",
            fixes=("the ball's offset is (cos b, sin b), not (cos b, sin a) with the target's angle a",),
        )

    def model(self) -> mujoco.MjSpec:
        spec = models.stock("ant")
        models.set_contact(spec, ant.TORSO, contype=0, conaffinity=1)
        models.set_contact(spec, ant.FEET, contype=1, conaffinity=1)
        ball = models.add_sliding_body(spec, "ball", (0.0, 0.0, BALL_RADIUS), "xy", 100.0, damping=0.0)
        sphere = {"type": models.SPHERE, "size": [BALL_RADIUS, 0, 0]}
        ball.add_geom(**sphere, density=1.0, contype=0, conaffinity=0)
        ball.add_geom(**sphere, density=0.1, contype=1, conaffinity=0)
        models.add_target(spec, height=0.01, radius=0.9, range_=100.0)
        models.set_init_q(spec, INIT_Q.tolist())
        return spec

    def make_engine(self) -> Engine:
        return spring_engine(self.model(), ant.TIMESTEP, ant.FRAMES)

    def draw(self, key: Array) -> tuple[Array, Array]:
        key_noise, key_target, key_ball = jax.random.split(key, 3)
        q, qd = noisy_start(key_noise, INIT_Q, ant.V + 4)
        a, b = (jax.random.uniform(k, maxval=2.0 * jnp.pi) for k in (key_target, key_ball))
        target = TARGET_DISTANCE * jnp.stack([jnp.cos(a), jnp.sin(a)])
        offset = jnp.stack([jnp.cos(b), jnp.sin(a if self.fidelity == "paper" else b)])
        ball = 0.2 * target + offset
        return q.at[-4:].set(jnp.concatenate([ball, target])), qd.at[-4:].set(0.0)

    def observe(self, physics: PhysicsState, control: Array) -> tuple[Array, Array]:
        ball, target = physics.q[ant.Q : ant.Q + 2], physics.q[ant.Q + 2 :]
        return jnp.concatenate([physics.q[: ant.Q], physics.qd[: ant.V], ball]), target
