"""A point pushes a ball, and the goal is the ball's place: AntSoccer without the ant.

The paper's failure in the smallest form: psi_g reads the ball alone, and no action moves the ball but in contact.
In `point_soccer` a ball that is touched sticks to the point, which dribbles it: one touch, and the goal's coordinates
are the point's to move. In `point_soccer_slick` it does not, and slips off unless it is pushed from behind.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from dcp.envs.base import EnvState
from dcp.envs.pushing import START_NOISE, PointPushing
from dcp.types import Array, MazeLayout

ROOM = MazeLayout(("#######", "#.....#", "#.....#", "#..r..#", "#.....#", "#.....#", "#######"), scale=1.0)
CENTRE = (3.0, 3.0)
BALL_DISTANCE = 0.6  # of the ball's first place from the centre, in any direction
TARGET_DISTANCE = 1.3  # of the goal, in any direction


class PointSoccer(PointPushing):
    shape: Literal["disc", "square"] = "disc"
    size = 0.25
    goal_dims = (2, 3)

    def __init__(self, name: str = "point_soccer", sticks: bool = True):
        super().__init__(name, ROOM, sticks)

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
