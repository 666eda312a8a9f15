"""An episode toward a goal that the user names."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dcp.envs.base import Environment, EnvState
from dcp.envs.maze import cell_of
from dcp.envs.physics_env import PhysicsEnv
from dcp.errors import UserError
from dcp.types import Array, EnvSpec

TARGET = slice(-2, None)  # in our models the target's two slides are the last of q


def reset_toward(env: Environment, key: Array, goal: Array) -> EnvState:
    """The start that `env.reset(key)` draws, with this goal [G] in place of the drawn one."""
    if isinstance(env, PhysicsEnv):
        q, qd = env.draw(key)
        _, origin = env.spec.split(env.reset_to(q.at[TARGET].set(0.0), qd).obs)  # where slides of 0 put the target
        slides = (goal - origin)[np.asarray(_slide_axes(env))]
        return env.reset_to(q.at[TARGET].set(slides), qd)
    state = env.reset(key)
    body, _ = env.spec.split(state.obs)
    near_goal = jnp.linalg.norm(env.spec.achieved(body) - goal) < env.spec.threshold
    return state._replace(obs=jnp.concatenate([body, goal]), near_goal=near_goal)


def _slide_axes(env: PhysicsEnv) -> tuple[int, int]:
    """The goal's coordinates that the two slides move along. The stock pusher's slide along y first."""
    from dcp.envs.pusher import Pusher

    return (1, 0) if isinstance(env, Pusher) else (0, 1)


def checked_goal(env: Environment, goal: Any, num_envs: int | None = None) -> np.ndarray:
    """float32 [G]; for N environments [N, G], from one goal or from N. Else a sentence on what is wrong."""
    spec = env.spec
    if not _settable(env):
        raise UserError(f"{spec.name} keeps its goal where it cannot be set from outside: reset it without a goal")
    try:
        wanted = np.asarray(goal, np.float32)
    except (TypeError, ValueError):
        raise UserError(f"the goal must be {spec.goal_size} numbers, not {goal!r:.80}") from None
    many = () if num_envs is None else (num_envs,)
    if wanted.shape not in {(spec.goal_size,), (*many, spec.goal_size)}:
        raise UserError(f"a goal of {spec.name} has {spec.goal_size} numbers: shape {wanted.shape} does not fit")
    if not np.all(np.isfinite(wanted)):
        raise UserError("the goal holds a NaN or an infinity: give finite numbers")
    _refuse_walls(spec, wanted)
    return np.broadcast_to(wanted, (*many, spec.goal_size))


def _settable(env: Environment) -> bool:
    """Our physics has its target in q. Others' goals can be written if the observation is all that they know."""
    return isinstance(env, PhysicsEnv) or not jax.tree.leaves(jax.eval_shape(env.reset, jax.random.key(0)).physics)


def _refuse_walls(spec: EnvSpec, goal: np.ndarray) -> None:
    if spec.maze is None or spec.maze_dims is None or spec.goal_dims[:2] != spec.maze_dims:
        return
    walls = spec.maze.walls
    row, column = (np.asarray(index) for index in cell_of(spec.maze, jnp.asarray(goal[..., :2])))
    inside = (row >= 0) & (row < walls.shape[0]) & (column >= 0) & (column < walls.shape[1])
    if not np.all(inside) or np.any(walls[row, column]):
        raise UserError(f"the goal lies in a wall of {spec.name} or outside it: choose a point of a free cell")


def check_placed(spec: EnvSpec, wanted: np.ndarray, placed: np.ndarray) -> None:
    """A target moves in a plane: a goal of three numbers must have the height that targets have."""
    if not np.allclose(wanted, placed, rtol=0.0, atol=1e-4):
        raise UserError(f"{spec.name} cannot have the goal {wanted.tolist()}: the nearest is {placed.tolist()}")
