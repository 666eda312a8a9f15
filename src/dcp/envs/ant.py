"""The ant: what every task with it shares. Brax's stock model, its noisy start and its healthy range."""

import jax
import jax.numpy as jnp
import numpy as np

from dcp.envs.physics_env import PhysicsEnv
from dcp.physics.engine import PhysicsState
from dcp.types import Array

Q, V, A = 15, 14, 8  # positions (free joint 7, legs 8), velocities, actions
INIT_Q = np.array([0.0, 0.0, 0.55, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0], np.float32)
TORSO = ("torso_geom",)
AUX = tuple(f"aux_{i}_geom" for i in range(1, 5))
FEET = ("left_foot_geom", "right_foot_geom", "third_foot_geom", "fourth_foot_geom")
HEALTHY_Z = (0.2, 1.0)
TIMESTEP, FRAMES = 0.005, 10  # spring; dt = 0.05


def noisy_start(key: Array, init_q: np.ndarray, qd_size: int) -> tuple[Array, Array]:
    """q = init + U(-0.1, 0.1), qd = 0.1 N(0, 1); what else slides in the model has its noise overwritten later."""
    key_q, key_qd = jax.random.split(key)
    q = jnp.asarray(init_q) + jax.random.uniform(key_q, init_q.shape, minval=-0.1, maxval=0.1)
    return q, 0.1 * jax.random.normal(key_qd, (qd_size,))


class AntEnv(PhysicsEnv):
    def fallen(self, physics: PhysicsState) -> Array:
        low, high = HEALTHY_Z
        height = physics.x.pos[0, 2]  # the torso's
        return (height < low) | (height > high)
