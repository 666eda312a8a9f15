"""A ring of rows, windows of it, and hindsight goals. Pure functions over a state."""

import math
from collections.abc import Collection
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dcp.errors import UserError
from dcp.types import Array, Batch, EnvSpec, Transition


class ReplayState(NamedTuple):
    rows: Any  # a pytree of [capacity, N, ...]
    head: Array  # []: where the next row goes
    size: Array  # []: rows stored


def init_replay(example: Any, capacity: int) -> ReplayState:
    """Make an empty ring. example: one row, any pytree of arrays [N, ...]"""
    rows = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), example)
    return ReplayState(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def insert(state: ReplayState, new: Any, axis: int = 0) -> ReplayState:
    """Add rows, over the oldest ones where the ring is full. new: a pytree of [T, N, ...]

    Row by row, so that donated storage is written in place wherever the ring wraps. `axis` is that of time: 1 where
    seeds lie before it, which share head and size. A vmap would make scatters of this.
    """
    num_new, most = _length(new, axis), _length(state.rows, axis)
    if num_new > most:
        raise UserError(f"{num_new} rows do not fit into a replay of {most}: insert fewer at once, or make it larger")

    def write(t: Array, rows: Any) -> Any:
        at = (state.head + t) % most

        def leaf(old: Array, rows_of_leaf: Array) -> Array:
            row = jax.lax.dynamic_index_in_dim(rows_of_leaf, t, axis, keepdims=False)
            return jax.lax.dynamic_update_index_in_dim(old, row, at, axis)

        return jax.tree.map(leaf, rows, new)

    rows = jax.lax.fori_loop(0, num_new, write, state.rows)
    return ReplayState(rows, (state.head + num_new) % most, jnp.minimum(state.size + num_new, most))


def sample_windows(state: ReplayState, length: int, key: Array) -> Any:
    """Draw `length` consecutive rows for each environment, the start uniform over what is stored: [T, N, ...]

    Asking for more rows than are stored is an error. Inside a jitted program nobody can see how many are stored:
    there only the capacity is checked, and the caller must have filled the ring.
    """
    num_envs, most = _length(state.rows, 1), _length(state.rows, 0)
    try:
        stored = int(state.size)
    except jax.errors.ConcretizationTypeError:
        stored = most
    if length > stored:
        raise UserError(f"a window of {length} rows was asked for, but the replay has {stored}: insert more rows first")
    start = jax.random.randint(key, (num_envs,), 0, state.size - length + 1)  # [N], counted from the oldest row
    oldest = state.head - state.size
    at = (oldest + start[None, :] + jnp.arange(length)[:, None]) % most  # [T, N]
    take = jax.vmap(lambda rows, at: rows[at], in_axes=1, out_axes=1)  # split along N, each device takes its own
    return jax.tree.map(lambda rows: take(rows, at), state.rows)


def _length(rows: Any, axis: int) -> int:
    return jax.tree.leaves(rows)[0].shape[axis]


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


def relabel(windows: Transition, spec: EnvSpec, discount: float, key: Array, needs: Collection[str]) -> Batch:
    """Make all N * (T - 1) pairs of windows [T, N, ...], with those fields of a Batch that are needed and no others.

    Each window's last row has no future and is left out.
    """
    left = jax.vmap(steps_left, in_axes=1, out_axes=1)(windows.episode_id)  # [T, N]
    length, num_envs = left.shape
    envs, now = jnp.arange(num_envs)[None, :], jnp.arange(length)[:, None]
    found: dict[str, Array] = {}
    if {"future_goal", "future_steps"} & set(needs):
        offsets = future_offsets(left, jax.random.uniform(key, left.shape), discount)  # [T, N]
        found["future_goal"] = spec.achieved(windows.state)[now + offsets, envs]  # [T, N, G]
        found["future_steps"] = offsets
    if "next_state" in needs:
        found["next_state"] = windows.state[now + jnp.minimum(left, 1), envs]  # [T, N, S]
    flat = partial(jax.tree.map, lambda x: x[:-1].reshape(-1, *x.shape[2:]))  # [(T - 1) * N, ...]
    needed = {name: array for name, array in found.items() if name in needs}
    return flat(Batch(windows.state, windows.action, windows.commanded_goal, **needed))


def shuffled_batches(num_pairs: int, batch_size: int, key: Array) -> Array:
    """Indices of every pair, once each, in random order: [num_pairs / B, B]"""
    return jax.random.permutation(key, num_pairs).reshape(-1, batch_size)


def resting_draws(key: Array, updates: int, num_states: int, share: int) -> Array:
    """[updates, share]: which states enter each update, none twice: two equal pairs would be each other's negatives"""
    lots = jax.random.uniform(key, (updates, num_states))
    return jax.lax.top_k(lots, share)[1]  # the highest lots


def with_resting_pairs(batch: Batch, states: Array, spec: EnvSpec) -> Batch:
    """The first pairs [B, ...] give way to pairs of these states [M, S]: no action, and the future is the present.

    That is what a hindsight goal of an episode at rest is, whichever later step it is taken from. Without momentum
    (point_soccer) it is the exact truth; for a simulated body it is as true as the body stands still.
    """
    num, achieved = states.shape[0], spec.achieved(states)  # [M, G]
    at_rest = {
        "state": states,
        "action": jnp.zeros((num, spec.action_size)),
        "commanded_goal": achieved,
        "future_goal": achieved,
        "future_steps": 1,
        "next_state": states,
    }
    there = {name: array for name, array in batch._asdict().items() if array is not None}
    return Batch(**{name: array.at[:num].set(at_rest[name]) for name, array in there.items()})
