"""MuJoCo's constraint solver as MJX runs it: Newton's method on accelerations, with MJX's own line search.

The same steps in the same order as `mjx.solve` for pyramidal friction cones, at a fraction of its cost: a contact's
four rows are formed from its three directions when they are needed, a joint limit's row is one entry, and the
environments' axis comes last, so that every operation runs along it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.types import Array

_TINY = 1e-15  # MuJoCo's mjMINVAL


class Rows(NamedTuple):
    """Constraints: C contacts of four rows each (normal +- friction * tangent), then L limits. R = 4 C + L."""

    directions: Array  # [3, C, V, N]: a contact's normal and two tangents, as Jacobians
    friction: np.ndarray  # [C, 1]
    moves: np.ndarray  # [C, V]: whether a contact can move a velocity
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

    def pull_back(self, force: Array) -> Array:
        """J^T f: [R, N] -> [V, N]"""
        (a, b, c, d), limits = self.split(force)
        along = jnp.stack([a + b + c + d, self.friction * (a - b), self.friction * (c - d)])  # [3, C, N]
        return (self.directions * along[:, :, None]).sum((0, 1)) + self._spread(self.limit_sign * limits)

    def _spread(self, limits: Array) -> Array:
        """[L, N] -> [V, N]: each limit's entry at its degree of freedom"""
        at = self.limit_dofs[None] == np.arange(self.directions.shape[2])[:, None]  # [V, L]
        return jnp.where(at[..., None], limits[None], 0.0).sum(1)

    def curvature(self, weight: Array) -> Array:
        """J^T diag(w) J: [R, N] -> [V, V, N]"""
        (a, b, c, d), limits = self.split(weight)
        mu = self.friction
        normal, one, two = self.directions  # [C, V, N]
        w_one, w_two = (mu * (a - b))[:, None], (mu * (c - d))[:, None]
        weighted = jnp.stack(
            [
                (a + b + c + d)[:, None] * normal + w_one * one + w_two * two,
                w_one * normal + (mu * mu * (a + b))[:, None] * one,
                w_two * normal + (mu * mu * (c + d))[:, None] * two,
            ]
        )  # [3, C, V, N]
        weighted = jax.lax.optimization_barrier(weighted)
        diagonal = self._spread(self.limit_sign * self.limit_sign * limits)
        size = diagonal.shape[0]
        return self._products(weighted) + jnp.eye(size)[..., None] * diagonal[None]

    def _products(self, weighted: Array) -> Array:
        """sum over contacts of directions x weighted, [V, V, N], block by block: most contacts move few velocities."""
        zero = jnp.zeros((1, 1, weighted.shape[-1]))
        rows = []
        for one in self.blocks:
            row = []
            for two in self.blocks:
                shared = np.flatnonzero(self.moves[:, one.start] & self.moves[:, two.start])
                if shared.size:
                    near = slice(shared[0], shared[-1] + 1)
                    left, right = self.directions[:, near, one, None], weighted[:, near, None, two]
                    row.append((left * right).sum((0, 1)))
                else:
                    shape = (one.stop - one.start, two.stop - two.start, weighted.shape[-1])
                    row.append(jnp.broadcast_to(zero, shape))
            rows.append(jnp.concatenate(row, 1))
        return jnp.concatenate(rows)

    @property
    def blocks(self) -> list[slice]:
        """Runs of velocities that the same contacts move."""
        edges = np.flatnonzero((self.moves[:, 1:] != self.moves[:, :-1]).any(0)) + 1
        bounds = [0, *edges.tolist(), self.moves.shape[1]]
        return [slice(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]


class Dynamics(NamedTuple):
    """The motion without constraints."""

    mass: Array  # [V, V, N]
    force: Array  # [V, N]
    acceleration: Array  # [V, N]: force / mass


class Settings(NamedTuple):
    iterations: int
    line_iterations: int
    tolerance: float
    line_tolerance: float


class _Point(NamedTuple):
    """Where a line search stands."""

    alpha: Array  # [N]
    cost: Array
    slope: Array
    bend: Array


def multiply(matrix: Array, v: Array) -> Array:
    """[V, V, N], [V, N] -> [V, N]"""
    return (matrix * v[None]).sum(1)


def dot(a: Array, b: Array) -> Array:
    return (a * b).sum(0)


def cholesky_solve(matrix: Array, b: Array) -> Array:
    """[V, V, N], [V, N] -> [V, N]"""
    factor = jax.scipy.linalg.cho_factor(jnp.moveaxis(matrix, -1, 0))
    return jax.scipy.linalg.cho_solve(factor, b.T[..., None])[..., 0].T


def solve(rows: Rows, free: Dynamics, warm: Array, settings: Settings) -> Array:
    """The constrained acceleration [V, N], from the better of `warm` and the free one."""
    trace = jnp.maximum(jnp.trace(free.mass), _TINY)

    def cost(acceleration: Array, pull: Array, residual: Array) -> Array:
        gauss = 0.5 * dot(pull - free.force, acceleration - free.acceleration)
        return gauss + 0.5 * (rows.weight * residual * residual * (residual < 0)).sum(0)

    def start(acceleration: Array) -> tuple[Array, Array, Array, Array]:
        pull, residual = multiply(free.mass, acceleration), rows.apply(acceleration) - rows.target
        return acceleration, pull, residual, cost(acceleration, pull, residual)

    warm_start, free_start = start(warm), start(free.acceleration)
    better = warm_start[3] < free_start[3]
    begin = jax.tree.map(lambda a, b: jnp.where(better[None], a, b), warm_start[:3], free_start[:3])

    def newton(_: int, carry: tuple) -> tuple:
        acceleration, pull, residual, cost_before, done = carry
        active = rows.weight * (residual < 0)
        now = cost(acceleration, pull, residual)
        gradient = pull - free.force - rows.pull_back(-active * residual)
        done |= (cost_before - now) / trace < settings.tolerance
        done |= jnp.sqrt(dot(gradient, gradient)) / trace < settings.tolerance
        search = -cholesky_solve(free.mass + rows.curvature(active), gradient)
        alpha = _line_search(rows, free, carry[:3], search, trace, settings)
        move = jnp.where(done[None], 0.0, alpha[None] * search)
        return (
            acceleration + move,
            pull + multiply(free.mass, move),
            residual + rows.apply(move),
            now,
            done,
        )

    carry = (*begin, jnp.full_like(trace, jnp.inf), jnp.zeros_like(trace, dtype=bool))
    return jax.lax.fori_loop(0, settings.iterations, newton, carry)[0]


def _line_search(
    rows: Rows, free: Dynamics, at: tuple[Array, Array, Array], search: Array, trace: Array, settings: Settings
) -> Array:
    """How far to go along `search` [V, N]: zero where nothing is better."""
    acceleration, pull, residual = at
    along = rows.apply(search)
    gauss = (
        0.5 * dot(pull - free.force, acceleration - free.acceleration),
        dot(search, pull) - dot(search, free.force),
        0.5 * dot(search, multiply(free.mass, search)),
    )
    quadratic = tuple(rows.weight * q for q in (0.5 * residual * residual, along * residual, 0.5 * along * along))

    def point(alpha: Array) -> _Point:
        active = residual + alpha[None] * along < 0
        zero, one, two = (g + jnp.where(active, q, 0.0).sum(0) for g, q in zip(gauss, quadratic, strict=True))
        cost = alpha * alpha * two + alpha * one + zero
        return _Point(alpha, cost, 2.0 * alpha * two + one, 2.0 * two + (two == 0.0) * _TINY)

    origin = point(jnp.zeros_like(trace))
    first = point(-origin.slope / origin.bend)
    low = _where(first.slope < origin.slope, first, origin)
    high = _where(first.slope < origin.slope, origin, first)

    # Below `accept` a slope is rounding: the given tolerance, or what float32 can tell of the active rows at alpha = 0.
    scale = jnp.sqrt(dot(search, search)) * trace
    rows_zero = jnp.maximum(origin.cost - gauss[0], 0.0)
    rows_two = jnp.maximum(0.5 * origin.bend - gauss[2], 0.0)
    magnitude = 2.0 * jnp.sqrt(rows_zero * rows_two) + jnp.abs(gauss[1])
    epsilon = jnp.finfo(magnitude.dtype).eps
    accept = jnp.maximum(settings.tolerance * settings.line_tolerance * scale, 8 * epsilon * magnitude)

    def good(p: _Point) -> Array:
        return (jnp.abs(p.slope) < accept) & (p.cost < origin.cost)

    def narrow(_: int, bracket: tuple) -> tuple:
        low, high, moved = bracket
        going = moved & ~good(low) & ~good(high)
        new_low, new_high, new_moved = _narrow(low, high, point, good)
        return _where(going, new_low, low), _where(going, new_high, high), jnp.where(going, new_moved, moved)

    moved = jnp.ones_like(trace, dtype=bool)
    low, high, _ = jax.lax.fori_loop(0, settings.line_iterations, narrow, (low, high, moved))
    improved = (low.cost < origin.cost) | (high.cost < origin.cost)
    return jnp.where(improved, jnp.where(low.cost < high.cost, low.alpha, high.alpha), 0.0)


def _narrow(low: _Point, high: _Point, point, good) -> tuple[_Point, _Point, Array]:
    """A Newton step from either end and the middle; each end takes what lies nearer to the minimum on its side."""
    low_next = point(low.alpha - low.slope / low.bend)
    high_next = point(high.alpha - high.slope / high.bend)
    middle = point(0.5 * (low.alpha + high.alpha))

    def nearer(x: Array, y: Array) -> Array:
        return ((x < y) & (y < 0)) | ((x > y) & (y > 0))

    moved = jnp.zeros_like(low.alpha, dtype=bool)
    for candidate in (low_next, middle, high_next):
        take = nearer(low.slope, candidate.slope)
        low, moved = _where(take, candidate, low), moved | take
    for i, candidate in enumerate((high_next, middle, low_next)):
        take = nearer(high.slope, candidate.slope)
        if i == 0:  # a Newton step that crosses the minimum turns a one-sided search into a bracket
            take |= (high.slope < 0) & (candidate.slope > 0)
        high, moved = _where(take, candidate, high), moved | take

    best, found = low_next, jnp.zeros_like(low.alpha, dtype=bool)
    for candidate in (low_next, high_next, middle):
        take = good(candidate) & (~found | (candidate.cost < best.cost))
        best, found = _where(take, candidate, best), found | take
    return _where(found, best, low), _where(found, best, high), moved & ~found


def _where(condition: Array, yes: _Point, no: _Point) -> _Point:
    return _Point(*(jnp.where(condition, a, b) for a, b in zip(yes, no, strict=True)))
