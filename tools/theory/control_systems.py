"""Control-affine systems with a known optimal cost to go d*, and the HJB equation at one state.

Dynamics f0(s) + G(s) a, running cost c0 + a'R(s)a / 2, free arrival time. With p the gradient of d*(., g) at s, HJB is
0 = min_a [c0 + a'Ra/2 + p'(f0 + Ga)] = c0 + p'f0 - p'Dp/2, where D = G R^-1 G'.

- `Curved`: driftless, with state-dependent G(s) and R(s); d* has a closed form.
- `Linear`: with drift; d* is a minimum over one number, the arrival time.
- `unicycle.Unicycle`: a car that cannot slide sideways.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import brentq


class Terms(NamedTuple):
    """Hold a system's dynamics and cost at one state."""

    f0: np.ndarray  # [n] drift
    G: np.ndarray  # [n, m]
    R: np.ndarray  # [m, m] positive definite
    c0: float  # the price of time

    @property
    def D(self) -> np.ndarray:  # noqa: N802
        """Return G R^-1 G' [n, n], which turns a gradient into a velocity."""
        return self.G @ np.linalg.solve(self.R, self.G.T)


class System(Protocol):
    """Declare a system whose optimal cost to go d* is known."""

    def terms(self, s: np.ndarray) -> Terms: ...

    def distance(self, s: np.ndarray, g: np.ndarray) -> np.ndarray:
        """Return d*(s, g): [..., n], [..., n] -> [...]."""
        ...

    def gradient(self, s: np.ndarray, g: np.ndarray) -> np.ndarray:
        """Return the gradient of d* in s: [..., n], [..., n] -> [..., n]."""
        ...

    def on_path(self, s: np.ndarray, g: np.ndarray, share: float) -> np.ndarray:
        """Return a state [n] on the optimal path from s to g; share 0 is s, share 1 is g."""
        ...


def running_cost(terms: Terms, action: np.ndarray) -> float:
    return float(terms.c0 + action @ terms.R @ action / 2)


def velocity(terms: Terms, action: np.ndarray) -> np.ndarray:
    return terms.f0 + terms.G @ action


def feedback(terms: Terms, p: np.ndarray) -> np.ndarray:
    """Return theorem 1's law: a* = -R^-1 G' p."""
    return -np.linalg.solve(terms.R, terms.G.T @ p)


def hjb_residual(terms: Terms, p: np.ndarray) -> float:
    """Return c0 + p'f0 - p'Dp/2, which is zero if p is a gradient of d*."""
    return float(terms.c0 + p @ terms.f0 - p @ terms.D @ p / 2)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector, axis=-1, keepdims=True)


@dataclass(frozen=True)
class Curved:
    """Describe a space of constant curvature in coordinates y = B (s + bend sin(s_2) e_1).

    Without drift d* is sqrt(2 c0) times the length of the shortest path under the metric M(s) = D(s)^-1. So a space of
    constant curvature k (a sphere for k > 0, a plane for k = 0, a hyperbolic plane for k < 0) seen through any smooth
    coordinates is an exact system. The plane in straight coordinates is the linear-quadratic point, d* = sqrt(2 c0)
    |g - s|_M with M = G^-T R G^-1; in all others G and R depend on the state.
    """

    B: np.ndarray  # [n, n] invertible
    curvature: float = 0.0  # k; for k < 0 states must keep |y|^2 < 1 / |k|
    bend: float = 0.0
    R0: np.ndarray | None = None  # [n, n] positive definite; the identity if not given
    R_swing: float = 0.0  # R(s) = R0 (1 + R_swing sin(s_1)), below 1
    c0: float = 1.0

    def chart(self, s: np.ndarray) -> np.ndarray:
        """Return y of s: [..., n] -> [..., n]."""
        bent = np.array(s, float)
        bent[..., 0] += self.bend * np.sin(bent[..., 1])
        return bent @ self.B.T

    def state(self, y: np.ndarray) -> np.ndarray:
        """Return s of y: [..., n] -> [..., n]."""
        s = y @ np.linalg.inv(self.B).T
        s[..., 0] -= self.bend * np.sin(s[..., 1])
        return s

    def chart_jacobian(self, s: np.ndarray) -> np.ndarray:
        """Return dy / ds: [..., n] -> [..., n, n]."""
        bent = np.broadcast_to(np.eye(s.shape[-1]), (*s.shape, s.shape[-1])).copy()
        bent[..., 0, 1] += self.bend * np.cos(s[..., 1])
        return self.B @ bent

    def metric(self, s: np.ndarray) -> np.ndarray:
        """Return M(s), which gives the squared length of a small step: [..., n] -> [..., n, n]."""
        jacobian, y = self.chart_jacobian(s), self.chart(s)
        stretch = 2 / (1 + self.curvature * np.sum(y * y, -1))  # stereographic coordinates
        return stretch[..., None, None] ** 2 * np.swapaxes(jacobian, -1, -2) @ jacobian

    def terms(self, s: np.ndarray) -> Terms:
        """Return the terms with the given R, and G such that G R^-1 G' = M^-1."""
        n = len(s)
        R = (np.eye(n) if self.R0 is None else self.R0) * (1 + self.R_swing * np.sin(s[0]))  # noqa: N806
        root_of_inverse = np.linalg.inv(np.linalg.cholesky(self.metric(s))).T
        return Terms(np.zeros(n), root_of_inverse @ np.linalg.cholesky(R).T, R, self.c0)

    def distance(self, s: np.ndarray, g: np.ndarray) -> np.ndarray:
        """Solve sin_k(d / 2)^2 = q with q = |x - y|^2 / ((1 + k |x|^2) (1 + k |y|^2)) in coordinates x, y."""
        q, *_ = self._chord(self.chart(s), self.chart(g))
        return np.sqrt(2 * self.c0) * 2 * _arcsine(np.sqrt(q), self.curvature)

    def gradient(self, s: np.ndarray, g: np.ndarray) -> np.ndarray:
        x, y = self.chart(s), self.chart(g)
        q, a, b = self._chord(x, y)
        q_by_x = 2 * (x - y) / (a * b)[..., None] - (2 * self.curvature * q / a)[..., None] * x
        by_x = q_by_x / np.sqrt(q * (1 - self.curvature * q))[..., None]
        jacobian = self.chart_jacobian(np.asarray(s, float))
        return np.sqrt(2 * self.c0) * np.einsum("...ji,...j->...i", jacobian, by_x)

    def on_path(self, s: np.ndarray, g: np.ndarray, share: float) -> np.ndarray:
        """Follow a straight line from x, because a shortest path is straight as seen from x (Moebius addition)."""
        x, y = self.chart(s), self.chart(g)
        seen = _moebius_add(-x, y, self.curvature)
        reach = np.linalg.norm(seen)
        q = reach**2 / (1 + self.curvature * reach**2)
        half = share * _arcsine(np.sqrt(q), self.curvature)
        return self.state(_moebius_add(x, seen / reach * _tangent(half, self.curvature), self.curvature))

    def _chord(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b = (1 + self.curvature * np.sum(point * point, -1) for point in (x, y))
        return np.sum((x - y) ** 2, -1) / (a * b), a, b


def _arcsine(x: np.ndarray, k: float) -> np.ndarray:
    """Return the inverse of sin(root k t) / root k, and its limits for k = 0 and k < 0."""
    root = np.sqrt(abs(k))
    if k > 0:
        return np.arcsin(np.minimum(root * x, 1.0)) / root
    return np.arcsinh(root * x) / root if k < 0 else x


def _tangent(x: np.ndarray, k: float) -> np.ndarray:
    root = np.sqrt(abs(k))
    if k > 0:
        return np.tan(root * x) / root
    return np.tanh(root * x) / root if k < 0 else x


def _moebius_add(x: np.ndarray, y: np.ndarray, k: float) -> np.ndarray:
    """Apply to y the motion of the space that takes the origin to x."""
    xy, xx, yy = x @ y, x @ x, y @ y
    return ((1 - 2 * k * xy - k * yy) * x + (1 + k * xx) * y) / (1 - 2 * k * xy + k * k * xx * yy)


class _Arrival(NamedTuple):
    cost: np.ndarray  # [...]
    gradient: np.ndarray  # [..., n]: in s, for this arrival time
    pull: np.ndarray  # [..., k]: the multipliers of the goal's coordinates


@dataclass(frozen=True)
class Linear:
    """Describe ds/dt = A s + w + G a: linear drift, wind and inertia.

    For an arrival time T the least cost is c0 T + e'(C W C')^-1 e / 2, where e = g - C s_free(T) is the error left by
    the drift alone and W(T) is the controllability Gramian. The goal is C s: the whole state (C = 1), or only some
    coordinates, such as the place of a body with inertia.
    """

    A: np.ndarray  # [n, n] drift
    G: np.ndarray  # [n, m]
    R: np.ndarray  # [m, m] positive definite
    c0: float = 1.0
    wind: np.ndarray | None = None  # [n] constant drift
    goal_rows: np.ndarray | None = None  # [k, n]: C; the whole state if not given
    longest: float = 20.0  # the longest arrival time that is searched

    @property
    def _C(self) -> np.ndarray:  # noqa: N802
        return np.eye(len(self.A)) if self.goal_rows is None else self.goal_rows

    @property
    def _w(self) -> np.ndarray:
        return np.zeros(len(self.A)) if self.wind is None else self.wind

    def terms(self, s: np.ndarray) -> Terms:
        return Terms(self.A @ s + self._w, self.G, self.R, self.c0)

    def distance(self, s: np.ndarray, g: np.ndarray) -> float:
        return float(self._arriving(self.arrival(s, g), s, g).cost)

    def gradient(self, s: np.ndarray, g: np.ndarray) -> np.ndarray:
        """Return the gradient [n]. At the best T the cost's slope in T is zero, so only the part in s is left."""
        return self._arriving(self.arrival(s, g), s, g).gradient

    def on_path(self, s: np.ndarray, g: np.ndarray, share: float) -> np.ndarray:
        """Return the state [n] on the optimal path after `share` of its time."""
        T = self.arrival(s, g)  # noqa: N806
        flow, gramian, blown = self._flow(np.asarray(share * T))
        rest, *_ = self._flow(np.asarray((1 - share) * T))
        return flow @ s + blown + gramian @ rest.T @ self._C.T @ self._arriving(T, s, g).pull

    def arrival(self, s: np.ndarray, g: np.ndarray) -> float:
        """Return the best T. The cost's slope in T is HJB's residual, whose zero is found to the last digits."""
        times = np.geomspace(1e-2, self.longest, 60)
        best = int(np.argmin(self._arriving(times, s, g).cost))
        low, high = times[max(best - 1, 0)], times[min(best + 1, len(times) - 1)]
        terms = self.terms(s)

        def slope(time: float) -> float:
            return hjb_residual(terms, self._arriving(time, s, g).gradient)

        return float(brentq(slope, low, high, xtol=1e-14))  # pyright: ignore[reportArgumentType]

    def _arriving(self, time: np.ndarray | float, s: np.ndarray, g: np.ndarray) -> _Arrival:
        """Return the optimum for arrival at a given time [...]."""
        flow, gramian, blown = self._flow(np.asarray(time))
        missing = g - (flow @ s + blown) @ self._C.T  # [..., k]
        pull = np.linalg.solve(self._C @ gramian @ self._C.T, missing[..., None])[..., 0]  # [..., k]: (C W C')^-1 e
        gradient = -np.einsum("...ji,...j->...i", flow, pull @ self._C)
        return _Arrival(self.c0 * time + np.sum(missing * pull, -1) / 2, gradient, pull)

    def _flow(self, time: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return e^{At} [..., n, n], W(t) [..., n, n] and where the wind alone takes the origin [..., n], by Van Loan's
        matrix exponential."""
        n = len(self.A)
        D = self.G @ np.linalg.solve(self.R, self.G.T)  # noqa: N806
        block = np.zeros((2 * n + 1, 2 * n + 1))
        block[:n, :n], block[:n, n : 2 * n], block[:n, -1] = self.A, D, self._w
        block[n : 2 * n, n : 2 * n] = -self.A.T
        grown = _exponential(block * time[..., None, None])
        flow = grown[..., :n, :n]
        return flow, grown[..., :n, n : 2 * n] @ np.swapaxes(flow, -1, -2), grown[..., :n, -1]


def _exponential(x: np.ndarray) -> np.ndarray:
    """Return the matrix exponential [..., n, n] by Taylor's series, scaled and squared. SciPy's version hands every
    small matrix to a pool of threads, which is far slower on busy cores."""
    squarings = max(0, int(np.ceil(np.log2(max(float(np.abs(x).sum(-1).max()), 1e-9)))) + 4)  # scaled below 1/16
    small = x / 2**squarings
    result, power = np.eye(x.shape[-1]) + small, small
    for order in range(2, 13):
        power = power @ small / order
        result = result + power
    for _ in range(squarings):
        result = result @ result
    return result


def point_with_inertia(dimensions: int = 1, c0: float = 1.0) -> Linear:
    """Return x'' = a with state [x, v] and a place x as goal: d* is min_T c0 T + 3 |g - x - v T|^2 / (2 T^3)."""
    zero, one = np.zeros((dimensions, dimensions)), np.eye(dimensions)
    return Linear(
        A=np.block([[zero, one], [zero, zero]]),
        G=np.vstack([zero, one]),
        R=one,
        c0=c0,
        goal_rows=np.hstack([one, zero]),
    )
