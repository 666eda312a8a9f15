"""Environments last: the layout that a CPU vectorises over, behind the vmap that callers write."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from dcp.types import Array


def environments_last(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of pytrees of [..., N] arrays, for one environment; a vmap over it becomes that last axis.

    Without it vmap would put environments first and leave a CPU three numbers at a time. A further vmap, such as over
    K seeds, makes K * N environments of them: the engine's loops then end once for all, and stay as they are.
    """
    lanes = _more_lanes(function)

    @custom_vmap
    def one(*inputs: Any) -> Any:
        return jax.tree.map(lambda a: a[..., 0], function(*jax.tree.map(lambda a: a[..., None], inputs)))

    @one.def_vmap
    def many(size: int, batched: Any, *inputs: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        def last(a: Array, is_batched: bool) -> Array:
            return jnp.moveaxis(a, 0, -1) if is_batched else jnp.broadcast_to(a[..., None], (*a.shape, size))

        out = lanes(*jax.tree.map(last, tuple(inputs), tuple(batched)))
        out = jax.tree.map(lambda a: jnp.moveaxis(a, -1, 0), out)
        return out, jax.tree.map(lambda _: True, out)

    return one


def _more_lanes(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of [..., N] arrays, whose vmap over K calls it with [..., K * N]."""

    @custom_vmap
    def lanes(*inputs: Any) -> Any:
        return function(*inputs)

    @lanes.def_vmap
    def more(size: int, batched: Any, *inputs: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        def merged(a: Array, is_batched: bool) -> Array:
            a = (
                jnp.moveaxis(a, 0, -2)
                if is_batched
                else jnp.broadcast_to(a[..., None, :], (*a.shape[:-1], size, a.shape[-1]))
            )
            return a.reshape(*a.shape[:-2], -1)  # [..., K * N]

        def apart(a: Array) -> Array:
            return jnp.moveaxis(a.reshape(*a.shape[:-1], size, -1), -2, 0)  # [K, ..., N]

        out = jax.tree.map(apart, lanes(*jax.tree.map(merged, tuple(inputs), tuple(batched))))
        return out, jax.tree.map(lambda _: True, out)

    return lanes
