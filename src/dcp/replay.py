"""A ring of rows, windows of it, hindsight goals, and batches of pairs. Pure functions over a state.

In windows [T, N, ...], `left` [T, N] is how many rows follow a row in its own episode and window.
"""

import math
from collections.abc import Collection
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dcp.errors import UserError
from dcp.interfaces import Hindsight
from dcp.types import Array, Batch, EnvSpec, Transition


class ReplayState(NamedTuple):
    rows: Any  # a pytree of [capacity, N, ...]
    head: Array  # []: where the next row goes
    size: Array  # []: rows stored

    same_for_all_seeds = ("head", "size")  # see `RunState`


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


def sample_stretches(rows: Any, number: int, length: int, key: Array) -> Any:
    """Draw stretches of consecutive rows from a stream [R, ...], all starts alike: [length, number, ...]"""
    start = jax.random.randint(key, (number,), 0, _length(rows, 0) - length + 1)
    at = start[None, :] + jnp.arange(length)[:, None]  # [length, number]
    return jax.tree.map(lambda rows: jnp.asarray(rows)[at], rows)


def _length(rows: Any, axis: int) -> int:
    return jax.tree.leaves(rows)[0].shape[axis]


def steps_left(episode_id: Array) -> Array:
    """[T] -> [T]: rows that follow in the same episode within the window."""
    length = episode_id.shape[0]
    is_last = jnp.append(episode_id[1:] != episode_id[:-1], True)
    end = jax.lax.cummin(jnp.where(is_last, jnp.arange(length), length), reverse=True)
    return end - jnp.arange(length)


def future_offsets(left: Array, uniform: Array, discount: float) -> Array:
    """Return offsets k >= 1 with probability proportional to discount^k, cut at `left`; 0 where nothing follows.

    A discount of 1 is uniform over 1..left. Otherwise the truncated geometric by inverse transform: O(T), where a
    categorical over all pairs needs T x T draws.
    """
    if discount == 1.0:
        offset = 1 + jnp.floor(uniform * left).astype(jnp.int32)
        return jnp.clip(offset, jnp.minimum(left, 1), left)
    log_discount = math.log(discount)  # in double precision: a discount near 1 is 1 in float32
    tail = -jnp.expm1(left * log_discount)  # 1 - discount^left
    offset = 1 + jnp.floor(jnp.log1p(-uniform * tail) / log_discount).astype(jnp.int32)
    return jnp.clip(offset, jnp.minimum(left, 1), left)


class HindsightGoals(NamedTuple):
    """Hold the hindsight goals of windows."""

    goal: Array  # [T, N, G]
    steps: Array  # [T, N]: how many rows later the goal was achieved; 0 where it is not of the row's own future
    sequence: Array  # [T, N, m, G]: the goal, and the achieved goals that followed it in its episode


def draw_goals(
    windows: Transition, left: Array, spec: EnvSpec, hindsight: Hindsight, discount: float, key: Array
) -> HindsightGoals:
    """Give each row the goal that `hindsight` asks for."""
    achieved = spec.achieved(windows.state)  # [T, N, G]
    now, envs = jnp.arange(left.shape[0])[:, None], jnp.arange(left.shape[1])[None, :]
    if hindsight.draws == "final":
        from dcp.outcomes import fell_at

        end = now + left
        limited = (end < left.shape[0] - 1) & ~fell_at(windows)[end, envs]  # its time limit lies in the window
        goal = jnp.where(limited[..., None], achieved[end, envs], windows.commanded_goal)
        return HindsightGoals(goal, jnp.where(limited, left, 0), goal[:, :, None])
    offsets = future_offsets(left, jax.random.uniform(key, left.shape), hindsight.discount or discount)
    at, is_random = now + offsets, jnp.zeros(left.shape, bool)
    if hindsight.current_share or hindsight.random_share:
        key_kind, key_row = jax.random.split(jax.random.fold_in(key, 1))
        kind = jax.random.uniform(key_kind, left.shape)
        is_random = kind < hindsight.random_share
        is_current = ~is_random & (kind < hindsight.random_share + hindsight.current_share)
        random_row = jax.random.randint(key_row, left.shape, 0, left.shape[0])
        at = jnp.where(is_random, random_row, jnp.where(is_current, now, at))
    goal = achieved[at, envs]  # [T, N, G]
    if hindsight.others_share or hindsight.commanded_share:
        key_kind, key_row, key_env = jax.random.split(jax.random.fold_in(key, 2), 3)
        kind = jax.random.uniform(key_kind, left.shape)
        is_other = kind < hindsight.others_share
        is_commanded = ~is_other & (kind < hindsight.others_share + hindsight.commanded_share)
        row = jax.random.randint(key_row, left.shape, 0, left.shape[0])
        env = jax.random.randint(key_env, left.shape, 0, left.shape[1])
        goal = jnp.where(is_other[..., None], achieved[row, env], goal)
        goal = jnp.where(is_commanded[..., None], windows.commanded_goal, goal)
        is_random = is_random | is_other | is_commanded
    steps = jnp.where(is_random, 0, at - now)
    if hindsight.goal_steps == 1:
        return HindsightGoals(goal, steps, goal[:, :, None])
    follows = jnp.minimum(jnp.arange(hindsight.goal_steps)[None, None, :], left[at, envs][..., None])  # [T, N, m]
    rows = at[..., None] + jnp.where(is_random[..., None], 0, follows)  # a random goal is repeated
    return HindsightGoals(goal, steps, achieved[rows, envs[..., None]])


# What a critic may need of a row beyond its own episode's states: stored as `Transition.fell`.
_OF_FALLS = frozenset({"terminal", "occupancy", "falls"})
_OF_GOALS = frozenset({"future_goal", "future_steps", "goal_sequence", "reward"})
OF_OUTCOMES = frozenset({"hit_time", "hit", "occupancy", "occupancy_seen"})
_OF_TRANSITIONS = frozenset({"next_state", "has_next", "terminal"})
_LOOKED_UP = OF_OUTCOMES | _OF_TRANSITIONS | {"reward", "falls"}  # in outcomes.py


def reads_falls(needs: Collection[str], hindsight: Hindsight) -> bool:
    """Tell whether a critic reads which steps ended in a fall: by name, or because a fall gives no final goal."""
    return bool(_OF_FALLS & set(needs)) or hindsight.draws == "final"


def relabel(
    windows: Transition,
    spec: EnvSpec,
    discount: float,
    key: Array,
    needs: Collection[str],
    hindsight: Hindsight = Hindsight(),  # noqa: B008
    chunk: int = 1,
) -> Batch:
    """Make all N * (T - 1) pairs of windows [T, N, ...], with only those fields of a Batch that are needed.

    Each window's last row has no future and is left out. chunk: the actions of this many steps count as one action.
    """
    required = set(needs) | ({"valid"} if chunk > 1 else set())
    left = jax.vmap(steps_left, in_axes=1, out_axes=1)(windows.episode_id)  # [T, N]
    fields: dict[str, Array] = {"valid": left >= chunk - 1}
    action, goals = windows.action, None
    if required & (_OF_GOALS | OF_OUTCOMES):
        goals = draw_goals(windows, left, spec, hindsight, discount, key)
        fields |= {"future_goal": goals.goal, "future_steps": goals.steps}
        fields["goal_sequence"] = goals.sequence.reshape(*left.shape, -1)  # [T, N, m * G]
    if chunk > 1 or required & _LOOKED_UP:
        from dcp import outcomes

        if goals is not None and "reward" in required:
            fields["reward"] = outcomes.rewards(windows, left, spec, goals.goal, discount, chunk)
        if goals is not None and required & OF_OUTCOMES:
            fields |= outcomes.outcomes(windows, left, spec, hindsight, goals.sequence)._asdict()
        if required & _OF_TRANSITIONS:
            fields |= outcomes.transitions(windows, left, chunk)
        if "falls" in required:
            fields["falls"] = outcomes.falls(windows, left)
        action = outcomes.chunks(windows.action, chunk)
    flat = partial(jax.tree.map, lambda x: x[:-1].reshape(-1, *x.shape[2:]))  # [(T - 1) * N, ...]
    needed = {name: array for name, array in fields.items() if name in required}
    return flat(Batch(windows.state, action, windows.commanded_goal, **needed))


def shuffled_batches(num_pairs: int, batch_size: int, key: Array) -> Array:
    """Return indices of the pairs in random order, none twice, in whole batches: [num_pairs // B, B]"""
    order = jax.random.permutation(key, num_pairs)
    return order[: num_pairs - num_pairs % batch_size].reshape(-1, batch_size)


def with_data(order: Array, own: int, data: int, each: int, key: Array) -> Array:
    """Replace the last `each` of each batch [K, B] by pairs of the data, none twice; theirs follow the `own` pairs."""
    updates, batch_size = order.shape
    drawn = jax.random.permutation(key, data)[: updates * each].reshape(updates, each)
    return order.at[:, batch_size - each :].set(own + drawn)


def moves(windows: Transition, spec: EnvSpec) -> Array:
    """[(T - 1) * N]: the achieved goal ends the row's episode, or its window, farther off than the threshold."""
    from dcp.outcomes import later

    left = jax.vmap(steps_left, in_axes=1, out_axes=1)(windows.episode_id)  # [T, N]
    achieved = spec.achieved(windows.state)  # [T, N, G]
    apart = jnp.linalg.norm(later(achieved, left) - achieved, axis=-1)
    return (apart > spec.threshold)[:-1].reshape(-1)


def with_more_of(chosen: Array, order: Array, share: float, key: Array) -> Array:
    """Replace the first `share` of each batch [K, B] by draws from the chosen pairs [P], if there are any."""
    count = jnp.cumsum(chosen)  # [P]
    numbers = 1 + jax.random.randint(key, (order.shape[0], round(share * order.shape[1])), 0, jnp.maximum(count[-1], 1))
    more = jnp.searchsorted(count, numbers)  # the pair that is the drawn one among the chosen
    return jnp.where(count[-1] > 0, order.at[:, : more.shape[1]].set(more), order)
