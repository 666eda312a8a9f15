"""Shared code of the single and the vector environment: spaces, goal dictionary, rewards that HER can recompute."""

from typing import Any

import numpy as np
from gymnasium import spaces

from dcp.envs.base import DIVERGENCE_LIMIT, Environment, EnvState
from dcp.envs.physics_env import PhysicsEnv
from dcp.envs.point_tasks import FORCE, FRICTION, PointMaze, PointPushing
from dcp.envs.registry import make_env, require_stepped_by
from dcp.errors import RunError, UserError
from dcp.interop.gym_programs import DIVERGED, GymPrograms, Seen, check_placed, checked_goal
from dcp.machine import compiling
from dcp.types import EnvSpec

REWARDS = {"zero_one": 0.0, "minus_one": -1.0}  # the reward of a step away from the goal; a step near it gets one more
RENDER_MODES = ("rgb_array",)
KINEMATIC_FPS = 20  # a point maze has no seconds; this matches the ants


class GoalTask:
    """Convert between an environment's arrays and what Gymnasium's users pass and get."""

    def __init__(
        self, env: str | Environment, fidelity: str, reward: str, render_mode: str | None, physics: str = "brax"
    ):
        self.env = _made(env, fidelity, physics)
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
            check_placed(self.spec, goal, self.spec.split(np.asarray(seen.obs))[1])
        if np.any(np.asarray(seen.flags)[..., DIVERGED]):
            raise RunError(f"{self.spec.name} draws a first state that is not finite")
        return state, seen

    def metadata(self, render_mode: str | None) -> dict[str, Any]:
        """Return Gymnasium's metadata, with the model's frame rate only for rendering, because it needs the physics."""
        fps = KINEMATIC_FPS
        if render_mode is not None and isinstance(self.env, PhysicsEnv):
            engine: Any = self.env.engine
            fps = round(1.0 / (engine.frames * float(engine.sys.opt.timestep)))
        return {"render_modes": list(RENDER_MODES), "render_fps": fps}


def _made(env: str | Environment, fidelity: str, physics: str) -> Environment:
    if fidelity not in ("paper", "fixed"):
        raise UserError(f"unknown fidelity {fidelity!r}: choose 'paper' or 'fixed'")
    if isinstance(env, str):
        return make_env(env, fidelity, physics)
    require_stepped_by(env, None if physics == "brax" else physics)  # the default accepts any physics
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

    def _drawn(self) -> Any:
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
