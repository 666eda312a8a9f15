"""What the representation learned of a maze: |psi_g(x, y) - psi_g(g)| over its free space, and which way it points."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.analysis.episodes import QUICK_COMPILE
from dcp.deploy.policy import DeployedPolicy
from dcp.envs.fine_grid import POINTS_PER_CELL, grid_axes, inside_walls
from dcp.methods.direction import direction_and_magnitude
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
    return np.asarray(_distances(policy, _goals_at(points, goal), jnp.asarray(goal, jnp.float32)))


def directions(policy: DeployedPolicy, points: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """points [K, 2], goal [G] -> [K, 2]: the way that a direction-conditioned actor is shown, as unit vectors."""
    pulled = np.asarray(pulled_back(policy, _goals_at(points, goal), jnp.asarray(goal, jnp.float32)))[:, :2]
    return unit(pulled)


def unit(vectors: np.ndarray) -> np.ndarray:
    """[..., 2] of length one; zero stays zero."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0.0)


def _goals_at(points: np.ndarray, goal: np.ndarray) -> Array:
    """[K, 2] -> [K, G]: what else a goal has, such as a height, is the goal's own everywhere."""
    rest = np.broadcast_to(np.asarray(goal)[2:], (len(points), len(goal) - 2))
    return jnp.asarray(np.concatenate([points, rest], axis=1), jnp.float32)


# The policy is an argument: runs that differ in their parameters alone share one program.
@partial(jax.jit, compiler_options=QUICK_COMPILE)
def _distances(policy: DeployedPolicy, at: Array, goal: Array) -> Array:
    representation = policy.representation
    return representation.distance(representation.encode_goal(at), representation.encode_goal(goal[None]))  # [K]


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def pulled_back(policy: DeployedPolicy, at: Array, goal: Array) -> Array:
    """J^T u: the direction u = (psi(g) - psi(s)) / |psi(g) - psi(s)| in the goal's own coordinates. [K, G] -> [K, G]

    J is psi_g's Jacobian at the achieved goal. Of all small moves in these coordinates, the one along J^T u takes
    psi(s) farthest along u; for a norm it is the steepest way down the landscape.
    """
    encode = policy.representation.encode_goal
    psi_goal = encode(goal)  # [D]

    def at_one(achieved: Array) -> Array:
        psi_s, pull = jax.vjp(encode, achieved)
        return pull(direction_and_magnitude(psi_s, psi_goal)[0])[0]

    return jax.vmap(at_one)(at)
