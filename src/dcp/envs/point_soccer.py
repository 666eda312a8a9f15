"""A point pushes a ball, and the goal is the ball's place: AntSoccer without the ant, learned in minutes.

The paper's failure in the smallest form: psi_g reads the ball alone, and no action moves the ball but in contact.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from dcp.envs.base import EnvState
from dcp.envs.pushing import START_NOISE, PointPushing
from dcp.types import Array, MazeLayout

ROOM = MazeLayout(("#######", "#.....#", "#.....#", "#..r..#", "#.....#", "#.....#", "#######"), scale=1.0)
CENTRE = (3.0, 3.0)
BALL_DISTANCE = 1.0  # of the ball's first place from the centre, in any direction
TARGET_DISTANCE = 1.8  # of the goal, in any direction


class PointSoccer(PointPushing):
    shape: Literal["disc", "square"] = "disc"
    size = 0.25
    goal_dims = (2, 3)

    def __init__(self, name: str = "point_soccer"):
        super().__init__(name, ROOM)

    def reset(self, key: Array) -> EnvState:
        key_point, key_ball, key_target = jax.random.split(key, 3)
        centre = jnp.array(CENTRE)
        point = centre + jax.random.uniform(key_point, (2,), minval=-START_NOISE, maxval=START_NOISE)
        ball = centre + BALL_DISTANCE * _any_direction(key_ball)
        target = centre + TARGET_DISTANCE * _any_direction(key_target)
        return self.reset_to(jnp.concatenate([point, ball, target]))


def _any_direction(key: Array) -> Array:
    angle = jax.random.uniform(key, maxval=2.0 * jnp.pi)
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])
