"""Environments last: the layout that a CPU vectorises over, behind the vmap that callers write."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from dcp.types import Array


def turned(function: Any) -> Any:
    """A function of arrays with environments last, for one environment; a vmap over it becomes that last axis."""

    @custom_vmap
    def one(*args: Array) -> Any:
        return jax.tree.map(lambda a: a[..., 0], function(*(a[..., None] for a in args)))

    @one.def_vmap
    def many(size: int, batched: Any, *args: Array) -> Any:
        last = [
            jnp.moveaxis(a, 0, -1) if b else jnp.broadcast_to(a[..., None], (*a.shape, size))
            for a, b in zip(args, batched, strict=True)
        ]
        out = jax.tree.map(lambda a: jnp.moveaxis(a, -1, 0), function(*last))
        return out, jax.tree.map(lambda _: True, out)

    return one
