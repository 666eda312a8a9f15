"""The axis of seeds: which arrays of a run's state have it, and how states are put together and taken apart."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dcp.training.trainer import RunState
from dcp.types import Array

# The same number for every seed that has made as many unrolls. They have no axis: `lax.cond` then really skips the
# scoring between two ticks of the clock, and an unroll is inserted as a slice.
SHARED = ("unrolls", "replay/head", "replay/size", "acting/command/clock")


def axes(run: RunState) -> RunState:
    """0 where a leaf has the axis of seeds, None where it is shared: as `jax.vmap` takes it."""
    return jax.tree_util.tree_map_with_path(lambda path, _: None if is_shared(path) else 0, run)


def is_shared(path: Any) -> bool:
    return jax.tree_util.keystr(path, simple=True, separator="/") in SHARED


def stack(runs: Sequence[RunState]) -> RunState:
    """Runs of one seed each, on the host or on a device, as one of K."""

    def leaf(path: Any, *leaves: Any) -> Any:
        if is_shared(path):
            return leaves[0]
        on_host = all(isinstance(leaf, np.ndarray) for leaf in leaves)
        return np.stack(leaves) if on_host else jnp.stack(leaves)

    return jax.tree_util.tree_map_with_path(leaf, *runs)


def join(one: RunState, other: RunState) -> RunState:
    """The seeds of both."""

    def leaf(path: Any, a: Any, b: Any) -> Any:
        return a if is_shared(path) else jnp.concatenate([a, b])

    return jax.tree_util.tree_map_with_path(leaf, one, other)


def keep(run: RunState, places: Sequence[int]) -> RunState:
    """The seeds at these places alone."""
    chosen = jnp.asarray(places)
    return jax.tree_util.tree_map_with_path(lambda path, x: x if is_shared(path) else x[chosen], run)


def one_of(run: RunState, place: int) -> RunState:
    """One seed's run, as it would be alone."""
    return _one_of()(run, place)


def part_of(tree: Any, place: int) -> Any:
    """One seed's part of a tree in which every leaf has the axis."""
    return _part_of()(tree, place)


@cache
def _one_of() -> Any:
    """The place is an argument of one small program: a static one would be compiled for each seed."""

    def one(run: RunState, place: Array) -> RunState:
        take = jax.lax.dynamic_index_in_dim
        return jax.tree_util.tree_map_with_path(
            lambda path, x: x if is_shared(path) else take(x, place, keepdims=False), run
        )

    return jax.jit(one)


@cache
def _part_of() -> Any:
    take = jax.lax.dynamic_index_in_dim
    return jax.jit(lambda tree, place: jax.tree.map(lambda x: take(x, place, keepdims=False), tree))
