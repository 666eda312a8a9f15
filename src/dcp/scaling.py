"""Inputs of about unit size: the centre and spread by which every network of an agent sees states and goals.

A goal is part of a state (`EnvSpec.goal_dims`), so it shares those numbers' centre and spread. Thresholds, commands and
the replay stay in the task's own units.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.errors import UserError
from dcp.interfaces import Representation
from dcp.types import Array, Batch, EnvSpec

LEAST_SPREAD = 1e-2  # of a number that hardly changes, in the task's own units
MOST_ROWS = 1e6  # rows that the running statistics remember


class Scale(NamedTuple):
    centre: Array  # [S]
    spread: Array  # [S]
    square: Array  # [S]: the variance that `spread` is the root of
    rows: Array  # []: how many rows it was measured on


def init_scale(normalize: str, spec: EnvSpec) -> Any:
    """Return the first scale of the setting `normalize`: none, running, or the task's own."""
    if normalize == "none":
        return ()
    ones, zeros = jnp.ones(spec.state_size), jnp.zeros(spec.state_size)
    if normalize == "running":
        return Scale(zeros, ones, ones, jnp.zeros(()))
    if spec.scale is None:
        raise UserError(f"{spec.name} has no scale of its own: use --normalize running")
    centre, spread = (jnp.asarray(values, jnp.float32) for values in spec.scale)
    return Scale(centre, spread, spread**2, jnp.zeros(()))


def observe(scale: Scale, states: Array) -> Scale:
    """Merge the mean and variance of these states [..., S] into the running ones."""
    new = states.reshape(-1, states.shape[-1])
    rows = jnp.asarray(new.shape[0], jnp.float32)
    mean, variance = jnp.mean(new, axis=0), jnp.var(new, axis=0)
    share = rows / (scale.rows + rows)  # of the new rows
    apart = mean - scale.centre
    square = (1.0 - share) * scale.square + share * variance + share * (1.0 - share) * apart**2
    first = scale.rows == 0.0
    square = jnp.where(first, variance, square)
    centre = jnp.where(first, mean, scale.centre + share * apart)
    spread = jnp.maximum(jnp.sqrt(square), LEAST_SPREAD)
    return Scale(centre, spread, square, jnp.minimum(scale.rows + rows, MOST_ROWS))


def scaled_state(scale: Any, state: Any) -> Any:
    """[..., S] -> [..., S]"""
    if not scale:
        return state
    shape = (1,) * (state.ndim - 1) + (-1,)  # rank promotion is an error here
    return (state - scale.centre.reshape(shape)) / scale.spread.reshape(shape)


def scaled_goal(scale: Any, spec: EnvSpec, goal: Any) -> Any:
    """[..., m * G] -> [..., m * G]: one goal, or a sequence of them"""
    if not scale:
        return goal
    dims, times = np.asarray(spec.goal_dims), goal.shape[-1] // spec.goal_size
    shape = (1,) * (goal.ndim - 1) + (-1,)
    centre, spread = (jnp.tile(x[dims], times).reshape(shape) for x in (scale.centre, scale.spread))
    return (goal - centre) / spread


def scaled_batch(scale: Any, spec: EnvSpec, batch: Batch) -> Batch:
    """Return the batch as networks see it. Rewards and times were found in the task's own units before."""
    if not scale:
        return batch
    of: dict[str, Callable[[Array], Array]] = {
        **dict.fromkeys(("state", "next_state"), lambda x: scaled_state(scale, x)),
        **dict.fromkeys(("commanded_goal", "future_goal", "goal_sequence"), lambda x: scaled_goal(scale, spec, x)),
    }
    scaled = {name: change(x) for name, change in of.items() if (x := getattr(batch, name)) is not None}
    return batch._replace(**scaled)


def in_task_units(representation: Representation, scale: Any, spec: EnvSpec) -> Representation:
    """Return the representation for states and goals in the task's own units."""
    if not scale:
        return representation
    scale = jax.lax.stop_gradient(scale)

    def encode_goal(goal: Array) -> Array:
        return representation.encode_goal(scaled_goal(scale, spec, goal))

    def value(state: Array, action: Array, goal: Array) -> Array:
        return representation.value(scaled_state(scale, state), action, scaled_goal(scale, spec, goal))

    return representation._replace(encode_goal=encode_goal, value=value)
