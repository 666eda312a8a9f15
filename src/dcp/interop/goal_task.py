"""Shared code of the single and the vector environment: programs, spaces, goals, rewards that HER can recompute.

Reset and step are programs that are compiled once for all instances of a kind.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from dcp.envs.base import (
    DIVERGENCE_LIMIT,
    Environment,
    EnvState,
    choose,
    is_sound,
    reset_and_check,
    step_and_check,
)
from dcp.envs.mazes import FORCE, FRICTION, PointMaze, cell_of
from dcp.envs.physics_env import PhysicsEnv
from dcp.envs.point_tasks import PointPushing
from dcp.envs.registry import is_ours, make_env, require_control, require_stepped_by
from dcp.errors import RunError, UserError
from dcp.machine import compiling
from dcp.machine.devices import Split
from dcp.types import Array, EnvSpec

REWARDS = {"zero_one": 0.0, "minus_one": -1.0}  # the reward of a step away from the goal; a step near it gets one more
RENDER_MODES = ("rgb_array",)
KINEMATIC_FPS = 20  # a point maze has no seconds; this matches the ants
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
    return state, _seen_by_host(state, sound)


def start_toward(env: Environment, words: Array, episode: Array, goal: Array) -> tuple[EnvState, Seen]:
    state = reset_toward(env, episode_key(words, episode), goal)
    return state, _seen_by_host(state, is_sound(env.spec, state))


def advance(env: Environment, before: EnvState, action: Array) -> tuple[EnvState, Seen]:
    """Step once. A step that diverges leaves the state unchanged, and is neither near the goal nor done."""
    after, sound = step_and_check(env, before, action)
    state = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, before)
    return state, _seen_by_host(state, sound)


def _seen_by_host(state: EnvState, sound: Array) -> Seen:
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
        if split is None:
            return jax.jit(partial(one, env))
        return jax.jit(split(partial(one, env)), compiler_options=compiling.compiler_options())

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
        numbers = np.asarray(goal, np.float32)
    except (TypeError, ValueError):
        raise UserError(f"the goal must be {spec.goal_size} numbers, not {goal!r:.80}") from None
    many = () if num_envs is None else (num_envs,)
    if numbers.shape not in {(spec.goal_size,), (*many, spec.goal_size)}:
        raise UserError(f"a goal of {spec.name} has {spec.goal_size} numbers: shape {numbers.shape} does not fit")
    if not np.all(np.isfinite(numbers)):
        raise UserError("the goal holds a NaN or an infinity: give finite numbers")
    _refuse_walls(spec, numbers)
    return np.broadcast_to(numbers, (*many, spec.goal_size))


def _refuse_walls(spec: EnvSpec, goal: np.ndarray) -> None:
    if spec.maze is None or spec.maze_dims is None or spec.goal_dims[:2] != spec.maze_dims:
        return
    walls = spec.maze.walls
    row, column = (np.asarray(index) for index in cell_of(spec.maze, jnp.asarray(goal[..., :2])))
    inside = (row >= 0) & (row < walls.shape[0]) & (column >= 0) & (column < walls.shape[1])
    if not np.all(inside) or np.any(walls[row, column]):
        raise UserError(f"the goal lies in a wall of {spec.name} or outside it: choose a point of a free cell")


class GoalTask:
    """Convert between an environment's arrays and what Gymnasium's users pass and get."""

    def __init__(
        self,
        env: str | Environment,
        fidelity: str,
        reward: str,
        render_mode: str | None,
        physics: str = "brax",
        control: str = "joints",
    ):
        self.env = _environment(env, fidelity, physics, control)
        if reward not in REWARDS:
            raise UserError(f"unknown reward {reward!r}: choose {' or '.join(map(repr, REWARDS))}")
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise UserError(f"unknown render_mode {render_mode!r}: use 'rgb_array'")
        self.away = REWARDS[reward]
        self.observation_space = observation_space(self.env)
        self.action_space = spaces.Box(-1.0, 1.0, (self.spec.action_size,), np.float32)
        if self.spec.physics != "none":
            compiling.enable_cache()  # physics takes up to a minute to compile

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    def observation(self, obs: Any) -> dict[str, np.ndarray]:
        """Return obs [..., S + G] as the goal dictionary, copied so that its user may write to it."""
        state, goal = self.spec.split(np.array(obs))
        return {"observation": state, "achieved_goal": self.spec.achieved(state), "desired_goal": goal}

    def reward(self, achieved: Any, desired: Any) -> Any:
        """Return the reward: [..., G], [..., G] -> float32 [...]."""
        gap = np.asarray(achieved, np.float32) - np.asarray(desired, np.float32)
        near = np.sqrt(np.sum(gap * gap, axis=-1)) < np.float32(self.spec.threshold)
        return near.astype(np.float32) + np.float32(self.away)

    def actions(self, action: Any, *many: int) -> np.ndarray:
        wanted, shape = np.asarray(action, np.float32), (*many, self.spec.action_size)
        if wanted.shape != shape:
            raise UserError(f"{self.spec.name} takes actions of shape {shape}, not {wanted.shape}")
        return wanted

    def wanted_goal(self, options: dict[str, Any] | None, num_envs: int | None = None) -> np.ndarray | None:
        """Return the checked goal from a reset's options; None if they set no goal."""
        options = options or {}
        for name in options:
            if name != "goal":
                raise UserError(f"unknown option {name!r}: a reset takes only 'goal'")
        return checked_goal(self.env, options["goal"], num_envs) if options.get("goal") is not None else None

    def start(self, programs: GymPrograms, words: np.ndarray, episode: Any, goal: Any) -> tuple[EnvState, Seen]:
        """Return the first state of these episodes, with this goal unless it is None."""
        if goal is None:
            state, seen = programs.start(words, episode)
        else:
            state, seen = programs.start_toward(words, episode, goal)
            placed = self.spec.split(np.asarray(seen.obs))[1]
            if not np.allclose(goal, placed, rtol=0.0, atol=1e-4):  # a third coordinate is the targets' height
                name = self.spec.name
                raise UserError(f"{name} cannot have the goal {goal.tolist()}: the nearest is {placed.tolist()}")
        if np.any(np.asarray(seen.flags)[..., DIVERGED]):
            raise RunError(f"{self.spec.name} draws a first state that is not finite")
        return state, seen

    def metadata(self, render_mode: str | None) -> dict[str, Any]:
        """Return Gymnasium's metadata, with the model's frame rate only for rendering, because it needs the physics."""
        fps = KINEMATIC_FPS
        if render_mode is not None and isinstance(self.env, PhysicsEnv):
            engine: Any = self.env.engine
            fps = round(1.0 / (engine.frames * engine.timestep))
        return {"render_modes": list(RENDER_MODES), "render_fps": fps}


def _environment(env: str | Environment, fidelity: str, physics: str, control: str) -> Environment:
    if fidelity not in ("paper", "fixed"):
        raise UserError(f"unknown fidelity {fidelity!r}: choose 'paper' or 'fixed'")
    if isinstance(env, str):
        return make_env(env, fidelity, physics, control=control)
    require_stepped_by(env, None if physics == "brax" else physics)  # the defaults accept any physics and control
    require_control(env, None if control == "joints" else control)
    return env


def observation_space(env: Environment) -> spaces.Dict:
    """Return the goal dictionary's space: float32, valid bounds, one box for both goals because HER swaps them."""
    low, high = _state_bounds(env)  # [S]
    goal = spaces.Box(env.spec.achieved(low), env.spec.achieved(high), dtype=np.float32)
    return spaces.Dict(
        {"observation": spaces.Box(low, high, dtype=np.float32), "achieved_goal": goal, "desired_goal": goal}
    )


def _state_bounds(env: Environment) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds [S], [S]. No user sees a state beyond them: a point cannot leave its maze, and a body outside
    them has diverged."""
    if not isinstance(env, PointMaze | PointPushing):
        limit = np.full(env.spec.state_size, DIVERGENCE_LIMIT if env.spec.physics != "none" else np.inf, np.float32)
        return -limit, limit
    rows, columns = env.layout.walls.shape  # the point moves between the outer walls' faces
    low = np.full(2, 0.5 * env.layout.scale, np.float32)
    high = np.array([rows - 1.5, columns - 1.5], np.float32) * env.layout.scale
    if isinstance(env, PointMaze):
        speed = np.full(env.spec.state_size - 2, FORCE / (1.0 - FRICTION), np.float32)
        return np.concatenate([low, -speed]), np.concatenate([high, speed])
    span = high - low  # point's place, thing's place, and the vector between them
    return np.concatenate([low, low, -span]), np.concatenate([high, high, span])


class HindsightGoals:
    """Provide gymnasium-robotics' three methods for hindsight goals, and rendering, to both environments.

    Goals are [G], or [..., G] for many.
    """

    task: GoalTask
    render_mode: str | None
    _state: EnvState | None = None
    _picture: Any = None

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Return the reward of a step that leads to `achieved_goal`: [..., G], [..., G] -> float32 [...]."""
        return self.task.reward(achieved_goal, desired_goal)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Return the end as `info` reports it. Reaching a goal does not end an episode, so the goals do not matter."""
        ended = terminated(info)
        return bool(ended) if np.ndim(achieved_goal) == 1 else np.broadcast_to(ended, np.shape(achieved_goal)[:-1])

    def compute_truncated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Return False, because Gymnasium's TimeLimit applies time limits."""
        return False if np.ndim(achieved_goal) == 1 else np.zeros(np.shape(achieved_goal)[:-1], bool)

    def _renderer(self) -> Any:
        """Return the renderer, which is made at the first call."""
        if self.render_mode is None:
            raise UserError("make the environment with render_mode='rgb_array' to render it")
        if self._state is None:
            raise UserError("reset the environment before it is rendered")
        if self._picture is None:
            from dcp.lab.render import make_picture

            self._picture = make_picture(self.task.env)
        return self._picture

    def _close_picture(self) -> None:
        if self._picture is not None:
            self._picture.close()
            self._picture = None


def terminated(info: Any) -> Any:
    """Return whether an episode ended, from one info, a vector environment's info, or a sequence of infos."""
    if isinstance(info, dict):
        return np.logical_or(info.get("done", False), info.get("diverged", False))
    return np.array([bool(terminated(one)) for one in info], bool)
