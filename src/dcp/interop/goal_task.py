"""What the single and the vector environment share: spaces, the goal dictionary, rewards that HER can recompute."""

from typing import Any

import numpy as np
from gymnasium import spaces

from dcp import compiling
from dcp.envs.base import ABSURD, Environment, EnvState, PhysicsEnv
from dcp.envs.point_tasks import FORCE, FRICTION, PointMaze, PointPushing
from dcp.envs.registry import make_env, require_stepped_by
from dcp.errors import RunError, UserError
from dcp.interop.gym_programs import DIVERGED, GymPrograms, Seen, check_placed, checked_goal
from dcp.types import EnvSpec

REWARDS = {"zero_one": 0.0, "minus_one": -1.0}  # what a step away from the goal is worth; a step near it, one more
RENDER_MODES = ("rgb_array",)
KINEMATIC_FPS = 20  # a point maze has no seconds: as fast as the ants


class GoalTask:
    """An environment, and how its numbers are handed to Gymnasium's users."""

    def __init__(
        self, env: str | Environment, fidelity: str, reward: str, render_mode: str | None, physics: str = "brax"
    ):
        self.env = _made(env, fidelity, physics)
        if reward not in REWARDS:
            raise UserError(f"unknown reward {reward!r}: choose {' or '.join(map(repr, REWARDS))}")
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise UserError(f"unknown render_mode {render_mode!r}: only 'rgb_array' is there")
        self.away = REWARDS[reward]
        self.observation_space = observation_space(self.env)
        self.action_space = spaces.Box(-1.0, 1.0, (self.spec.action_size,), np.float32)
        if self.spec.physics != "none":
            compiling.enable_cache()  # physics takes up to a minute to compile

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    def observation(self, obs: Any) -> dict[str, np.ndarray]:
        """[..., S + G] -> the dictionary, in memory of its own that its user may write to."""
        state, goal = self.spec.split(np.array(obs))
        return {"observation": state, "achieved_goal": self.spec.achieved(state), "desired_goal": goal}

    def reward(self, achieved: Any, desired: Any) -> Any:
        """[..., G], [..., G] -> float32 [...]"""
        gap = np.asarray(achieved, np.float32) - np.asarray(desired, np.float32)
        near = np.sqrt(np.sum(gap * gap, axis=-1)) < np.float32(self.spec.threshold)
        return near.astype(np.float32) + np.float32(self.away)

    def actions(self, action: Any, *many: int) -> np.ndarray:
        wanted, shape = np.asarray(action, np.float32), (*many, self.spec.action_size)
        if wanted.shape != shape:
            raise UserError(f"{self.spec.name} takes actions of shape {shape}, not {wanted.shape}")
        return wanted

    def wanted_goal(self, options: dict[str, Any] | None, num_envs: int | None = None) -> np.ndarray | None:
        """Return the goal among the options of a reset, checked, or None."""
        options = options or {}
        for name in options:
            if name != "goal":
                raise UserError(f"unknown option {name!r}: a reset takes 'goal' alone")
        return checked_goal(self.env, options["goal"], num_envs) if options.get("goal") is not None else None

    def start(self, programs: GymPrograms, words: np.ndarray, episode: Any, goal: Any) -> tuple[EnvState, Seen]:
        """Return the first state of these episodes, toward the goal if there is one."""
        if goal is None:
            state, seen = programs.start(words, episode)
        else:
            state, seen = programs.start_toward(words, episode, goal)
            check_placed(self.spec, goal, self.spec.split(np.asarray(seen.obs))[1])
        if np.any(np.asarray(seen.flags)[..., DIVERGED]):
            raise RunError(f"{self.spec.name} draws a first state that is not finite")
        return state, seen

    def metadata(self, render_mode: str | None) -> dict[str, Any]:
        """Give the model's own speed only if there are pictures: to ask for it builds the physics."""
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
    require_stepped_by(env, None if physics == "brax" else physics)  # the default asks for nothing
    return env


def observation_space(env: Environment) -> spaces.Dict:
    """Return the goal dictionary in float32, with bounds that hold; one box for both goals, as HER swaps them."""
    low, high = _state_bounds(env)  # [S]
    goal = spaces.Box(env.spec.achieved(low), env.spec.achieved(high), dtype=np.float32)
    return spaces.Dict(
        {"observation": spaces.Box(low, high, dtype=np.float32), "achieved_goal": goal, "desired_goal": goal}
    )


def _state_bounds(env: Environment) -> tuple[np.ndarray, np.ndarray]:
    """Return [S], [S]. Nothing beyond them reaches a user: a point cannot leave its maze, and a body that does has
    diverged."""
    if not isinstance(env, PointMaze | PointPushing):
        limit = np.full(env.spec.state_size, ABSURD if env.spec.physics != "none" else np.inf, np.float32)
        return -limit, limit
    rows, columns = env.layout.walls.shape  # [2] each: between the outer walls' faces
    low = np.full(2, 0.5 * env.layout.scale, np.float32)
    high = np.array([rows - 1.5, columns - 1.5], np.float32) * env.layout.scale
    if isinstance(env, PointMaze):
        speed = np.full(env.spec.state_size - 2, FORCE / (1.0 - FRICTION), np.float32)
        return np.concatenate([low, -speed]), np.concatenate([high, speed])
    span = high - low  # the point's place, the thing's, and the way between them
    return np.concatenate([low, low, -span]), np.concatenate([high, high, span])


class HindsightGoals:
    """What both environments inherit: gymnasium-robotics' three methods for a goal in hindsight, and the picture.

    Goals are [G], or [..., G] for many.
    """

    task: GoalTask
    render_mode: str | None
    _state: EnvState | None = None
    _picture: Any = None

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """[..., G], [..., G] -> float32 [...]: the reward of a step that leads to `achieved_goal`."""
        return self.task.reward(achieved_goal, desired_goal)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Read the end from `info`: reaching a goal ends nothing, so another goal would change nothing."""
        ended = terminated(info)
        return bool(ended) if np.ndim(achieved_goal) == 1 else np.broadcast_to(ended, np.shape(achieved_goal)[:-1])

    def compute_truncated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Return False: Gymnasium's TimeLimit keeps time limits."""
        return False if np.ndim(achieved_goal) == 1 else np.zeros(np.shape(achieved_goal)[:-1], bool)

    def _drawn(self) -> Any:
        """Return what draws a state, made at the first call."""
        if self.render_mode is None:
            raise UserError("make the environment with render_mode='rgb_array' to render it")
        if self._state is None:
            raise UserError("reset the environment before it is rendered")
        if self._picture is None:
            from dcp.render import make_picture

            self._picture = make_picture(self.task.env)
        return self._picture

    def _close_picture(self) -> None:
        if self._picture is not None:
            self._picture.close()
            self._picture = None


def terminated(info: Any) -> Any:
    """Read an episode's end from one info, from a vector environment's, or from a sequence of infos."""
    if isinstance(info, dict):
        return np.logical_or(info.get("done", False), info.get("diverged", False))
    return np.array([bool(terminated(one)) for one in info], bool)
