"""Linear systems with drift: ds/dt = A s + w + G a. d* is a minimum over one number, the arrival time.

For an arrival time T the least cost is c0 T + e'(C W C')^-1 e / 2, with e = g - C s_free(T) what the drift alone misses
by and W(T) the controllability Gramian. The goal is C s: all of the state (C = 1), or only some coordinates, as a place
is for a body with inertia.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from dcp.theory.system import Terms, hjb_residual


@dataclass(frozen=True)
class Linear:
    A: np.ndarray  # [n, n] drift
    G: np.ndarray  # [n, m]
    R: np.ndarray  # [m, m] positive definite
    c0: float = 1.0
    wind: np.ndarray | None = None  # [n] constant drift
    goal_rows: np.ndarray | None = None  # [k, n]: C; the whole state if not given
    longest: float = 20.0  # arrival times beyond are not looked for

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
        """[n]: at the best T its change counts nothing, so only s's own part is left."""
        return self._arriving(self.arrival(s, g), s, g).gradient

    def on_path(self, s: np.ndarray, g: np.ndarray, share: float) -> np.ndarray:
        """[n]: where the optimal path is after `share` of its time."""
        T = self.arrival(s, g)  # noqa: N806
        flow, gramian, blown = self._flow(np.asarray(share * T))
        rest, *_ = self._flow(np.asarray((1 - share) * T))
        return flow @ s + blown + gramian @ rest.T @ self._C.T @ self._arriving(T, s, g).pull

    def arrival(self, s: np.ndarray, g: np.ndarray) -> float:
        """The best T. The cost's slope in T is HJB's residual, so its zero is found to the last digits."""
        times = np.geomspace(1e-2, self.longest, 60)
        best = int(np.argmin(self._arriving(times, s, g).cost))
        low, high = times[max(best - 1, 0)], times[min(best + 1, len(times) - 1)]
        terms = self.terms(s)

        def slope(time: float) -> float:
            return hjb_residual(terms, self._arriving(time, s, g).gradient)

        return float(brentq(slope, low, high, xtol=1e-14))  # pyright: ignore[reportArgumentType]

    def _arriving(self, time: np.ndarray | float, s: np.ndarray, g: np.ndarray) -> "_Arrival":
        """The best that can be done with arrival at a given time [...]."""
        flow, gramian, blown = self._flow(np.asarray(time))
        missing = g - (flow @ s + blown) @ self._C.T  # [..., k]
        pull = np.linalg.solve(self._C @ gramian @ self._C.T, missing[..., None])[..., 0]  # [..., k]: (C W C')^-1 e
        gradient = -np.einsum("...ji,...j->...i", flow, pull @ self._C)
        return _Arrival(self.c0 * time + np.sum(missing * pull, -1) / 2, gradient, pull)

    def _flow(self, time: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """e^{At} [..., n, n], W(t) [..., n, n] and where the wind alone takes the origin [..., n]: Van Loan's
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
    """[..., n, n]: Taylor's series, scaled and squared. SciPy's hands every small matrix to a pool of threads, which
    takes a hundred times as long where cores are busy."""
    squarings = max(0, int(np.ceil(np.log2(max(float(np.abs(x).sum(-1).max()), 1e-9)))) + 4)  # the rest is below 1/16
    small = x / 2**squarings
    result, power = np.eye(x.shape[-1]) + small, small
    for order in range(2, 13):
        power = power @ small / order
        result = result + power
    for _ in range(squarings):
        result = result @ result
    return result


class _Arrival(NamedTuple):
    cost: np.ndarray  # [...]
    gradient: np.ndarray  # [..., n]: by s, for this arrival time
    pull: np.ndarray  # [..., k]: what the goal's coordinates are worth


def point_with_inertia(dimensions: int = 1, c0: float = 1.0) -> Linear:
    """x'' = a, the goal a place x: d* by hand is min_T c0 T + 3 |g - x - v T|^2 / (2 T^3). State [x, v]."""
    zero, one = np.zeros((dimensions, dimensions)), np.eye(dimensions)
    return Linear(
        A=np.block([[zero, one], [zero, zero]]),
        G=np.vstack([zero, one]),
        R=one,
        c0=c0,
        goal_rows=np.hstack([one, zero]),
    )
