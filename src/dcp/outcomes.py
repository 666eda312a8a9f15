"""What became of each row's goal in its own episode: when it is first near, and how long the body stays there.

Only critics that ask for hit times or occupancy pay for it. Everything is for windows [T, N, ...]; `left` [T, N] is how
many rows follow a row in its own episode and window.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.interfaces import Hindsight
from dcp.replay import Drawn, fell_at
from dcp.types import Array, EnvSpec, Transition

ENVS_AT_ONCE = 8  # whose [T, T] tables of distances are held at once
NEARNESS = 3  # occupancy counts a step within the threshold, within half and within a quarter of it


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
