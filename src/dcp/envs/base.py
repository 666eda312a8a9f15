"""What an environment is: written for one instance, vmapped by whoever runs many."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np

from dcp.types import Array, EnvSpec


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
    """[]: False where the environment diverged: a NaN, an infinity, or under simulated physics an absurd number.

    The observation may hide what diverges first, so the physics' q and qd are looked at too, where there are such.
    """
    limit = ABSURD if spec.physics != "none" else np.finfo(np.float32).max
    numbers = [state.obs, *(getattr(state.physics, name) for name in ("q", "qd") if hasattr(state.physics, name))]
    # A comparison with NaN is False.
    return jnp.all(jnp.concatenate([jnp.abs(x).ravel() <= limit for x in numbers]))


def judged_step(env: Environment, state: EnvState, action: Array) -> tuple[EnvState, Array]:
    """A step, and whether it is sound."""
    after = env.step(state, action)
    return after, is_sound(env.spec, after)


def judged_reset(env: Environment, key: Array) -> tuple[EnvState, Array]:
    state = env.reset(key)
    return state, is_sound(env.spec, state)


def sparse_state(spec: EnvSpec, state: Array, goal: Array, physics: Any = ()) -> EnvState:
    """An EnvState that follows from state [S] and goal [G] by the common rules, never done."""
    near_goal = jnp.linalg.norm(spec.achieved(state) - goal) < spec.threshold
    obs = jnp.concatenate([state, goal])
    return EnvState(obs, near_goal.astype(jnp.float32), jnp.zeros((), bool), near_goal, physics)
