"""Goal environments of Gymnasium, written as a package outside dcp would. Tests import a copy from a folder of its own.

They import no JAX, and dcp neither.
"""

import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class PointReach(gymnasium.Env):
    """A point in a square moves by up to 0.1 per step; `trouble` begins in the step after `after` of one worker."""

    distance_threshold = 0.15

    def __init__(self, trouble: str = "", after: int = 0, success: bool = False):
        goal = spaces.Box(-1.0, 1.0, (2,), np.float64)
        self.observation_space = spaces.Dict(
            observation=spaces.Box(-np.inf, np.inf, (3,), np.float64), achieved_goal=goal, desired_goal=goal
        )
        self.action_space = spaces.Box(np.array([-0.1, -0.2]), np.array([0.1, 0.2]), dtype=np.float64)
        self._trouble, self._after, self._success, self._all = trouble, after, success, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place, self._goal = self.np_random.uniform(-1.0, 1.0, (2, 2))
        self._steps = 0
        return self._seen(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self._steps, self._all = self._steps + 1, self._all + 1
        if self._trouble and self._all > self._after:
            self._begin_trouble()
        self._place = np.clip(self._place + action, -1.0, 1.0)
        seen = self._seen()
        near = np.linalg.norm(self._place - self._goal) < self.distance_threshold
        info = {"is_success": self._steps >= 5} if self._success else {}  # an own idea of success
        return seen, float(near) - 1.0, self._trouble == "ends" and self._steps == 7, False, info

    def _begin_trouble(self):
        if self._trouble == "dies":
            os._exit(3)
        if self._trouble == "hangs":
            time.sleep(1e6)
        if self._trouble == "raises":
            raise ValueError("the motor is too hot")
        if self._trouble == "diverges":
            self._place = np.full(2, np.nan)

    def _seen(self):
        observation = np.append(self._place, self._steps / 10.0)
        return {"observation": observation, "achieved_goal": self._place.copy(), "desired_goal": self._goal.copy()}


class RewardReach(PointReach):
    """It says by its reward alone what is near."""

    distance_threshold = property(lambda self: (_ for _ in ()).throw(AttributeError("distance_threshold")))

    def compute_reward(self, achieved, desired, info):
        return -(np.linalg.norm(achieved - desired, axis=-1) > 0.25).astype(np.float32)


class NoGoals(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)


HERE = "gym_tasks:PointReach"
gymnasium.register("PointReach-v0", entry_point=HERE, max_episode_steps=20)
gymnasium.register("own/Succeeds-v0", entry_point=HERE, max_episode_steps=20, kwargs={"success": True})
gymnasium.register("Ends-v0", entry_point=HERE, max_episode_steps=20, kwargs={"trouble": "ends", "after": 10**9})
for trouble in ("dies", "hangs", "raises", "diverges"):
    settings = {"trouble": trouble, "after": 200}
    gymnasium.register(f"{trouble.capitalize()}-v0", entry_point=HERE, max_episode_steps=20, kwargs=settings)
gymnasium.register("RewardReach-v0", entry_point="gym_tasks:RewardReach")
gymnasium.register("NoGoals-v0", entry_point="gym_tasks:NoGoals")
gymnasium.register("Missing-v0", entry_point="gym_tasks_that_are_missing:Reach")
