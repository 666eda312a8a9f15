"""The environment protocol, and episodes of many environments: time limits, automatic reset, diverged episodes.

An environment is written for one instance; callers vmap it to run many.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from dcp.types import Array, EnvSpec


class EnvState(NamedTuple):
    obs: Array  # [S + G]: state, then goal
    reward: Array  # []: 1 near the goal, else 0
    done: Array  # []: True if the episode ends early; time limits are applied elsewhere
    near_goal: Array  # []: True within the threshold
    physics: Any = ()  # whatever else the environment needs


@runtime_checkable
class Environment(Protocol):
    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: Array) -> EnvState: ...

    def step(self, state: EnvState, action: Array) -> EnvState: ...


def is_exact(env: Environment) -> bool:
    """Return whether a state is all of an environment; a `GymTask` has its simulation elsewhere."""
    return getattr(env, "exact", True)


# Beyond this a simulated body has diverged: 10 km from the maze, or crossing it many times within one time step.
# In sound runs every number of every observation stays below a few hundred.
DIVERGENCE_LIMIT = 1e4


def is_sound(spec: EnvSpec, state: EnvState) -> Array:
    """Return False [] if the environment diverged: NaN, infinity or, under simulated physics, an absurd number.

    The observation may hide what diverges first, so the physics' q and qd are checked too, if there are any.
    """
    limit = DIVERGENCE_LIMIT if spec.physics != "none" else np.finfo(np.float32).max
    numbers = [state.obs, *(getattr(state.physics, name) for name in ("q", "qd") if hasattr(state.physics, name))]
    # A comparison with NaN is False.
    return jnp.all(jnp.concatenate([jnp.abs(x).ravel() <= limit for x in numbers]))


def step_and_check(env: Environment, state: EnvState, action: Array) -> tuple[EnvState, Array]:
    """Step, and return the new state and whether it is sound."""
    after = env.step(state, action)
    return after, is_sound(env.spec, after)


def reset_and_check(env: Environment, key: Array) -> tuple[EnvState, Array]:
    state = env.reset(key)
    return state, is_sound(env.spec, state)


def sparse_state(spec: EnvSpec, state: Array, goal: Array, physics: Any = ()) -> EnvState:
    """Make the EnvState of state [S] and goal [G] by the common rules, never done."""
    near_goal = jnp.linalg.norm(spec.achieved(state) - goal) < spec.threshold
    obs = jnp.concatenate([state, goal])
    return EnvState(obs, near_goal.astype(jnp.float32), jnp.zeros((), bool), near_goal, physics)


class EpisodeState(NamedTuple):
    env: EnvState  # [N, ...]
    first: EnvState  # [N, ...]: the state that each environment returns to in paper fidelity
    steps: Array  # [N]: steps taken in the current episode
    episode_id: Array  # [N]
    diverged: Array  # [N]: episodes so far that ended because the environment diverged


def choose(which: Array, new: EnvState, old: EnvState) -> EnvState:
    """Return `new` where `which` [N] holds, else `old`. It selects, so that a NaN that is not chosen has no effect."""

    def leaf(new: Array, old: Array) -> Array:
        return jnp.where(which.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return jax.tree.map(leaf, new, old)


@custom_vmap
def any_across_vmap(flag: Array) -> Array:
    """Return the flag; under a vmap, as over seeds, return whether any is set. So it stays a scalar, and `lax.cond`
    stays a branch."""
    return flag


@any_across_vmap.def_vmap
def _any_across_vmap_of_many(size: int, batched: list[bool], flag: Array) -> tuple[Array, bool]:
    return (jnp.any(flag) if batched[0] else flag), False


@dataclass(frozen=True)
class Episodes:
    env: Environment
    num_envs: int
    episode_length: int
    fidelity: str
    vmap: Callable[..., Any] = jax.vmap  # or a `Split` over devices

    def reset(self, key: Array) -> EpisodeState:
        first, _ = self._draw(key)
        zeros = jnp.zeros(self.num_envs, jnp.int32)
        return EpisodeState(first, first, zeros, zeros, zeros)

    def step(self, state: EpisodeState, action: Array, key: Array) -> EpisodeState:
        """Step all environments; action [N, A]. After an episode's end comes the next episode's first state.

        An episode that diverges ends: its last state is dropped, so that nobody ever sees it.
        """
        env, sound = self.vmap(partial(step_and_check, self.env))(state.env, action)
        steps = state.steps + 1
        ends = ~sound | env.done | (steps >= self.episode_length)  # [N]; `done` of a diverged state does not matter
        first = state.first
        if self.fidelity != "paper":
            any_ends = jnp.any(ends)
            redraw = partial(self._redraw, state.first, key, any_ends if is_exact(self.env) else ends)
            first = jax.lax.cond(any_across_vmap(any_ends), redraw, lambda: state.first)
        return EpisodeState(
            choose(ends, first, env), first, jnp.where(ends, 0, steps), state.episode_id + ends, state.diverged + ~sound
        )

    def _draw(self, key: Array) -> tuple[EnvState, Array]:
        return self.vmap(partial(reset_and_check, self.env))(jax.random.split(key, self.num_envs))

    def _redraw(self, first: EnvState, key: Array, due: Array) -> EnvState:
        """Return a new start for each environment if `due`; an unsound one is replaced by the last good start."""
        if is_exact(self.env):
            fresh, sound = self._draw(key)
        else:  # only where it is due: a simulation outside would lose its state
            fresh = self.vmap(self.env.reset_if)(jax.random.split(key, self.num_envs), due)  # pyright: ignore
            sound = self.vmap(partial(is_sound, self.env.spec))(fresh)
        return choose(sound & due, fresh, first)
