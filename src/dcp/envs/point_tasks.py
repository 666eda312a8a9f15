"""A point that pushes, in pure JAX and learned in minutes: a ball to a goal, a box out of the way."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.envs.base import EnvState, sparse_state
from dcp.envs.mazes import EPISODE_LENGTH, SPEED, START_NOISE, parse_layout, slide
from dcp.types import Array, EnvSpec, MazeLayout

POINT_RADIUS = 0.15  # of a point that pushes
PUSH_THRESHOLD = 0.25
SUBSTEPS = 4  # of at most 0.043, far less than the point's radius, so that it passes through nothing
TOLERANCE = 1e-4  # of overlap
REACH = 0.02  # a thing sticks to the point within this gap

ROOM = MazeLayout(("#######", "#.....#", "#.....#", "#..r..#", "#.....#", "#.....#", "#######"), scale=1.0)
CENTRE = (3.0, 3.0)
BALL_DISTANCE = 0.6  # of the ball's start from the centre, in any direction
TARGET_DISTANCE = 1.3  # of the goal from the centre, in any direction

TWO_ROOMS = """
########
#..#ggg#
#r..ggg#
#..#ggg#
########
"""
DOOR = (2.0, 3.0)  # where the box starts; a cell wide, with 0.1 to spare on either side of the box


class Thing(NamedTuple):
    """Describe an object that a picture shows besides the walls."""

    shape: Literal["disc", "square"]
    size: float  # radius, or half of the side
    dims: tuple[int, int]  # the state's dimensions that hold its place
    acts: bool  # True if it moves itself, False if it is pushed


def things_of(env: Any) -> tuple[Thing, ...]:
    """Return the things to draw; none for an environment that is drawn as a point or by its model."""
    return getattr(env, "things", ())


def places(things: Sequence[Thing], body: np.ndarray) -> np.ndarray:
    """Return each thing's place: [..., S] -> [..., 2 K]."""
    return body[..., [dim for thing in things for dim in thing.dims]]


class PointPushing:
    """Push a thing over the plane with a point: the shared part of `PointSoccer` and `PointPush`.

    Nothing has momentum: the thing moves only while it is touched, and then stays. It is pushed along the contact's
    normal; in some tasks it also sticks to the point, like a ball to a dribbling foot.
    So the system is driftless, and an action moves the thing only in contact.
    State: the point's x, y, the thing's x, y, and the vector from one to the other, on which contact depends.
    A task defines where episodes start and whose place the goal is.
    """

    shape: ClassVar[Literal["disc", "square"]]
    size: ClassVar[float]  # of the thing: radius, or half of the side
    goal_dims: ClassVar[tuple[int, int]]

    def __init__(self, name: str, layout: MazeLayout, sticks: bool = False):
        self.layout, self.sticks = layout, sticks
        self.spec = EnvSpec(
            name=name,
            state_size=6,
            goal_size=2,
            action_size=2,
            goal_dims=self.goal_dims,
            threshold=PUSH_THRESHOLD,
            episode_length=EPISODE_LENGTH,
            maze=layout,
            maze_dims=(0, 1),
        )
        self.things = (Thing(self.shape, self.size, (2, 3), False), Thing("disc", POINT_RADIUS, (0, 1), True))

    def reset_to(self, q: Array, qd: Array | None = None) -> EnvState:
        """Start from q: the point's x, y, the thing's x, y, the goal's x, y, without overlap and at rest."""
        q = jnp.asarray(q, jnp.float32)
        return self._state(q[:2], q[2:4], q[4:6])

    def step(self, state: EnvState, action: Array) -> EnvState:
        body, goal = self.spec.split(state.obs)
        point, thing = body[:2], body[2:4]
        move = SPEED / SUBSTEPS * jnp.clip(action, -1.0, 1.0)
        for _ in range(SUBSTEPS):
            point, thing = self._substep(point, thing, move)
        return self._state(point, thing, goal)

    def _state(self, point: Array, thing: Array, goal: Array) -> EnvState:
        return sparse_state(self.spec, jnp.concatenate([point, thing, thing - point]), goal)

    def _substep(self, point: Array, thing: Array, move: Array) -> tuple[Array, Array]:
        """Move the point. The thing gives way as far as walls allow; the point gives way to the remaining overlap.

        If even that leaves an overlap (the point is caught between thing and wall), neither moves.
        """
        moved, _ = slide(self.layout, POINT_RADIUS, point, move)
        pushed = self._carried(point, thing, moved - point)
        depth, normal = self._touching(moved, pushed)
        pushed, _ = slide(self.layout, self.size, pushed, depth * normal)
        depth, normal = self._touching(moved, pushed)
        moved, _ = slide(self.layout, POINT_RADIUS, moved, -depth * normal)
        free = self._touching(moved, pushed)[0] <= TOLERANCE
        return jnp.where(free, moved, point), jnp.where(free, pushed, thing)

    def _carried(self, point: Array, thing: Array, move: Array) -> Array:
        """Move a sticking thing along with the point, in any direction, as far as walls allow."""
        if not self.sticks:
            return thing
        held = self._touching(point, thing, REACH)[0] > 0.0
        return slide(self.layout, self.size, thing, jnp.where(held, move, 0.0))[0]

    def _touching(self, point: Array, thing: Array, gap: float = 0.0) -> tuple[Array, Array]:
        """Return how deep the point is in the thing, 0 if they are apart, and the unit normal towards the thing.

        `gap`: a distance that still counts as touching. A square's sides lie along the axes; its corners push too.
        """
        if self.shape == "disc":
            return _depth_and_normal(thing - point, POINT_RADIUS + self.size + gap)
        nearest = jnp.clip(point, thing - self.size, thing + self.size)
        return _depth_and_normal(nearest - point, POINT_RADIUS + gap)


def _depth_and_normal(offset: Array, reach: float) -> tuple[Array, Array]:
    squared = jnp.sum(offset**2)
    distance = jnp.sqrt(jnp.where(squared > 0.0, squared, 1.0))  # safe root: no direction if both are at one place
    normal = jnp.where(squared > 0.0, offset / distance, jnp.array([1.0, 0.0]))
    return jnp.maximum(reach - jnp.where(squared > 0.0, distance, 0.0), 0.0), normal


class PointSoccer(PointPushing):
    """Push a ball to a goal with a point: AntSoccer without the ant.

    It is the smallest form of the paper's failure: psi_g reads only the ball, and actions move the ball only in
    contact. In `point_soccer` the ball sticks to the point once touched, so that the point then moves the goal's
    coordinates. In `point_soccer_slick` it slips off unless it is pushed from behind.
    """

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


class PointPush(PointPushing):
    """Push a box out of the door to the room with the goals: AntPush without the ant.

    The goal is a place for the point itself. The way there is closed until the box is pushed through the door.
    """

    shape: Literal["disc", "square"] = "square"
    size = 0.4
    goal_dims = (0, 1)

    def __init__(self, name: str = "point_push"):
        super().__init__(name, parse_layout(TWO_ROOMS, scale=1.0))

    def reset(self, key: Array) -> EnvState:
        key_noise, key_goal = jax.random.split(key)
        start = jnp.asarray(self.layout.cells("r")[0])
        noise = jax.random.uniform(key_noise, (2,), minval=-START_NOISE, maxval=START_NOISE)
        goal = jax.random.choice(key_goal, jnp.asarray(self.layout.cells("g")))
        return self.reset_to(jnp.concatenate([start + noise, jnp.array(DOOR), goal]))
