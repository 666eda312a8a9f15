"""The programs behind the Gymnasium environments: a reset and a step, compiled once for all instances of a kind."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.compiling.options import compiler_options
from dcp.envs.base import Environment, EnvState, is_sound, judged_reset, judged_step
from dcp.envs.devices import Split
from dcp.envs.episodes import choose
from dcp.envs.registry import is_ours
from dcp.interop.goals import reset_toward
from dcp.types import Array

DIVERGED = 2  # among the flags


class Seen(NamedTuple):
    """What the host reads of a reset or a step. Two arrays, because each is a transfer."""

    obs: Array  # [S + G]
    flags: Array  # [3]: near_goal, done, diverged


def seed_words(seed: int) -> np.ndarray:
    """uint32 [2]: the data of `jax.random.key(seed)`, and of a key of its own for seeds of up to 64 bits."""
    return np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def episode_key(words: Array, episode: Array) -> Array:
    """Episode k after `reset(seed=s)` starts from `env.reset(jax.random.fold_in(jax.random.key(s), k))`."""
    return jax.random.fold_in(jax.random.wrap_key_data(words, impl="threefry2x32"), episode)


def start(env: Environment, words: Array, episode: Array) -> tuple[EnvState, Seen]:
    state, sound = judged_reset(env, episode_key(words, episode))
    return state, _seen(state, sound)


def start_toward(env: Environment, words: Array, episode: Array, goal: Array) -> tuple[EnvState, Seen]:
    state = reset_toward(env, episode_key(words, episode), goal)
    return state, _seen(state, is_sound(env.spec, state))


def advance(env: Environment, before: EnvState, action: Array) -> tuple[EnvState, Seen]:
    """A step. One that diverges leaves the environment where it was, and is neither near the goal nor done."""
    after, sound = judged_step(env, before, action)
    state = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, before)
    return state, _seen(state, sound)


def _seen(state: EnvState, sound: Array) -> Seen:
    return Seen(state.obs, jnp.stack([state.near_goal & sound, state.done & sound, ~sound]))


@dataclass(frozen=True)
class Programs:
    start: Callable[..., tuple[EnvState, Seen]]
    start_toward: Callable[..., tuple[EnvState, Seen]]
    advance: Callable[..., tuple[EnvState, Seen]]


def programs(env: Environment, split: Split | None = None) -> Programs:
    """For one instance; with a split for N, as one program. A user's own environment may change, so it shares none."""
    return _shared(env, split) if is_ours(env) else _make(env, split)


def _make(env: Environment, split: Split | None) -> Programs:
    def compiled(one: Callable[..., Any]) -> Callable[..., Any]:
        of_one = partial(one, env)
        return jax.jit(of_one) if split is None else jax.jit(split.batched(of_one), compiler_options=compiler_options())

    return Programs(compiled(start), compiled(start_toward), compiled(advance))


_shared = cache(_make)
chosen = jax.jit(choose)
