"""Environments last: the layout that a CPU vectorises over, behind the vmap that callers write."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from dcp.types import Array


def environments_last(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of pytrees of [..., N] arrays, for one environment; a vmap over it becomes that last axis.

    Without it vmap would put environments first and leave a CPU three numbers at a time.
    """

    @custom_vmap
    def one(*inputs: Any) -> Any:
        return jax.tree.map(lambda a: a[..., 0], function(*jax.tree.map(lambda a: a[..., None], inputs)))

    @one.def_vmap
    def many(size: int, batched: Any, *inputs: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        def last(a: Array, is_batched: bool) -> Array:
            return jnp.moveaxis(a, 0, -1) if is_batched else jnp.broadcast_to(a[..., None], (*a.shape, size))

        out = function(*jax.tree.map(last, tuple(inputs), tuple(batched)))
        out = jax.tree.map(lambda a: jnp.moveaxis(a, -1, 0), out)
        return out, jax.tree.map(lambda _: True, out)

    return one
