"""The paper's three theorems as functions of a system, a state and a goal. docs/theory.md says which parts hold.

Theorem 1: the optimal action depends on the goal only through the gradient of d*. `hjb_action` finds the action from
values of d* alone, without its gradient and without the law, so that the two can be compared.

Theorem 2: the direction toward a waypoint z on the path is nearly the direction toward g. Here are the paper's bound,
the bound that we can prove, and both sides measured for a system, a triple (s, z, g) and an error of d_psi. Our proof
needs only the triangle inequality and smoothness:

- k(x) = d*(x, z) + d*(z, g) - d*(x, g) >= 0 for every x, k(s) = eps, and its gradient is 2L-Lipschitz. Stepping
  sqrt(eps / L) downhill, 0 <= eps - |grad k| t + L t^2 gives |grad d*(s, z) - grad d*(s, g)| <= 2 sqrt(L eps).
- h = d_psi - d* has |h| <= delta and a 2L-Lipschitz gradient, so (Landau) |grad h| <= 2 sqrt(L delta).
- Both start from grad d*(s, g), whose norm is at least m. An error of e m turns a vector by at most arcsin(e).

The proof does not need driftless dynamics. It needs L to hold in a ball of radius sqrt(max(delta, eps) / L) around s.

Theorem 3: only the part of the gradient that lies in im G(s) reaches the action.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from tools.theory.control_systems import System, Terms, feedback, running_cost, unit, velocity

STEP = 1e-4  # of theorem 1's central difference along the motion


def hjb_action(system: System, s: np.ndarray, g: np.ndarray, largest: float | None = None) -> np.ndarray:
    """Return argmin_a of c(s, a) plus the rate of d*(., g) along f(s, a): [m], within a box if `largest` is given."""
    terms = system.terms(s)

    def bracket(action: np.ndarray) -> float:
        motion = STEP * velocity(terms, action)
        change = system.distance(s + motion, g) - system.distance(s - motion, g)
        return running_cost(terms, action) + float(change) / (2 * STEP)

    m = terms.G.shape[1]
    if largest is None:
        return _newton(bracket, np.zeros(m))
    return minimize(bracket, np.zeros(m), method="Powell", bounds=[(-largest, largest)] * m).x


def _newton(objective: Callable[[np.ndarray], float], x: np.ndarray, step: float = 0.1) -> np.ndarray:
    """Minimise by Newton's method on values alone. The differences are wide because the values are rounded."""
    m = len(x)
    unit_steps = step * np.eye(m)
    for _ in range(20):
        ahead, behind = (np.array([objective(x + sign * e) for e in unit_steps]) for sign in (1, -1))
        here = objective(x)
        hessian = np.diag(ahead + behind - 2 * here)
        for i, j in combinations(range(m), 2):
            both = objective(x + unit_steps[i] + unit_steps[j])
            hessian[i, j] = hessian[j, i] = both - ahead[i] - ahead[j] + here
        move = -step * np.linalg.solve(hessian, (ahead - behind) / 2)
        x = x + move
        if np.linalg.norm(move) < 1e-6:
            break
    return x


def magnitude_from_direction(terms: Terms, direction: np.ndarray) -> float:
    """Return |grad d*| from its unit direction u: HJB, c0 + r u'f0 - r^2 u'Du/2 = 0, has one positive root if c0 > 0.

    So with a price of time the direction is enough: the magnitude that theorem 1 also requires follows from it.
    """
    along, stiff = direction @ terms.f0, direction @ terms.D @ direction
    return float((along + np.sqrt(along**2 + 2 * terms.c0 * stiff)) / stiff)


# Theorem 2


def paper_bound(L: float, m: float, delta: float, eps: float) -> float:  # noqa: N803
    return float((8 * np.sqrt(2 * L * delta) + 2 * np.sqrt(2 * L * eps)) / m)


def proven_bound(L: float, m: float, delta: float, eps: float) -> float:  # noqa: N803
    """Return our bound: at most 4 sqrt(2 L delta) / m + 2 sqrt(2 L eps) / m if 2 sqrt(L delta) + 2 sqrt(L eps) <= m.

    1. k(x) = d*(x, z) + d*(z, g) - d*(x, g) is never negative, k(s) <= eps, and grad k is 2L-Lipschitz. A step
       t = sqrt(eps / L) downhill from s gives 0 <= eps - t |grad k| + L t^2, so |grad d*(s, z) - grad d*(s, g)|
       = |grad k(s)| <= 2 sqrt(L eps).
    2. h = d_psi - d* has |h| <= delta and a 2L-Lipschitz gradient. A step sqrt(delta / L) to either side (Landau)
       gives |grad h| <= 2 sqrt(L delta).
    3. So grad d_psi(s, z) is within 2 sqrt(L delta) + 2 sqrt(L eps) of grad d*(s, g), and grad d_psi(s, g) within
       2 sqrt(L delta). A vector that is off by a share e <= 1 of another's length is turned by arcsin e at most, and
       2 sin(arcsin(e) / 2) <= sqrt(2) e.
    """
    of_delta, of_eps = 2 * np.sqrt(L * delta) / m, 2 * np.sqrt(L * eps) / m
    return min(2.0, _largest_turn(of_delta + of_eps) + _largest_turn(of_delta))


def _largest_turn(error: float) -> float:
    """Return the largest |p/|p| - q/|q|| for |p - q| <= error |q|."""
    return float(2 * np.sin(np.arcsin(error) / 2)) if error <= 1 else 2.0


@dataclass(frozen=True)
class Ripple:
    """Model an error of d_psi: h(x) = delta sin(wave'(x - at)), steepest at `at`."""

    delta: float
    wave: np.ndarray  # [n]
    at: np.ndarray  # [n]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.delta * np.sin((x - self.at) @ self.wave)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self.delta * np.cos((x - self.at) @ self.wave)[..., None] * self.wave

    @property
    def lipschitz(self) -> float:
        return float(self.delta * self.wave @ self.wave)


def sharpest_ripple(delta: float, curvature: float, direction: np.ndarray, at: np.ndarray) -> Ripple:
    """Return the ripple of size delta with the steepest slope for this Lipschitz constant of its gradient."""
    return Ripple(delta, np.sqrt(curvature / delta) * unit(direction), at)


class Gap(NamedTuple):
    """Hold both sides of theorem 2 at one (s, z, g)."""

    measured: float  # |d(z) - d(g)|
    eps: float
    delta: float
    L: float
    m: float

    @property
    def paper(self) -> float:
        return paper_bound(self.L, self.m, self.delta, self.eps)

    @property
    def proven(self) -> float:
        return proven_bound(self.L, self.m, self.delta, self.eps)


def slack(system: System, s: np.ndarray, z: np.ndarray, g: np.ndarray) -> float:
    """Return the eps of (B1), how much longer the path over z is; zero if rounding makes it negative."""
    return max(0.0, float(system.distance(s, z) + system.distance(z, g) - system.distance(s, g)))


def gap(
    system: System, s: np.ndarray, z: np.ndarray, g: np.ndarray, of_z: Ripple | None = None, of_g: Ripple | None = None
) -> Gap:
    """Measure the left side and the constants of (B1), (B2) and (B3) at s, with d_psi = d* + a ripple for each goal."""
    still = Ripple(0.0, np.zeros_like(s), s)
    ripples = (of_z or still, of_g or still)
    directions = [-unit(system.gradient(s, goal) + r.gradient(s)) for goal, r in zip((z, g), ripples, strict=True)]
    eps, delta = slack(system, s, z, g), max(r.delta for r in ripples)
    L = lipschitz_constant(system, s, (z, g), max(eps, delta), max(r.lipschitz for r in ripples))  # noqa: N806
    m = float(np.linalg.norm(system.gradient(s, g)))
    return Gap(float(np.linalg.norm(directions[0] - directions[1])), eps, delta, L, m)


def lipschitz_constant(
    system: System, s: np.ndarray, goals: tuple[np.ndarray, ...], size: float, added: float = 0.0
) -> float:
    """Return L of (B2): the smallest that we find to hold in the ball of radius sqrt(size / L) where it is needed.

    d* has a corner at its goal, so no L holds in a ball that reaches a goal; a larger L then makes the ball smaller.
    """
    L = _steepest(system, s[None], goals) + added  # noqa: N806
    for _ in range(60):
        radius = np.sqrt(size / L)
        if min(np.linalg.norm(goal - s) for goal in goals) > 1.01 * radius:
            larger = _steepest(system, s + radius * _ball(len(s)), goals) + added
            if larger <= L * (1 + 1e-9):
                return L
            L = max(larger, L)  # noqa: N806
        else:
            L *= 1.3  # noqa: N806
    raise ValueError(f"no Lipschitz constant found near {s}: d* is not smooth there")


def _steepest(system: System, points: np.ndarray, goals: tuple[np.ndarray, ...]) -> float:
    """Return the largest norm of d*'s Hessian over points [K, n] and goals, by central differences of the gradient."""
    step = 1e-5
    shifts = step * np.eye(points.shape[-1])[:, None]  # [n, 1, n]
    largest = 0.0
    for goal in goals:
        columns = (system.gradient(points + shifts, goal) - system.gradient(points - shifts, goal)) / (2 * step)
        hessians = np.moveaxis(columns, 0, -1)  # [K, n, n]
        largest = max(largest, float(np.linalg.norm(hessians, 2, axis=(-2, -1)).max()))
    return largest


def _ball(n: int) -> np.ndarray:
    """Return fixed points [K, n] of the unit ball, including its surface and centre."""
    directions = unit(np.random.default_rng(0).normal(size=(12 * n, n)))
    return np.concatenate([np.zeros((1, n)), 0.5 * directions, directions])


# Theorem 3


def controllable_part(G: np.ndarray, p: np.ndarray) -> np.ndarray:  # noqa: N803
    """Return the projection of p onto im G: [n, m], [n] -> [n]."""
    return G @ np.linalg.pinv(G) @ p


def controllable_share(G: np.ndarray, p: np.ndarray) -> float:  # noqa: N803
    """Return rho, the share of the gradient's norm that actions can move: 0 to 1."""
    return float(np.linalg.norm(controllable_part(G, p)) / np.linalg.norm(p))


def action_bounds(terms: Terms, p: np.ndarray) -> tuple[float, float]:
    """Return bounds of |a*| by the projection's norm: (iii)'s lower bound with its constant, and (ii)'s upper bound."""
    part = np.linalg.norm(controllable_part(terms.G, p))
    gains = np.linalg.svd(terms.G, compute_uv=False)
    weakest = gains[gains > 1e-12 * gains[0]][-1]
    prices = np.linalg.eigvalsh(terms.R)
    return float(weakest / prices[-1] * part), float(gains[0] / prices[0] * part)


def regret(terms: Terms, p: np.ndarray, action: np.ndarray) -> float:
    """Return how much worse than a* an action is in HJB's bracket: half of |a - a*|^2 in R's norm."""
    gap = action - feedback(terms, p)
    return float(gap @ terms.R @ gap / 2)


def orientation_errors(terms: Terms, p: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return the angle by which a* turns if each row of `noise` is added to p's unit direction: [K, n] -> [K]."""
    true = unit(feedback(terms, unit(p)))
    seen = np.array([unit(feedback(terms, unit(p) + error)) for error in noise])
    return np.arccos(np.clip(seen @ true, -1, 1))


def minimising_action(
    cost: Callable[[np.ndarray], float], motion: Callable[[np.ndarray], np.ndarray], p: np.ndarray, m: int
) -> np.ndarray:
    """Return argmin_a cost(a) + p'f(a) [m] for any cost and dynamics: part (i) does not need a quadratic cost."""
    return minimize(lambda a: cost(a) + p @ motion(a), np.full(m, 0.1), method="BFGS", options={"gtol": 1e-9}).x
