"""A ring of rows; a row is one time step of all environments. Nothing is ever rolled or copied whole."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dcp.types import Array, Transition


class ReplayState(NamedTuple):
    rows: Transition  # [capacity, N, ...]
    head: Array  # []: where the next row goes
    size: Array  # []: rows stored


def init(example: Transition, capacity: int) -> ReplayState:
    """example: one row, [N, ...]"""
    rows = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), example)
    return ReplayState(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def capacity(state: ReplayState, axis: int = 0) -> int:
    return state.rows.episode_id.shape[axis]


def insert(state: ReplayState, new: Transition, axis: int = 0) -> ReplayState:
    """new: [T, N, ...]. Row by row, so that donated storage is written in place wherever the ring wraps.

    `axis` is that of time: 1 where seeds lie before it, which share head and size. A vmap would make scatters of this.
    """
    num_new, most = new.episode_id.shape[axis], capacity(state, axis)

    def write(t: Array, rows: Transition) -> Transition:
        at = (state.head + t) % most

        def leaf(old: Array, rows_of_leaf: Array) -> Array:
            row = jax.lax.dynamic_index_in_dim(rows_of_leaf, t, axis, keepdims=False)
            return jax.lax.dynamic_update_index_in_dim(old, row, at, axis)

        return jax.tree.map(leaf, rows, new)

    rows = jax.lax.fori_loop(0, num_new, write, state.rows)
    return ReplayState(rows, (state.head + num_new) % most, jnp.minimum(state.size + num_new, most))


def sample_windows(state: ReplayState, length: int, key: Array) -> Transition:
    """`length` consecutive rows for each environment, the start uniform over what is stored: [T, N, ...]"""
    num_envs, most = state.rows.episode_id.shape[1], capacity(state)
    start = jax.random.randint(key, (num_envs,), 0, state.size - length + 1)  # [N], counted from the oldest row
    oldest = state.head - state.size
    at = (oldest + start[None, :] + jnp.arange(length)[:, None]) % most  # [T, N]
    take = jax.vmap(lambda rows, at: rows[at], in_axes=1, out_axes=1)  # split along N, each device takes its own
    return jax.tree.map(lambda rows: take(rows, at), state.rows)
