"""Reset and step of the Gymnasium environments as programs, compiled once for all instances of a kind."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.envs.base import Environment, EnvState, choose, is_sound, reset_and_check, step_and_check
from dcp.envs.mazes import cell_of
from dcp.envs.physics_env import PhysicsEnv
from dcp.envs.registry import is_ours
from dcp.errors import UserError
from dcp.machine.compiling import compiler_options
from dcp.machine.devices import Split
from dcp.types import Array, EnvSpec

DIVERGED = 2  # its index among the flags
TARGET = slice(-2, None)  # in our models the target's two slides come last in q


class Seen(NamedTuple):
    """Hold what the host reads from a reset or a step: only two arrays, because each is a transfer."""

    obs: Array  # [S + G]
    flags: Array  # [3]: near_goal, done, diverged


def seed_words(seed: int) -> np.ndarray:
    """Return uint32 [2], the data of `jax.random.key(seed)`; seeds of up to 64 bits have distinct keys."""
    return np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def episode_key(words: Array, episode: Array) -> Array:
    """Return an episode's key. Episode k after `reset(seed=s)` starts from
    `env.reset(jax.random.fold_in(jax.random.key(s), k))`."""
    return jax.random.fold_in(jax.random.wrap_key_data(words, impl="threefry2x32"), episode)


def start(env: Environment, words: Array, episode: Array) -> tuple[EnvState, Seen]:
    state, sound = reset_and_check(env, episode_key(words, episode))
    return state, _seen(state, sound)


def start_toward(env: Environment, words: Array, episode: Array, goal: Array) -> tuple[EnvState, Seen]:
    state = reset_toward(env, episode_key(words, episode), goal)
    return state, _seen(state, is_sound(env.spec, state))


def advance(env: Environment, before: EnvState, action: Array) -> tuple[EnvState, Seen]:
    """Step once. A step that diverges leaves the state unchanged, and is neither near the goal nor done."""
    after, sound = step_and_check(env, before, action)
    state = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, before)
    return state, _seen(state, sound)


def _seen(state: EnvState, sound: Array) -> Seen:
    return Seen(state.obs, jnp.stack([state.near_goal & sound, state.done & sound, ~sound]))


@dataclass(frozen=True)
class GymPrograms:
    start: Callable[..., tuple[EnvState, Seen]]
    start_toward: Callable[..., tuple[EnvState, Seen]]
    advance: Callable[..., tuple[EnvState, Seen]]


def gym_programs(env: Environment, split: Split | None = None) -> GymPrograms:
    """Compile the programs for one instance or, with a split, for N as one program. An instance of a user's own
    environment does not share its programs, because it may change."""
    return _shared(env, split) if is_ours(env) else _make(env, split)


def _make(env: Environment, split: Split | None) -> GymPrograms:
    def compiled(one: Callable[..., Any]) -> Callable[..., Any]:
        of_one = partial(one, env)
        return jax.jit(of_one) if split is None else jax.jit(split(of_one), compiler_options=compiler_options())

    return GymPrograms(compiled(start), compiled(start_toward), compiled(advance))


_shared = cache(_make)
choose_where = jax.jit(choose)


# Episodes with a goal that the user sets.


def reset_toward(env: Environment, key: Array, goal: Array) -> EnvState:
    """Return the start that `env.reset(key)` draws, with this goal [G] instead of the drawn one."""
    if (toward := getattr(env, "reset_toward", None)) is not None:
        return toward(key, goal)
    if isinstance(env, PhysicsEnv):
        q, qd = env.draw(key)
        _, origin = env.spec.split(env.reset_to(q.at[TARGET].set(0.0), qd).obs)  # the target's place for slides of 0
        slides = (goal - origin)[np.asarray(_slide_axes(env))]
        return env.reset_to(q.at[TARGET].set(slides), qd)
    state = env.reset(key)
    body, _ = env.spec.split(state.obs)
    near_goal = jnp.linalg.norm(env.spec.achieved(body) - goal) < env.spec.threshold
    return state._replace(obs=jnp.concatenate([body, goal]), near_goal=near_goal)


def _slide_axes(env: PhysicsEnv) -> tuple[int, int]:
    """Return the goal coordinates that the two slides move. The stock pusher's first slide is along y."""
    from dcp.envs.pusher import Pusher

    return (1, 0) if isinstance(env, Pusher) else (0, 1)


def checked_goal(env: Environment, goal: Any, num_envs: int | None = None) -> np.ndarray:
    """Return the goal as float32 [G], or as [N, G] for N environments, given one goal or N; refuse an impossible one.

    Our physics keeps its target in q. Another environment's goal can be set if the observation is its whole state.
    """
    spec = env.spec
    if not isinstance(env, PhysicsEnv) and jax.tree.leaves(jax.eval_shape(env.reset, jax.random.key(0)).physics):
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


def _refuse_walls(spec: EnvSpec, goal: np.ndarray) -> None:
    if spec.maze is None or spec.maze_dims is None or spec.goal_dims[:2] != spec.maze_dims:
        return
    walls = spec.maze.walls
    row, column = (np.asarray(index) for index in cell_of(spec.maze, jnp.asarray(goal[..., :2])))
    inside = (row >= 0) & (row < walls.shape[0]) & (column >= 0) & (column < walls.shape[1])
    if not np.all(inside) or np.any(walls[row, column]):
        raise UserError(f"the goal lies in a wall of {spec.name} or outside it: choose a point of a free cell")


def check_placed(spec: EnvSpec, wanted: np.ndarray, placed: np.ndarray) -> None:
    """Refuse a goal outside the plane in which targets move: a third coordinate must equal the targets' height."""
    if not np.allclose(wanted, placed, rtol=0.0, atol=1e-4):
        raise UserError(f"{spec.name} cannot have the goal {wanted.tolist()}: the nearest is {placed.tolist()}")
