"""What became of each row of windows [T, N, ...] and of its goal, for the critics that ask: see `replay.relabel`.

Where an action led, what it was paid, when its goal was first near, and whether the episode ended in a fall.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.interfaces import Hindsight
from dcp.types import Array, EnvSpec, Transition

ENVS_AT_ONCE = 8  # whose [T, T] tables of distances are held at once
NEARNESS = 3  # occupancy counts a step within the threshold, within half and within a quarter of it


def fell_at(windows: Transition) -> Array:
    """[T, N]: this step ended its episode in a fall. Windows that do not store it have none."""
    return jnp.zeros(windows.episode_id.shape, bool) if windows.fell is None else windows.fell


def falls(windows: Transition, left: Array) -> Array:
    """[T, N]: the row's episode ends in a fall inside the window"""
    now, envs = jnp.arange(left.shape[0])[:, None], jnp.arange(left.shape[1])[None, :]
    return fell_at(windows)[now + left, envs]


def later(x: Array, steps: Array) -> Array:
    """Shift x [T, N, ...] by steps [T, N] rows: -> [T, N, ...]"""
    now, envs = jnp.arange(x.shape[0])[:, None], jnp.arange(x.shape[1])[None, :]
    return x[now + steps, envs]


def chunks(action: Array, length: int) -> Array:
    """[T, N, A] -> [T, N, length * A]: the action and those after it, the window's last one where it ends"""
    if length == 1:
        return action
    last = jnp.arange(action.shape[0])[::-1, None]  # [T, 1]: rows that follow in the window
    steps = [jnp.broadcast_to(jnp.minimum(last, step), action.shape[:2]) for step in range(length)]
    return jnp.concatenate([later(action, step) for step in steps], axis=-1)


def transitions(windows: Transition, left: Array, chunk: int) -> dict[str, Array]:
    """Return where each action or chunk led. The state after a fall is not stored: such a row has no next state."""
    return {
        "next_state": later(windows.state, jnp.minimum(left, chunk)),  # [T, N, S]
        "has_next": left >= chunk,
        "terminal": falls(windows, left) & (left == chunk - 1),
    }


def rewards(windows: Transition, left: Array, spec: EnvSpec, goal: Array, discount: float, chunk: int) -> Array:
    """[T, N]: 1 for each next state near the goal, discounted over the chunk"""
    achieved, total = spec.achieved(windows.state), jnp.zeros(left.shape)
    for step in range(chunk):
        apart = jnp.linalg.norm(later(achieved, jnp.minimum(left, step + 1)) - goal, axis=-1)
        total += discount**step * (apart < spec.threshold)
    return total


class GoalOutcome(NamedTuple):
    """Hold what became of each row's goal in its own episode and window."""

    hit_time: Array  # [T, N]: steps until it is first near; 0 where it is near now, or never
    hit: Array  # [T, N]: it is near now or later
    occupancy: Array  # [T, N, K]
    occupancy_seen: Array  # [T, N, K]


def outcomes(windows: Transition, left: Array, spec: EnvSpec, hindsight: Hindsight, goals: Array) -> GoalOutcome:
    """Look up when each goal [T, N, m, G] is first near, and how near the body stays over each bin of later steps.

    Every row is compared with every later row of its episode: [T, T] for an environment, a few of them at a time.
    """
    within = spec.threshold if hindsight.within is None else hindsight.within
    one = partial(_outcome, within=within, edges=hindsight.bins)
    over_envs = [jnp.moveaxis(x, 1, 0) for x in (spec.achieved(windows.state), left, fell_at(windows), goals)]
    by_env = jax.lax.map(lambda env: one(*env), tuple(over_envs), batch_size=min(ENVS_AT_ONCE, left.shape[1]))
    return GoalOutcome(*(jnp.moveaxis(x, 0, 1) for x in by_env))


def _outcome(
    achieved: Array, left: Array, fell: Array, goals: Array, within: float, edges: tuple[int, ...]
) -> GoalOutcome:
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
        return GoalOutcome(hit_time, hit, nothing, nothing.astype(bool))
    near = sum((squares <= (within / 2**i) ** 2).astype(jnp.float32) for i in range(NEARNESS)) / NEARNESS
    total = jnp.cumsum(jnp.where(is_later & (row > now), near, 0.0), axis=1)  # [T, T]: up to and with row j
    first, last = np.maximum(np.asarray(edges[:-1]), 1), np.asarray(edges[1:])  # [K]: offsets from first to before last
    low, high = (jnp.minimum(now + jnp.asarray(e)[None, :] - 1, end) for e in (first, last))  # [T, K]
    summed = jnp.take_along_axis(total, high, 1) - jnp.take_along_axis(total, low, 1)
    width = jnp.broadcast_to(jnp.asarray(np.maximum(last - first, 0))[None, :], high.shape)
    # How many steps of each bin were seen: after a fall all of them, as zeros.
    steps = jnp.where(fell[end[:, 0]][:, None], width, jnp.minimum(high - low, width))
    return GoalOutcome(hit_time, hit, summed / jnp.maximum(steps, 1), steps > 0)


def _squared_distances(x: Array, y: Array) -> Array:
    """[T, G], [T, G] -> [T, T], exact at zero: no product of large numbers is subtracted from another"""
    return sum(((x[:, None, i] - y[None, :, i]) ** 2 for i in range(x.shape[1])), jnp.zeros((x.shape[0], y.shape[0])))
