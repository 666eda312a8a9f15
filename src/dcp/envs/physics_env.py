"""A task on simulated physics: model, resets, observation. What steps the model is the engine's affair."""

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import jax
import jax.numpy as jnp

from dcp.devices import cores
from dcp.envs.base import EnvState
from dcp.physics.engine import Engine, PhysicsState
from dcp.types import Array, EnvSpec

if TYPE_CHECKING:
    import mujoco

    from dcp.physics.mujoco_engine import Links

MUJOCO = "mujoco"
MUJOCO_FRAMES = 5  # of each stock model's own time step: dt is the paper's


class PhysicsEnv(ABC):
    """Subclasses say what the task is; nothing here knows a task, nothing there steps physics."""

    spec: EnvSpec
    links: "Links" = "current"  # what the task reads of the links, where MuJoCo's own engine steps it

    @abstractmethod
    def model(self) -> "mujoco.MjSpec":
        """Afresh at each call: whoever draws it may edit its own."""

    @abstractmethod
    def make_engine(self) -> Engine:
        """The paper's."""

    def make_mujoco_engine(self) -> Engine:
        """MuJoCo's own, on the same model with the time step and solver that it names, five frames a step."""
        from dcp.physics.mujoco_engine import MujocoEngine

        return MujocoEngine(self.model().compile(), MUJOCO_FRAMES, cores(), self.links)

    def by_mujoco(self) -> Self:
        """This task, stepped by MuJoCo's own engine."""
        task = copy(self)
        for name in list(vars(task)):
            if isinstance(getattr(type(task), name, None), cached_property):
                del vars(task)[name]  # what follows from the physics is made anew
        task.spec = replace(self.spec, physics=MUJOCO)
        return task

    @abstractmethod
    def draw(self, key: Array) -> tuple[Array, Array]:
        """A start: q [Q], qd [V]."""

    @abstractmethod
    def observe(self, physics: PhysicsState, control: Array) -> tuple[Array, Array]:
        """state [S], goal [G]; `control` led here."""

    def control(self, action: Array) -> Array:
        """What the actuators get for an action in [-1, 1]."""
        return action

    def fallen(self, physics: PhysicsState) -> Array:
        """[]: True where the episode ends early."""
        return jnp.zeros((), bool)

    def reward(self, state: Array, goal: Array, control: Array, near_goal: Array) -> Array:
        """Sparse, unless the task has its own. The methods here do not read it."""
        return near_goal.astype(jnp.float32)

    @cached_property
    def engine(self) -> Engine:
        """Built at first use: to know a spec costs nothing. Its arrays must outlive the trace that asks first."""
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
        """Whether a step is near the goal; `before` [S + G] is the observation that it started from."""
        return self.near_goal(after, goal)

    def near_goal(self, state: Array, goal: Array) -> Array:
        return jnp.linalg.norm(self.spec.achieved(state) - goal) < self.spec.threshold
