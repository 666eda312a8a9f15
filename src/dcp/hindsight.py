"""Goals for rows of the past, and what became of them: when a goal is first near, and how long the body stays there.

All for windows [T, N, ...]. `left` [T, N] is how many rows follow a row in its own episode and window.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.interfaces import Hindsight
from dcp.types import Array, EnvSpec, Transition

ENVS_AT_ONCE = 8  # whose [T, T] tables of distances are held at once
NEARNESS = 3  # occupancy counts a step within the threshold, within half and within a quarter of it


def steps_left(episode_id: Array) -> Array:
    """[T] -> [T]: rows that follow in the same episode within the window."""
    length = episode_id.shape[0]
    is_last = jnp.append(episode_id[1:] != episode_id[:-1], True)
    end = jax.lax.cummin(jnp.where(is_last, jnp.arange(length), length), reverse=True)
    return end - jnp.arange(length)


def future_offsets(left: Array, uniform: Array, discount: float) -> Array:
    """Offset k >= 1 with probability proportional to discount^k, cut at `left`; 0 where nothing follows.

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
    """The hindsight goals of windows."""

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
        limited = (end < left.shape[0] - 1) & ~_fell(windows)[end, envs]  # its time limit lies in the window
        goal = jnp.where(limited[..., None], achieved[end, envs], windows.commanded_goal)
        return Drawn(goal, jnp.where(limited, left, 0), goal[:, :, None])
    offsets = future_offsets(left, jax.random.uniform(key, left.shape), hindsight.discount or discount)
    at, is_random = now + offsets, jnp.zeros(left.shape, bool)
    if hindsight.current_share or hindsight.random_share:
        key_kind, key_row = jax.random.split(jax.random.fold_in(key, 1))
        kind = jax.random.uniform(key_kind, left.shape)
        is_random = kind < hindsight.random_share
        is_current = ~is_random & (kind < hindsight.random_share + hindsight.current_share)
        anywhere = jax.random.randint(key_row, left.shape, 0, left.shape[0])
        at = jnp.where(is_random, anywhere, jnp.where(is_current, now, at))
    goal = achieved[at, envs]  # [T, N, G]
    steps = jnp.where(is_random, 0, at - now)
    if hindsight.goal_steps == 1:
        return Drawn(goal, steps, goal[:, :, None])
    follows = jnp.minimum(jnp.arange(hindsight.goal_steps)[None, None, :], left[at, envs][..., None])  # [T, N, m]
    rows = at[..., None] + jnp.where(is_random[..., None], 0, follows)  # a random goal is repeated
    return Drawn(goal, steps, achieved[rows, envs[..., None]])


class Outcome(NamedTuple):
    """What became of each row's goal in its own episode and window."""

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
    over_envs = [jnp.moveaxis(x, 1, 0) for x in (spec.achieved(windows.state), left, _fell(windows), drawn.sequence)]
    found = jax.lax.map(lambda env: one(*env), tuple(over_envs), batch_size=min(ENVS_AT_ONCE, left.shape[1]))
    return Outcome(*(jnp.moveaxis(x, 0, 1) for x in found))


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


def _fell(windows: Transition) -> Array:
    """[T, N]: this step ended its episode in a fall. Windows that do not store it have none."""
    return jnp.zeros(windows.episode_id.shape, bool) if windows.fell is None else windows.fell


def falls(windows: Transition, left: Array) -> Array:
    """[T, N]: the row's episode ends in a fall inside the window"""
    now, envs = jnp.arange(left.shape[0])[:, None], jnp.arange(left.shape[1])[None, :]
    return _fell(windows)[now + left, envs]
