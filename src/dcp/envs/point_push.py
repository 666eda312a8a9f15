"""A movable box blocks the door to the room with the goals: AntPush without the ant, learned in minutes.

The goal is the point's own place. The way there is closed until the box has been pushed through the door.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from dcp.envs.base import EnvState
from dcp.envs.maze import parse_layout
from dcp.envs.pushing import START_NOISE, PointPushing
from dcp.types import Array

ROOMS = """
########
#..#ggg#
#r..ggg#
#..#ggg#
########
"""
DOOR = (2.0, 3.0)  # where the box starts; a cell wide, with 0.1 to spare on either side of the box


class PointPush(PointPushing):
    shape: Literal["disc", "square"] = "square"
    size = 0.4
    goal_dims = (0, 1)

    def __init__(self, name: str = "point_push"):
        super().__init__(name, parse_layout(ROOMS, scale=1.0))

    def reset(self, key: Array) -> EnvState:
        key_noise, key_goal = jax.random.split(key)
        start = jnp.asarray(self.layout.cells("r")[0])
        noise = jax.random.uniform(key_noise, (2,), minval=-START_NOISE, maxval=START_NOISE)
        goal = jax.random.choice(key_goal, jnp.asarray(self.layout.cells("g")))
        return self.reset_to(jnp.concatenate([start + noise, jnp.array(DOOR), goal]))
