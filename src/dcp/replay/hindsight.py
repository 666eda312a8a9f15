"""Future goals for the critic: a state that the same episode reached later."""

import math
from functools import partial

import jax
import jax.numpy as jnp

from dcp.types import Array, Batch, EnvSpec, Transition


def steps_left(episode_id: Array) -> Array:
    """[T] -> [T]: rows that follow in the same episode within the window."""
    length = episode_id.shape[0]
    is_last = jnp.append(episode_id[1:] != episode_id[:-1], True)
    end = jax.lax.cummin(jnp.where(is_last, jnp.arange(length), length), reverse=True)
    return end - jnp.arange(length)


def future_offsets(left: Array, uniform: Array, discount: float) -> Array:
    """Offset k >= 1 with probability proportional to discount^k, cut at `left`; 0 where nothing follows.

    The truncated geometric by inverse transform: O(T), where a categorical over all pairs needs T x T draws.
    """
    log_discount = math.log(discount)  # in double precision: a discount near 1 is 1 in float32
    tail = -jnp.expm1(left * log_discount)  # 1 - discount^left
    offset = 1 + jnp.floor(jnp.log1p(-uniform * tail) / log_discount).astype(jnp.int32)
    return jnp.clip(offset, jnp.minimum(left, 1), left)


def relabel(windows: Transition, spec: EnvSpec, discount: float, key: Array) -> Batch:
    """windows [T, N, ...] -> all N * (T - 1) pairs; each window's last row has no future and is left out."""
    left = jax.vmap(steps_left, in_axes=1, out_axes=1)(windows.episode_id)  # [T, N]
    offsets = future_offsets(left, jax.random.uniform(key, left.shape), discount)  # [T, N]
    length, num_envs = left.shape
    at = jnp.arange(length)[:, None] + offsets  # [T, N]
    achieved = spec.achieved(windows.state)  # [T, N, G]
    future_goal = achieved[at, jnp.arange(num_envs)[None, :]]  # [T, N, G]
    flat = partial(jax.tree.map, lambda x: x[:-1].reshape(-1, *x.shape[2:]))  # [(T - 1) * N, ...]
    return flat(Batch(windows.state, windows.action, windows.commanded_goal, future_goal))


def shuffled_batches(num_pairs: int, batch_size: int, key: Array) -> Array:
    """Indices of every pair, once each, in random order: [num_pairs / B, B]"""
    return jax.random.permutation(key, num_pairs).reshape(-1, batch_size)
