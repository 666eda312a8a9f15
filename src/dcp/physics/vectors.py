"""Three-vectors as three arrays of one shape, so that the long axis stays innermost: a CPU vectorises over it."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dcp.types import Array

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
