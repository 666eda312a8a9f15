"""What all tasks on simulated physics share."""

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import jax
import jax.numpy as jnp

from dcp.config import cores
from dcp.envs.base import EnvState
from dcp.physics import Engine, PhysicsState
from dcp.types import Array, EnvSpec

if TYPE_CHECKING:
    import mujoco

    from dcp.physics.mujoco_engine import Links

MUJOCO = "mujoco"
MUJOCO_FRAMES = 5  # time steps of the stock model per environment step, so that dt is the paper's


class PhysicsEnv(ABC):
    """Run a task on simulated physics. Subclasses define model, start, observation and end; an engine steps it."""

    spec: EnvSpec
    links: "Links" = "current"  # which links the task reads under MuJoCo's own engine
    healthy_z: tuple[float, float] | None = None  # range of the first link's height; outside it an episode ends early

    @abstractmethod
    def model(self) -> "mujoco.MjSpec":
        """Return a new model at each call, so that the caller may edit it."""

    @abstractmethod
    def make_engine(self) -> Engine:
        """Return the engine that the paper's physics runs on."""

    def make_mujoco_engine(self) -> Engine:
        """Return MuJoCo's own engine for this model, with the model's time step and solver, five frames per step."""
        from dcp.physics.mujoco_engine import MujocoEngine

        return MujocoEngine(self.model().compile(), MUJOCO_FRAMES, cores(), self.links)

    def by_mujoco(self) -> Self:
        """Return this task stepped by MuJoCo's own engine."""
        task = copy(self)
        for name in list(vars(task)):
            if isinstance(getattr(type(task), name, None), cached_property):
                del vars(task)[name]  # cached values that depend on the physics are computed again
        task.spec = replace(self.spec, physics=MUJOCO)
        return task

    @abstractmethod
    def draw(self, key: Array) -> tuple[Array, Array]:
        """Draw a start: q [Q], qd [V]."""

    @abstractmethod
    def observe(self, physics: PhysicsState, control: Array) -> tuple[Array, Array]:
        """Return state [S] and goal [G]; `control` is what led here."""

    def control(self, action: Array) -> Array:
        """Return the actuators' input for an action in [-1, 1]."""
        return action

    def fallen(self, physics: PhysicsState) -> Array:
        """Return whether the episode ends early: []."""
        if self.healthy_z is None:
            return jnp.zeros((), bool)
        low, high = self.healthy_z
        height = physics.x.pos[0, 2]
        return (height < low) | (height > high)

    def reward(self, state: Array, goal: Array, control: Array, near_goal: Array) -> Array:
        """Return 1 near the goal, unless the task has its own reward. Our methods do not read it."""
        return near_goal.astype(jnp.float32)

    @cached_property
    def engine(self) -> Engine:
        """Build the engine at first use, because a spec needs none. Its arrays outlive the trace that asks first."""
        with jax.ensure_compile_time_eval():
            return self.make_mujoco_engine() if self.spec.physics == MUJOCO else self.make_engine()

    def reset(self, key: Array) -> EnvState:
        return self.reset_to(*self.draw(key))

    def reset_to(self, q: Array, qd: Array) -> EnvState:
        physics = self.engine.init(jnp.asarray(q, jnp.float32), jnp.asarray(qd, jnp.float32))
        state, goal = self.observe(physics, jnp.zeros(self.spec.action_size))
        near_goal = self.near_goal(state, goal)
        zero = jnp.zeros(())
        return EnvState(jnp.concatenate([state, goal]), zero, jnp.zeros((), bool), near_goal, physics)

    def step(self, state: EnvState, action: Array) -> EnvState:
        control = self.control(action)
        physics = self.engine.step(state.physics, control)
        after, goal = self.observe(physics, control)
        near_goal = self.judge(state.obs, after, goal)
        reward = self.reward(after, goal, control, near_goal)
        return EnvState(jnp.concatenate([after, goal]), reward, self.fallen(physics), near_goal, physics)

    def judge(self, before: Array, after: Array, goal: Array) -> Array:
        """Return whether a step is near the goal; `before` [S + G] is the observation that it started from."""
        return self.near_goal(after, goal)

    def near_goal(self, state: Array, goal: Array) -> Array:
        return jnp.linalg.norm(self.spec.achieved(state) - goal) < self.spec.threshold
