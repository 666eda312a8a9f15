"""What the representation learned of a maze: |psi_g(x, y) - psi_g(g)| over its free space, and which way it points."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.compiling import QUICK_COMPILE
from dcp.envs.fine_grid import POINTS_PER_CELL, grid_axes, inside_walls
from dcp.envs.plane import goals_at, unit
from dcp.methods import conditions
from dcp.policies.policy import DeployedPolicy
from dcp.types import Array, MazeLayout


class Landscape(NamedTuple):
    layout: MazeLayout
    goal: np.ndarray  # [G]: its first two numbers lie in the maze's plane
    x: np.ndarray  # [X]: along the rows
    y: np.ndarray  # [Y]: along the columns
    distance: np.ma.MaskedArray  # [X, Y], masked inside walls


def psi_landscape(
    policy: DeployedPolicy, layout: MazeLayout, goal: np.ndarray, per_cell: int = POINTS_PER_CELL
) -> Landscape:
    """Distances in the critic's space to one goal. Points on a wall's face belong to the free cell beside it."""
    x, y = grid_axes(layout, per_cell)
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)  # [X * Y, 2]
    distance = psi_distances(policy, points, goal).reshape(len(x), len(y))
    masked = np.ma.masked_array(distance, inside_walls(layout, per_cell))
    return Landscape(layout, np.asarray(goal), x, y, masked)


def psi_distances(policy: DeployedPolicy, points: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """points [K, 2] of the plane, goal [G] -> [K]"""
    return np.asarray(_distances(policy, goals_at(points, goal), jnp.asarray(goal, jnp.float32)))


def directions(policy: DeployedPolicy, points: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """points [K, 2], goal [G] -> [K, 2]: the way that a direction-conditioned actor is shown, as unit vectors."""
    pulled = np.asarray(pulled_back(policy, goals_at(points, goal), jnp.asarray(goal, jnp.float32)))[:, :2]
    return unit(pulled)


# The policy is an argument: runs that differ in their parameters alone share one program.
@partial(jax.jit, compiler_options=QUICK_COMPILE)
def _distances(policy: DeployedPolicy, at: Array, goal: Array) -> Array:
    representation = policy.representation
    return representation.distance(representation.encode_goal(at), representation.encode_goal(goal[None]))  # [K]


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def pulled_back(policy: DeployedPolicy, at: Array, goal: Array) -> Array:
    """The direction in the goal's own coordinates, at many points. [K, G] -> [K, G]"""
    return jax.vmap(lambda achieved: conditions.pulled_back(policy.representation, achieved, goal))(at)
