"""Lay out arrays so that XLA's programs are fast on a CPU: three-vectors as three arrays, and environments innermost.

A CPU vectorises over the innermost axis, which is the long one then. No number depends on the layout.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from dcp.types import Array

T = TypeVar("T")
Component = Any  # an array, or a constant that broadcasts against one


class Vec(NamedTuple):
    x: Component
    y: Component
    z: Component

    def __add__(self, other: "Vec") -> "Vec":  # pyright: ignore[reportIncompatibleMethodOverride]
        return Vec(self.x + other.x, self.y + other.y, self.z + other.z)

    def __sub__(self, other: "Vec") -> "Vec":
        return Vec(self.x - other.x, self.y - other.y, self.z - other.z)

    def __neg__(self) -> "Vec":
        return Vec(-self.x, -self.y, -self.z)

    def __mul__(self, scale: Component) -> "Vec":  # pyright: ignore[reportIncompatibleMethodOverride]
        return Vec(self.x * scale, self.y * scale, self.z * scale)

    def dot(self, other: "Vec") -> Array:
        return self.x * other.x + self.y * other.y + self.z * other.z

    def cross(self, other: "Vec") -> "Vec":
        return Vec(
            self.y * other.z - self.z * other.y,
            self.z * other.x - self.x * other.z,
            self.x * other.y - self.y * other.x,
        )

    def norm(self) -> Array:
        return jnp.sqrt(self.dot(self))

    def rows(self, rows: Any) -> "Vec":
        """Return these rows of each component."""
        return Vec(self.x[rows], self.y[rows], self.z[rows])


def vec(array: Array) -> Vec:
    """[3, ...] -> Vec of [...]"""
    return Vec(array[0], array[1], array[2])


def where(condition: Array, yes: Vec, no: Vec) -> Vec:
    return Vec(*(jnp.where(condition, a, b) for a, b in zip(yes, no, strict=True)))


def concatenate(parts: list[Vec]) -> Vec:
    """Join along the first axis."""
    return Vec(*(jnp.concatenate(component) for component in zip(*parts, strict=True)))


class Quat(NamedTuple):
    """Unit quaternions."""

    w: Component
    u: Vec

    def inverse(self) -> "Quat":
        return Quat(self.w, -self.u)

    def times(self, other: "Quat") -> "Quat":
        u = other.u * self.w + self.u * other.w + self.u.cross(other.u)
        return Quat(self.w * other.w - self.u.dot(other.u), u)


def quat(array: Array) -> Quat:
    """[4, ...] -> Quat of [...]"""
    return Quat(array[0], vec(array[1:]))


def rotate(v: Vec, rot: Quat) -> Vec:
    w, u = rot
    return u * (2.0 * u.dot(v)) + v * (w * w - u.dot(u)) + u.cross(v) * (2.0 * w)


def column(values: Any) -> Array:
    """[K] -> [K, 1], a constant that broadcasts over environments"""
    return jnp.asarray(np.asarray(values), jnp.float32)[:, None]


def constant(points: np.ndarray) -> Vec:
    """[G, 3] -> Vec of [G, 1]"""
    return Vec(*(jnp.asarray(points[:, i : i + 1], jnp.float32) for i in range(3)))


def constant_quat(rotations: np.ndarray) -> Quat:
    """[G, 4] -> Quat of [G, 1]"""
    return Quat(jnp.asarray(rotations[:, :1], jnp.float32), constant(rotations[:, 1:]))


# Environments innermost.


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
