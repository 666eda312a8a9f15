"""What the single and the vector environment share: the goal dictionary, and rewards that HER can compute anew."""

from typing import Any

import numpy as np

from dcp.compiling import cache
from dcp.envs.base import Environment, EnvState
from dcp.envs.physics_env import PhysicsEnv
from dcp.envs.registry import make_env, require_stepped_by
from dcp.errors import RunError, UserError
from dcp.interop import spaces
from dcp.interop.goals import check_placed, checked_goal
from dcp.interop.programs import DIVERGED, Programs, Seen
from dcp.types import EnvSpec

REWARDS = {"zero_one": 0.0, "minus_one": -1.0}  # what a step away from the goal is worth; a step near it, one more
OPTIONS = ("goal",)
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
        self.observation_space = spaces.observation_space(self.env)
        self.action_space = spaces.action_space(self.env)
        if self.spec.physics != "none":
            cache.enable()  # physics takes up to a minute to compile

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    def observation(self, obs: Any) -> dict[str, np.ndarray]:
        """[..., S + G] -> the dictionary, in memory of its own that its user may write to"""
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
        """The goal among the options of a reset, checked, or None."""
        options = options or {}
        for name in options:
            if name not in OPTIONS:
                raise UserError(f"unknown option {name!r}: a reset takes 'goal' alone")
        return checked_goal(self.env, options["goal"], num_envs) if options.get("goal") is not None else None

    def start(self, programs: Programs, words: np.ndarray, episode: Any, goal: Any) -> tuple[EnvState, Seen]:
        """The first state of these episodes, toward the goal if there is one."""
        if goal is None:
            state, seen = programs.start(words, episode)
        else:
            state, seen = programs.start_toward(words, episode, goal)
            check_placed(self.spec, goal, self.spec.split(np.asarray(seen.obs))[1])
        if np.any(np.asarray(seen.flags)[..., DIVERGED]):
            raise RunError(f"{self.spec.name} draws a first state that is not finite")
        return state, seen

    def metadata(self, render_mode: str | None) -> dict[str, Any]:
        """The model's own speed, if there are pictures: to ask for it builds the physics."""
        fps = KINEMATIC_FPS
        if render_mode is not None and isinstance(self.env, PhysicsEnv):
            engine: Any = self.env.engine
            fps = round(1.0 / (engine.frames * float(engine.sys.opt.timestep)))
        return {"render_modes": list(RENDER_MODES), "render_fps": fps}

    def picture(self) -> Any:
        from dcp.render import make_picture

        return make_picture(self.env)


def _made(env: str | Environment, fidelity: str, physics: str) -> Environment:
    if fidelity not in ("paper", "fixed"):
        raise UserError(f"unknown fidelity {fidelity!r}: choose 'paper' or 'fixed'")
    if isinstance(env, str):
        return make_env(env, fidelity, physics)
    require_stepped_by(env, None if physics == "brax" else physics)  # the default asks for nothing
    return env
