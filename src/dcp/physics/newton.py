"""MuJoCo's constraint solver as MJX runs it: Newton's method on accelerations, with MJX's own line search.

The same steps in the same order as `mjx.solve` for pyramidal friction cones, at a fraction of its cost: a contact's
four rows are formed from its three directions when they are needed, a joint limit's row is one entry, and the
environments' axis comes last, so that every operation runs along it.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dcp.physics.constraint_rows import Dynamics, Rows, dot, multiply
from dcp.physics.line_search import TINY, Settings, line_search
from dcp.types import Array


def solve_positive(matrix: Array, b: Array) -> Array:
    """[V, V, N], [V, N] -> [V, N] for positive definite matrices, where elimination needs no pivots."""
    size = b.shape[0]
    below = np.arange(size)

    def eliminate(k: Array, table: Array) -> Array:
        row, column = table[k], table[:, k]  # [V + 1, N], [V, N]
        factor = jnp.where((below > k)[:, None], column / row[k][None], 0.0)
        return table - factor[:, None] * row[None]

    table = jax.lax.fori_loop(0, size - 1, eliminate, jnp.concatenate([matrix, b[:, None]], 1))  # [V, V + 1, N]

    def substitute(i: Array, x: Array) -> Array:
        k = size - 1 - i
        row = table[k]
        return x.at[k].set((row[size] - dot(row[:size], x)) / row[k])

    return jax.lax.fori_loop(0, size, substitute, jnp.zeros_like(b))


def solve(rows: Rows, free: Dynamics, warm: Array, settings: Settings) -> Array:
    """The constrained acceleration [V, N], from the better of `warm` and the free one."""
    trace = jnp.maximum(jnp.trace(free.mass), TINY)

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
        constraint_force, curvature = rows.pull_back(-active * residual, active)
        gradient = pull - free.force - constraint_force
        done |= (cost_before - now) / trace < settings.tolerance
        done |= jnp.sqrt(dot(gradient, gradient)) / trace < settings.tolerance
        search = -solve_positive(free.mass + curvature, gradient)
        alpha = line_search(rows, free, carry[:3], search, trace, settings)
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
