"""Lay out arrays so that XLA's programs are fast on a CPU. No number depends on the layout."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from dcp.types import Array

T = TypeVar("T")


def environments_last(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function of pytrees of [..., N] arrays into one for a single environment, whose vmap uses that last axis.

    Without it vmap would put environments first, and a CPU would vectorise over three numbers at a time. A further
    vmap, such as over K seeds, makes K * N environments of them: the engine's loops then end once for all of them.
    """
    batched = _merging_vmaps(function)

    @custom_vmap
    def one(*inputs: Any) -> Any:
        return jax.tree.map(lambda a: a[..., 0], function(*jax.tree.map(lambda a: a[..., None], inputs)))

    @one.def_vmap
    def many(size: int, is_batched: Any, *inputs: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        def last(a: Array, is_batched: bool) -> Array:
            return jnp.moveaxis(a, 0, -1) if is_batched else jnp.broadcast_to(a[..., None], (*a.shape, size))

        out = batched(*jax.tree.map(last, tuple(inputs), tuple(is_batched)))
        out = jax.tree.map(lambda a: jnp.moveaxis(a, -1, 0), out)
        return out, jax.tree.map(lambda _: True, out)

    return one


def _merging_vmaps(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make the vmap over K of a function of [..., N] arrays one call with [..., K * N]."""

    @custom_vmap
    def batched(*inputs: Any) -> Any:
        return function(*inputs)

    @batched.def_vmap
    def more(size: int, is_batched: Any, *inputs: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        def merged(a: Array, is_batched: bool) -> Array:
            if is_batched:
                a = jnp.moveaxis(a, 0, -2)
            else:
                a = jnp.broadcast_to(a[..., None, :], (*a.shape[:-1], size, a.shape[-1]))
            return a.reshape(*a.shape[:-2], -1)  # [..., K * N]

        def apart(a: Array) -> Array:
            return jnp.moveaxis(a.reshape(*a.shape[:-1], size, -1), -2, 0)  # [K, ..., N]

        out = jax.tree.map(apart, batched(*jax.tree.map(merged, tuple(inputs), tuple(is_batched))))
        return out, jax.tree.map(lambda _: True, out)

    return batched


def compute_once(values: T) -> T:
    """Have XLA compute these values once: a pytree of arrays that broadcast against each other, floats or booleans.

    On a CPU, XLA fuses a value into each operation that reads it and computes it again there, dozens of times in the
    contact maths, even across an optimization barrier. It does not do so across a buffer that is written in place. On a
    GPU arithmetic is cheap and each write to the buffer would be a launch, so there the values stay as they are.
    """
    return concatenate_once([values])


def concatenate_once(parts: Sequence[T]) -> T:
    """Join the leaves of equal pytrees along the first axis, computed once where that pays."""
    return jax.lax.platform_dependent(list(parts), cpu=_through_a_buffer, default=_concatenated)


def _through_a_buffer(parts: list[Any]) -> Any:
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
    leaves = [buffer[i] != 0.0 if leaf.dtype == bool else buffer[i] for i, leaf in enumerate(blocks[0])]
    return jax.tree.unflatten(trees[0][1], leaves)


def _concatenated(parts: list[Any]) -> Any:
    def broadcast(part: Any) -> Any:
        return jax.tree.unflatten(jax.tree.structure(part), jnp.broadcast_arrays(*jax.tree.leaves(part)))

    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *map(broadcast, parts))


def take_rows(values: T, rows: Any) -> T:
    """Return these rows of each leaf, all [L, N]: a gather per leaf on a CPU, one for all where each is a launch."""

    def each(values: T) -> T:
        return jax.tree.map(lambda leaf: leaf[rows], values)

    def at_once(values: T) -> T:
        leaves, structure = jax.tree.flatten(values)
        return jax.tree.unflatten(structure, list(jnp.stack(leaves)[:, rows]))

    return jax.lax.platform_dependent(values, cpu=each, default=at_once)
