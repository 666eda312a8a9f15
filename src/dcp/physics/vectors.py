"""Three-vectors as three arrays of one shape. The long axis stays innermost, so that a CPU's lanes are full."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dcp.types import Array

Lanes = Any  # arrays of one shape, or constants that broadcast against them


class Vec(NamedTuple):
    x: Lanes
    y: Lanes
    z: Lanes

    def __add__(self, other: "Vec") -> "Vec":  # pyright: ignore[reportIncompatibleMethodOverride]
        return Vec(self.x + other.x, self.y + other.y, self.z + other.z)

    def __sub__(self, other: "Vec") -> "Vec":
        return Vec(self.x - other.x, self.y - other.y, self.z - other.z)

    def __neg__(self) -> "Vec":
        return Vec(-self.x, -self.y, -self.z)

    def __mul__(self, scale: Lanes) -> "Vec":  # pyright: ignore[reportIncompatibleMethodOverride]
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


def vec(array: Array) -> Vec:
    """[3, ...] -> Vec of [...]"""
    return Vec(array[0], array[1], array[2])


def where(condition: Array, yes: Vec, no: Vec) -> Vec:
    return Vec(*(jnp.where(condition, a, b) for a, b in zip(yes, no, strict=True)))


def concatenate(parts: list[Vec]) -> Vec:
    """Along the first axis."""
    return Vec(*(jnp.concatenate(component) for component in zip(*parts, strict=True)))


class Quat(NamedTuple):
    """Unit quaternions."""

    w: Lanes
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


def constant(points: np.ndarray) -> Vec:
    """[G, 3] -> Vec of [G, 1]"""
    return Vec(*(jnp.asarray(points[:, i : i + 1], jnp.float32) for i in range(3)))


def constant_quat(rotations: np.ndarray) -> Quat:
    """[G, 4] -> Quat of [G, 1]"""
    return Quat(jnp.asarray(rotations[:, :1], jnp.float32), constant(rotations[:, 1:]))
