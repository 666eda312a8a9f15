"""A goal task of an environment of Brax or MuJoCo Playground: `reset(key)` and `step(state, action)` of one state.

Playground's states have `data` and Brax's `pipeline_state`; both have `obs` and `done`, which is all that is read here.
The functions below get the whole state.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dcp.envs.base import EnvState
from dcp.errors import UserError, one_line
from dcp.types import Array, EnvSpec


class Adapted(NamedTuple):
    state: Any  # the environment's own
    goal: Array  # [G], where it is drawn at the start


class BraxTask:
    """Make a task of an environment in this form. A state is what has to reach the goal, followed by `observe`.

    `achieved`: a function of the environment's state -> [G]. `goal`: the same for the goal; or `goals`, a function of a
    key and the achieved goal of the start, which draws it. `near`: a function of the state that says whether the goal
    is reached; without it `threshold` decides. `observe`: a function of the state -> [...]; by default its `obs`, or of
    a dictionary the part `state`.
    """

    def __init__(
        self,
        name: str,
        env: Any,
        *,
        achieved: Callable[[Any], Array],
        threshold: float,
        episode_length: int,
        goal: Callable[[Any], Array] | None = None,
        goals: Callable[[Array, Array], Array] | None = None,
        near: Callable[[Any], Array] | None = None,
        observe: Callable[[Any], Array] | None = None,
    ):
        if (goal is None) == (goals is None):
            raise UserError(f"{name} needs either goal, a function of the state, or goals, which draws them")
        self._env, self._achieved, self._goal, self._goals = env, achieved, goal, goals
        self._near, self._observe, self._threshold = near, observe or _observation, threshold
        try:
            state = jax.eval_shape(self._reset, jax.random.key(0))
            goal_size = jax.eval_shape(self._achieved, state.state).size
            state_size = goal_size + jax.eval_shape(self._observe, state.state).size
            action_size = int(env.action_size)
        except Exception as error:  # a user's environment or function may fail in any way
            raise UserError(f"{name} cannot be reset ({type(error).__name__}: {one_line(error)}): repair it") from error
        if state.goal.size != goal_size:
            raise UserError(f"{name} has goals of {state.goal.size} numbers and achieves {goal_size}: make them alike")
        # A Brax environment names its engine; Playground's are MJX's.
        physics = getattr(env, "backend", "mjx")
        goal_dims = tuple(range(goal_size))
        self.spec = EnvSpec(
            name, state_size, goal_size, action_size, goal_dims, threshold, episode_length, physics=physics
        )

    def reset(self, key: Array) -> EnvState:
        return self._seen(self._reset(key))

    def step(self, state: EnvState, action: Array) -> EnvState:
        before: Adapted = state.physics
        with jax.numpy_rank_promotion("allow"):  # their code promotes
            after = self._env.step(before.state, jnp.clip(action, -1.0, 1.0))
        return self._seen(Adapted(after, before.goal if self._goal is None else _flat(self._goal(after))))

    def _reset(self, key: Array) -> Adapted:
        key_start, key_goal = jax.random.split(key)
        with jax.numpy_rank_promotion("allow"):
            state = self._env.reset(jax.random.key_data(key_start))  # both libraries keep keys as numbers
        if self._goal is not None:
            return Adapted(state, _flat(self._goal(state)))
        assert self._goals is not None
        return Adapted(state, _flat(self._goals(key_goal, _flat(self._achieved(state)))))

    def _seen(self, now: Adapted) -> EnvState:
        achieved = _flat(self._achieved(now.state))
        near = jnp.linalg.norm(achieved - now.goal) < self._threshold
        if self._near is not None:
            near = jnp.asarray(self._near(now.state)).astype(bool).reshape(())
        obs = jnp.concatenate([achieved, _flat(self._observe(now.state)), now.goal])
        return EnvState(obs, near.astype(jnp.float32), jnp.asarray(now.state.done).astype(bool), near, now)


def _observation(state: Any) -> Array:
    return state.obs["state"] if isinstance(state.obs, dict) else state.obs


def _flat(values: Any) -> Array:
    return jnp.ravel(jnp.asarray(values, jnp.float32))
