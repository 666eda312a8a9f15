"""Constraint rows as MuJoCo has them, in the form that costs least: see `newton`. The environments' axis comes last."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.types import Array


class Rows(NamedTuple):
    """Constraints: C contacts of four rows each (normal +- friction * tangent), then L limits. R = 4 C + L."""

    directions: Array  # [3, C, V, N]: a contact's normal and two tangents, as Jacobians
    friction: np.ndarray  # [C, 1]
    limit_dofs: np.ndarray  # [L]
    limit_sign: Array  # [L, N]: +-1 where a limit acts, else 0
    weight: Array  # [R, N]: D
    target: Array  # [R, N]: the reference acceleration

    def apply(self, v: Array) -> Array:
        """J v: [V, N] -> [R, N]"""
        return self.join((self.directions * v[None, None]).sum(2), self.limit_sign * v[self.limit_dofs])

    def join(self, contacts: Array, limits: Array) -> Array:
        """[3, C, N], [L, N] -> [R, N]"""
        normal, one, two = contacts[0], self.friction * contacts[1], self.friction * contacts[2]
        return jnp.concatenate([normal + one, normal - one, normal + two, normal - two, limits])

    def split(self, rows: Array) -> tuple[list[Array], Array]:
        """[R, N] -> a contact's four rows, each [C, N], and the limits' [L, N]"""
        edges = self.friction.shape[0]
        return [rows[i * edges : (i + 1) * edges] for i in range(4)], rows[4 * edges :]

    def pull_back(self, force: Array, weight: Array) -> tuple[Array, Array]:
        """J^T f and J^T diag(w) J: [R, N], [R, N] -> [V, N], [V, V, N]. A loop over contacts: it stays in the cache."""
        along, limit_force = self.split(force)
        (a, b, c, d), limit_weight = self.split(weight)
        mu = self.friction
        pulls = (sum(along), mu * (along[0] - along[1]), mu * (along[2] - along[3]))  # three times [C, N]
        cross = (mu * (a - b), mu * (c - d))
        straight = (a + b + c + d, mu * mu * (a + b), mu * mu * (c + d))

        normal, one, two = self.directions  # [C, V, N]
        cross, straight = ([x[:, None] for x in part] for part in (cross, straight))
        weighted = jnp.concatenate(
            [
                straight[0] * normal + cross[0] * one + cross[1] * two,
                cross[0] * normal + straight[1] * one,
                cross[1] * normal + straight[2] * two,
            ]
        )  # [3 C, V, N]
        directions, pulls = jnp.concatenate(list(self.directions)), jnp.concatenate(pulls)  # [3 C, V, N], [3 C, N]

        def add(k: Array, total: tuple[Array, Array]) -> tuple[Array, Array]:
            direction = directions[k]
            return total[0] + direction * pulls[k][None], total[1] + direction[:, None] * weighted[k][None]

        first = self._spread(self.limit_sign * limit_force)
        diagonal = self._spread(self.limit_sign * self.limit_sign * limit_weight)
        second = jnp.eye(diagonal.shape[0])[..., None] * diagonal[None]
        return jax.lax.fori_loop(0, 3 * mu.shape[0], add, (first, second))

    def _spread(self, limits: Array) -> Array:
        """[L, N] -> [V, N]: each limit's entry at its degree of freedom"""
        at = self.limit_dofs[None] == np.arange(self.directions.shape[2])[:, None]  # [V, L]
        return jnp.where(at[..., None], limits[None], 0.0).sum(1)


class Dynamics(NamedTuple):
    """The motion without constraints."""

    mass: Array  # [V, V, N]
    force: Array  # [V, N]
    acceleration: Array  # [V, N]: force / mass


def multiply(matrix: Array, v: Array) -> Array:
    """[V, V, N], [V, N] -> [V, N]"""
    return (matrix * v[None]).sum(1)


def dot(a: Array, b: Array) -> Array:
    return (a * b).sum(0)
