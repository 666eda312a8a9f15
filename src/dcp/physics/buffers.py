"""Values that are computed once.

XLA on CPUs fuses a value into each of its readers and computes it there again, dozens of times in contact maths, and it
sees through an optimization barrier. It does not see through a buffer that is written in place, so that is what these
functions do. They change no number.
"""

from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp

from dcp.types import Array

T = TypeVar("T")


def once(values: T) -> T:
    """A pytree of arrays that broadcast against each other, floats or booleans."""
    return joined([values])


def joined(parts: Sequence[T]) -> T:
    """Pytrees of one kind, their leaves joined along the first axis."""
    trees = [jax.tree.flatten(part) for part in parts]
    blocks = [jnp.broadcast_arrays(*leaves) for leaves, _ in trees]  # each [rows, ...]
    sizes = [block[0].shape[0] for block in blocks]
    buffer = jnp.zeros((len(blocks[0]), sum(sizes), *blocks[0][0].shape[1:]))
    row = 0
    for block, size in zip(blocks, sizes, strict=True):
        for i, leaf in enumerate(block):
            start = (i, row) + (0,) * (buffer.ndim - 2)
            buffer = jax.lax.dynamic_update_slice(buffer, leaf.astype(buffer.dtype)[None], start)
        row += size
    leaves = [_as(buffer[i], leaf) for i, leaf in enumerate(blocks[0])]
    return jax.tree.unflatten(trees[0][1], leaves)


def _as(row: Array, like: Array) -> Array:
    return row != 0.0 if like.dtype == bool else row
