"""What an environment is, and what every task on simulated physics shares.

An environment is written for one instance; whoever runs many vmaps it.
"""

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from dcp.devices import cores
from dcp.physics import Engine, PhysicsState, import_brax
from dcp.types import Array, EnvSpec

if TYPE_CHECKING:
    import mujoco

    from dcp.physics.mujoco_engine import Links

MUJOCO = "mujoco"
MUJOCO_FRAMES = 5  # of each stock model's own time step: dt is the paper's


class EnvState(NamedTuple):
    obs: Array  # [S + G]: state, then goal
    reward: Array  # []: 1 near the goal, else 0
    done: Array  # []: True where the episode ends early; time limits are not the environment's affair
    near_goal: Array  # []: True within the threshold
    physics: Any = ()  # whatever the environment needs besides


@runtime_checkable
class Environment(Protocol):
    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: Array) -> EnvState: ...

    def step(self, state: EnvState, action: Array) -> EnvState: ...


# Beyond this a simulated body is lost: 10 km from the maze, or crossing it many times within one time step.
# Sound runs stay below a few hundred in every number of every observation.
ABSURD = 1e4


def is_sound(spec: EnvSpec, state: EnvState) -> Array:
    """Return False [] where the environment diverged: NaN, infinity, or under simulated physics an absurd number.

    The observation may hide what diverges first, so the physics' q and qd are looked at too, where there are such.
    """
    limit = ABSURD if spec.physics != "none" else np.finfo(np.float32).max
    numbers = [state.obs, *(getattr(state.physics, name) for name in ("q", "qd") if hasattr(state.physics, name))]
    # A comparison with NaN is False.
    return jnp.all(jnp.concatenate([jnp.abs(x).ravel() <= limit for x in numbers]))


def judged_step(env: Environment, state: EnvState, action: Array) -> tuple[EnvState, Array]:
    """Step, and tell whether the new state is sound."""
    after = env.step(state, action)
    return after, is_sound(env.spec, after)


def judged_reset(env: Environment, key: Array) -> tuple[EnvState, Array]:
    state = env.reset(key)
    return state, is_sound(env.spec, state)


def sparse_state(spec: EnvSpec, state: Array, goal: Array, physics: Any = ()) -> EnvState:
    """Make the EnvState that follows from state [S] and goal [G] by the common rules, never done."""
    near_goal = jnp.linalg.norm(spec.achieved(state) - goal) < spec.threshold
    obs = jnp.concatenate([state, goal])
    return EnvState(obs, near_goal.astype(jnp.float32), jnp.zeros((), bool), near_goal, physics)


class PhysicsEnv(ABC):
    """A task on simulated physics: subclasses say what model, start, observation and end are; an engine steps it."""

    spec: EnvSpec
    links: "Links" = "current"  # what the task reads of the links, where MuJoCo's own engine steps it
    healthy_z: tuple[float, float] | None = None  # the first link's height, outside of which an episode ends early

    @abstractmethod
    def model(self) -> "mujoco.MjSpec":
        """Return the model, a new one at each call, so that the caller may edit it."""

    @abstractmethod
    def make_engine(self) -> Engine:
        """Return the engine that the paper's physics runs on."""

    def make_mujoco_engine(self) -> Engine:
        """Return MuJoCo's own engine for the same model, with its time step and solver, five frames per step."""
        from dcp.physics.mujoco_engine import MujocoEngine

        return MujocoEngine(self.model().compile(), MUJOCO_FRAMES, cores(), self.links)

    def by_mujoco(self) -> Self:
        """Return this task stepped by MuJoCo's own engine."""
        task = copy(self)
        for name in list(vars(task)):
            if isinstance(getattr(type(task), name, None), cached_property):
                del vars(task)[name]  # what follows from the physics is made anew
        task.spec = replace(self.spec, physics=MUJOCO)
        return task

    @abstractmethod
    def draw(self, key: Array) -> tuple[Array, Array]:
        """Draw a start: q [Q], qd [V]."""

    @abstractmethod
    def observe(self, physics: PhysicsState, control: Array) -> tuple[Array, Array]:
        """Return state [S] and goal [G]; `control` led here."""

    def control(self, action: Array) -> Array:
        """Return what the actuators get for an action in [-1, 1]."""
        return action

    def fallen(self, physics: PhysicsState) -> Array:
        """Tell whether the episode ends early: []."""
        if self.healthy_z is None:
            return jnp.zeros((), bool)
        low, high = self.healthy_z
        height = physics.x.pos[0, 2]
        return (height < low) | (height > high)

    def reward(self, state: Array, goal: Array, control: Array, near_goal: Array) -> Array:
        """Return 1 near the goal, unless the task has its own reward. The methods here do not read it."""
        return near_goal.astype(jnp.float32)

    @cached_property
    def engine(self) -> Engine:
        """Build the engine at first use: a spec alone needs none. Its arrays outlive the trace that asks first."""
        import_brax()
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
        """Tell whether a step is near the goal; `before` [S + G] is the observation that it started from."""
        return self.near_goal(after, goal)

    def near_goal(self, state: Array, goal: Array) -> Array:
        return jnp.linalg.norm(self.spec.achieved(state) - goal) < self.spec.threshold
