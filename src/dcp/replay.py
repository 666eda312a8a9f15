"""A ring of rows, windows of it, hindsight goals, and batches of pairs. Pure functions over a state.

In windows [T, N, ...], `left` [T, N] is how many rows follow a row in its own episode and window.
"""

import math
from collections.abc import Collection
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.errors import UserError
from dcp.interfaces import Hindsight
from dcp.types import Array, Batch, EnvSpec, Transition

ENVS_AT_ONCE = 8  # whose [T, T] tables of distances are held at once
NEARNESS = 3  # occupancy counts a step within the threshold, within half and within a quarter of it


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


class Drawn(NamedTuple):
    """Hold the hindsight goals of windows."""

    goal: Array  # [T, N, G]
    steps: Array  # [T, N]: how many rows later the goal was achieved; 0 where it is not of the row's own future
    sequence: Array  # [T, N, m, G]: the goal, and the achieved goals that followed it in its episode


def draw_goals(
    windows: Transition, left: Array, spec: EnvSpec, hindsight: Hindsight, discount: float, key: Array
) -> Drawn:
    """Give each row the goal that `hindsight` asks for."""
    achieved = spec.achieved(windows.state)  # [T, N, G]
    now, envs = jnp.arange(left.shape[0])[:, None], jnp.arange(left.shape[1])[None, :]
    if hindsight.draws == "final":
        end = now + left
        limited = (end < left.shape[0] - 1) & ~fell_at(windows)[end, envs]  # its time limit lies in the window
        goal = jnp.where(limited[..., None], achieved[end, envs], windows.commanded_goal)
        return Drawn(goal, jnp.where(limited, left, 0), goal[:, :, None])
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
        return Drawn(goal, steps, goal[:, :, None])
    follows = jnp.minimum(jnp.arange(hindsight.goal_steps)[None, None, :], left[at, envs][..., None])  # [T, N, m]
    rows = at[..., None] + jnp.where(is_random[..., None], 0, follows)  # a random goal is repeated
    return Drawn(goal, steps, achieved[rows, envs[..., None]])


def fell_at(windows: Transition) -> Array:
    """[T, N]: this step ended its episode in a fall. Windows that do not store it have none."""
    return jnp.zeros(windows.episode_id.shape, bool) if windows.fell is None else windows.fell


def falls(windows: Transition, left: Array) -> Array:
    """[T, N]: the row's episode ends in a fall inside the window"""
    now, envs = jnp.arange(left.shape[0])[:, None], jnp.arange(left.shape[1])[None, :]
    return fell_at(windows)[now + left, envs]


# What a critic may need of a row beyond its own episode's states: stored as `Transition.fell`.
_OF_FALLS = frozenset({"terminal", "occupancy", "falls"})
_OF_GOALS = frozenset({"future_goal", "future_steps", "goal_sequence", "reward"})
OF_OUTCOMES = frozenset({"hit_time", "hit", "occupancy", "occupancy_seen"})
_OF_TRANSITIONS = frozenset({"next_state", "has_next", "terminal"})


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
    if required & (_OF_GOALS | OF_OUTCOMES):
        drawn = draw_goals(windows, left, spec, hindsight, discount, key)
        fields |= {"future_goal": drawn.goal, "future_steps": drawn.steps}
        fields["goal_sequence"] = drawn.sequence.reshape(*left.shape, -1)  # [T, N, m * G]
        if "reward" in required:
            fields["reward"] = _rewards(windows, left, spec, drawn.goal, discount, chunk)
        if required & OF_OUTCOMES:
            fields |= outcomes(windows, left, spec, hindsight, drawn)._asdict()
    if required & _OF_TRANSITIONS:
        fields |= _transitions(windows, left, chunk)
    if "falls" in required:
        fields["falls"] = falls(windows, left)
    flat = partial(jax.tree.map, lambda x: x[:-1].reshape(-1, *x.shape[2:]))  # [(T - 1) * N, ...]
    needed = {name: array for name, array in fields.items() if name in required}
    return flat(Batch(windows.state, _chunks(windows.action, chunk), windows.commanded_goal, **needed))


# What became of each row's goal in its own episode. Only critics that ask for hit times or occupancy pay for it.


class Outcome(NamedTuple):
    """Hold what became of each row's goal in its own episode and window."""

    hit_time: Array  # [T, N]: steps until it is first near; 0 where it is near now, or never
    hit: Array  # [T, N]: it is near now or later
    occupancy: Array  # [T, N, K]
    occupancy_seen: Array  # [T, N, K]


def outcomes(windows: Transition, left: Array, spec: EnvSpec, hindsight: Hindsight, drawn: Drawn) -> Outcome:
    """Look up when each goal is first near, and how near the body stays over each bin of later steps.

    Every row is compared with every later row of its episode: [T, T] for an environment, a few of them at a time.
    """
    within = spec.threshold if hindsight.within is None else hindsight.within
    one = partial(_outcome, within=within, edges=hindsight.bins)
    over_envs = [jnp.moveaxis(x, 1, 0) for x in (spec.achieved(windows.state), left, fell_at(windows), drawn.sequence)]
    by_env = jax.lax.map(lambda env: one(*env), tuple(over_envs), batch_size=min(ENVS_AT_ONCE, left.shape[1]))
    return Outcome(*(jnp.moveaxis(x, 0, 1) for x in by_env))


def _outcome(achieved: Array, left: Array, fell: Array, goals: Array, within: float, edges: tuple[int, ...]) -> Outcome:
    """achieved [T, G], left [T], fell [T], goals [T, m, G] of one environment -> [T, ...]"""
    length = left.shape[0]
    now, row = jnp.arange(length)[:, None], jnp.arange(length)[None, :]  # a goal's row t, a later row j
    end = now + left[:, None]  # [T, 1]
    is_later = (row >= now) & (row <= end)  # [T, T]
    squares = _squared_distances(goals[:, 0], achieved)  # [T, T]
    matches = is_later & (squares <= within**2)
    for step in range(1, goals.shape[1]):  # every one of the m goals is near, each this many rows later
        after = jnp.minimum(jnp.arange(length) + step, jnp.arange(length) + left)  # [T]
        matches &= _squared_distances(goals[:, step], achieved[after]) <= within**2
    hit = jnp.any(matches, axis=1)
    hit_time = jnp.where(hit, jnp.argmax(matches, axis=1) - now[:, 0], 0)
    if not edges:
        nothing = jnp.zeros((length, 1))  # one bin, never seen: lax.map takes no empty arrays
        return Outcome(hit_time, hit, nothing, nothing.astype(bool))
    near = sum((squares <= (within / 2**i) ** 2).astype(jnp.float32) for i in range(NEARNESS)) / NEARNESS
    total = jnp.cumsum(jnp.where(is_later & (row > now), near, 0.0), axis=1)  # [T, T]: up to and with row j
    first, last = np.maximum(np.asarray(edges[:-1]), 1), np.asarray(edges[1:])  # [K]: offsets from first to before last
    low, high = (jnp.minimum(now + jnp.asarray(e)[None, :] - 1, end) for e in (first, last))  # [T, K]
    summed = jnp.take_along_axis(total, high, 1) - jnp.take_along_axis(total, low, 1)
    width = jnp.broadcast_to(jnp.asarray(np.maximum(last - first, 0))[None, :], high.shape)
    seen = jnp.where(fell[end[:, 0]][:, None], width, jnp.minimum(high - low, width))  # after a fall: zeros, and seen
    return Outcome(hit_time, hit, summed / jnp.maximum(seen, 1), seen > 0)


def _squared_distances(x: Array, y: Array) -> Array:
    """[T, G], [T, G] -> [T, T], exact at zero: no product of large numbers is subtracted from another"""
    return sum(((x[:, None, i] - y[None, :, i]) ** 2 for i in range(x.shape[1])), jnp.zeros((x.shape[0], y.shape[0])))


def _later(x: Array, steps: Array) -> Array:
    """Shift x [T, N, ...] by steps [T, N] rows: -> [T, N, ...]"""
    now, envs = jnp.arange(x.shape[0])[:, None], jnp.arange(x.shape[1])[None, :]
    return x[now + steps, envs]


def _chunks(action: Array, length: int) -> Array:
    """[T, N, A] -> [T, N, length * A]: the action and those after it, the window's last one where it ends"""
    if length == 1:
        return action
    last = jnp.arange(action.shape[0])[::-1, None]  # [T, 1]: rows that follow in the window
    steps = [jnp.broadcast_to(jnp.minimum(last, step), action.shape[:2]) for step in range(length)]
    return jnp.concatenate([_later(action, step) for step in steps], axis=-1)


def _transitions(windows: Transition, left: Array, chunk: int) -> dict[str, Array]:
    """Return where each action or chunk led. The state after a fall is not stored: such a row has no next state."""
    return {
        "next_state": _later(windows.state, jnp.minimum(left, chunk)),  # [T, N, S]
        "has_next": left >= chunk,
        "terminal": falls(windows, left) & (left == chunk - 1),
    }


def _rewards(windows: Transition, left: Array, spec: EnvSpec, goal: Array, discount: float, chunk: int) -> Array:
    """[T, N]: 1 for each next state near the goal, discounted over the chunk"""
    achieved, total = spec.achieved(windows.state), jnp.zeros(left.shape)
    for step in range(chunk):
        apart = jnp.linalg.norm(_later(achieved, jnp.minimum(left, step + 1)) - goal, axis=-1)
        total += discount**step * (apart < spec.threshold)
    return total


def shuffled_batches(num_pairs: int, batch_size: int, key: Array) -> Array:
    """Return indices of the pairs in random order, none twice, in whole batches: [num_pairs // B, B]"""
    order = jax.random.permutation(key, num_pairs)
    return order[: num_pairs - num_pairs % batch_size].reshape(-1, batch_size)


def moves(windows: Transition, spec: EnvSpec) -> Array:
    """[(T - 1) * N]: the achieved goal ends the row's episode, or its window, farther off than the threshold."""
    left = jax.vmap(steps_left, in_axes=1, out_axes=1)(windows.episode_id)  # [T, N]
    achieved = spec.achieved(windows.state)  # [T, N, G]
    apart = jnp.linalg.norm(_later(achieved, left) - achieved, axis=-1)
    return (apart > spec.threshold)[:-1].reshape(-1)


def with_more_of(chosen: Array, order: Array, share: float, key: Array) -> Array:
    """Replace the first `share` of each batch [K, B] by draws from the chosen pairs [P], if there are any."""
    count = jnp.cumsum(chosen)  # [P]
    drawn = 1 + jax.random.randint(key, (order.shape[0], round(share * order.shape[1])), 0, jnp.maximum(count[-1], 1))
    more = jnp.searchsorted(count, drawn)  # the pair that is the drawn one among the chosen
    return jnp.where(count[-1] > 0, order.at[:, : more.shape[1]].set(more), order)


def sample_seed_states(states: Array, updates: int, share: int, key: Array) -> Array:
    """Draw states [K, S] for each update: [updates, share, S]. None twice in an update: two equal pairs would be each
    other's negatives."""
    random_scores = jax.random.uniform(key, (updates, states.shape[0]))
    return states[jax.lax.top_k(random_scores, share)[1]]


def inject_stationary_pairs(batch: Batch, states: Array, spec: EnvSpec) -> Batch:
    """Replace the first pairs of [B, ...] by pairs of these states [M, S]: no action, and the future is the present.

    That is what a hindsight goal of an episode at rest is, whichever later step it is taken from. Without momentum
    (point_soccer) it is the exact truth; for a simulated body it is as true as the body stands still.
    """
    num, achieved = states.shape[0], spec.achieved(states)  # [M, G]
    stationary: dict[str, Any] = {
        "state": states,
        "action": 0.0,
        "commanded_goal": achieved,
        "future_goal": achieved,
        "future_steps": 1,
        "next_state": states,
        "hit_time": 0,
        "reward": 1.0,
        "occupancy": 1.0,
        **dict.fromkeys(("valid", "has_next", "hit", "occupancy_seen"), True),
        **dict.fromkeys(("terminal", "falls"), False),
    }
    fields = {name: array for name, array in batch._asdict().items() if array is not None}
    if batch.goal_sequence is not None:
        stationary["goal_sequence"] = jnp.tile(achieved, (1, batch.goal_sequence.shape[-1] // spec.goal_size))
    return Batch(**{name: array.at[:num].set(stationary[name]) for name, array in fields.items()})
