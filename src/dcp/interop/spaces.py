"""Gymnasium's spaces for an environment: the goal dictionary in float32, with bounds that hold."""

import numpy as np
from gymnasium import spaces

from dcp.envs import point_maze
from dcp.envs.base import ABSURD, Environment
from dcp.envs.point_maze import PointMaze
from dcp.envs.pushing import PointPushing
from dcp.types import MazeLayout


def action_space(env: Environment) -> spaces.Box:
    return spaces.Box(-1.0, 1.0, (env.spec.action_size,), np.float32)


def observation_space(env: Environment) -> spaces.Dict:
    low, high = _state_bounds(env)  # [S]
    goal = spaces.Box(*_goal_bounds(env, low, high), dtype=np.float32)
    return spaces.Dict(
        {"observation": spaces.Box(low, high, dtype=np.float32), "achieved_goal": goal, "desired_goal": goal}
    )


def _state_bounds(env: Environment) -> tuple[np.ndarray, np.ndarray]:
    """What is beyond them never reaches a user: a point cannot leave its maze, and a body that does has diverged."""
    if isinstance(env, PointMaze):
        low, high = _free(env.layout)
        speed = np.full(env.spec.state_size - 2, point_maze.FORCE / (1.0 - point_maze.FRICTION), np.float32)
        return np.concatenate([low, -speed]), np.concatenate([high, speed])
    if isinstance(env, PointPushing):
        low, high = _free(env.layout)
        span = high - low  # the point's place, the thing's, and the way between them
        return np.concatenate([low, low, -span]), np.concatenate([high, high, span])
    limit = np.full(env.spec.state_size, ABSURD if env.spec.physics != "none" else np.inf, np.float32)
    return -limit, limit


def _goal_bounds(env: Environment, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[G]: one box for both goals, as HER swaps them."""
    return env.spec.achieved(low), env.spec.achieved(high)


def _free(layout: MazeLayout) -> tuple[np.ndarray, np.ndarray]:
    """[2]: between the outer walls' faces"""
    rows, columns = layout.walls.shape
    return np.full(2, 0.5 * layout.scale, np.float32), np.array([rows - 1.5, columns - 1.5], np.float32) * layout.scale
