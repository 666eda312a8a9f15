"""A point that pushes a thing over the plane, by hand-made contact: what `point_soccer` and `point_push` share.

Nothing has momentum: the thing moves only while it is touched, and stays where it is left. It is pushed along the
contact's normal; where the task says so it also sticks to the point, as a ball does to a foot that dribbles.
So the system is driftless, and an action moves the thing in contact alone.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from dcp.envs.base import EnvState, sparse_state
from dcp.envs.maze import slide
from dcp.types import Array, EnvSpec, MazeLayout

POINT_RADIUS = 0.15
SPEED = 0.12  # the point's, each way: position += SPEED * action
SUBSTEPS = 4  # of at most 0.043, far less than the point's radius: nothing is passed through
EPISODE_LENGTH = 250
THRESHOLD = 0.25
START_NOISE = 0.12
TOLERANCE = 1e-4  # of overlap
REACH = 0.02  # a thing that sticks does so within this gap


class Thing(NamedTuple):
    """What a picture shows of a state besides the walls."""

    shape: Literal["disc", "square"]
    size: float  # radius, or half of the side
    dims: tuple[int, int]  # where the state has its place
    acts: bool  # by itself, or pushed


def things_of(env: Any) -> tuple[Thing, ...]:
    """None for an environment that is drawn as a point, or by its model."""
    return getattr(env, "things", ())


def places(things: Sequence[Thing], body: np.ndarray) -> np.ndarray:
    """[..., S] -> [..., 2 K]: where each of these is"""
    return body[..., [dim for thing in things for dim in thing.dims]]


def touching_disc(point: Array, centre: Array, radius: float, gap: float = 0.0) -> tuple[Array, Array]:
    """-> how deep the point lies in a disc, 0 where they do not touch; the unit normal from the point to the disc

    `gap`: still counted as touching.
    """
    return _depth_and_normal(centre - point, POINT_RADIUS + radius + gap)


def touching_square(point: Array, centre: Array, half: float, gap: float = 0.0) -> tuple[Array, Array]:
    """The same for a square whose sides lie along the axes: a corner pushes back as the corner that it is."""
    nearest = jnp.clip(point, centre - half, centre + half)
    return _depth_and_normal(nearest - point, POINT_RADIUS + gap)


def _depth_and_normal(offset: Array, reach: float) -> tuple[Array, Array]:
    squared = jnp.sum(offset**2)
    distance = jnp.sqrt(jnp.where(squared > 0.0, squared, 1.0))  # safe: no direction where the places are one
    normal = jnp.where(squared > 0.0, offset / distance, jnp.array([1.0, 0.0]))
    return jnp.maximum(reach - jnp.where(squared > 0.0, distance, 0.0), 0.0), normal


class PointPushing:
    """State: the point's x, y, the thing's x, y, and the way from the one to the other, as contact depends on it.

    A task says where episodes start and whose place the goal is.
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
            threshold=THRESHOLD,
            episode_length=EPISODE_LENGTH,
            maze=layout,
            maze_dims=(0, 1),
        )
        self.things = (Thing(self.shape, self.size, (2, 3), False), Thing("disc", POINT_RADIUS, (0, 1), True))

    def reset_to(self, q: Array, qd: Array | None = None) -> EnvState:
        """q: the point's x, y, the thing's x, y, the goal's x, y; nothing overlaps. Nothing has a velocity either."""
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
        """The point moves, the thing gives way as far as walls let it, the point gives way to what is left.

        Where even that leaves an overlap (the point is caught between thing and wall) neither moves.
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
        """A thing that sticks goes where the point goes, away from it too, as far as walls let it."""
        if not self.sticks:
            return thing
        held = self._touching(point, thing, REACH)[0] > 0.0
        return slide(self.layout, self.size, thing, jnp.where(held, move, 0.0))[0]

    def _touching(self, point: Array, thing: Array, gap: float = 0.0) -> tuple[Array, Array]:
        touching = touching_disc if self.shape == "disc" else touching_square
        return touching(point, thing, self.size, gap)
