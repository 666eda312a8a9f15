"""What an environment is: written for one instance, vmapped by whoever runs many."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp

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


def sparse_state(spec: EnvSpec, state: Array, goal: Array, physics: Any = ()) -> EnvState:
    """An EnvState that follows from state [S] and goal [G] by the common rules, never done."""
    near_goal = jnp.linalg.norm(spec.achieved(state) - goal) < spec.threshold
    obs = jnp.concatenate([state, goal])
    return EnvState(obs, near_goal.astype(jnp.float32), jnp.zeros((), bool), near_goal, physics)
