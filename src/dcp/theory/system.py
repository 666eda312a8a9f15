"""What a control-affine system is at one state, and what its HJB equation says there.

Dynamics f0(s) + G(s) a, running cost c0 + a'R(s)a / 2, free arrival time. With p the gradient of d*(., g) at s, HJB is
0 = min_a [c0 + a'Ra/2 + p'(f0 + Ga)] = c0 + p'f0 - p'Dp/2, where D = G R^-1 G'.
"""

from typing import NamedTuple, Protocol

import numpy as np


class Terms(NamedTuple):
    """The system at one state."""

    f0: np.ndarray  # [n] drift
    G: np.ndarray  # [n, m]
    R: np.ndarray  # [m, m] positive definite
    c0: float  # the price of time

    @property
    def D(self) -> np.ndarray:  # noqa: N802
        """[n, n]: G R^-1 G', which turns a gradient into a velocity."""
        return self.G @ np.linalg.solve(self.R, self.G.T)


class System(Protocol):
    """A system whose optimal cost to go d* is known."""

    def terms(self, s: np.ndarray) -> Terms: ...

    def distance(self, s: np.ndarray, g: np.ndarray) -> np.ndarray:
        """[..., n], [..., n] -> [...]: d*(s, g)."""
        ...

    def gradient(self, s: np.ndarray, g: np.ndarray) -> np.ndarray:
        """[..., n], [..., n] -> [..., n]: d* by s."""
        ...

    def on_path(self, s: np.ndarray, g: np.ndarray, share: float) -> np.ndarray:
        """[n]: a state of the optimal path from s to g; share 0 is s, share 1 is g."""
        ...


def running_cost(terms: Terms, action: np.ndarray) -> float:
    return float(terms.c0 + action @ terms.R @ action / 2)


def velocity(terms: Terms, action: np.ndarray) -> np.ndarray:
    return terms.f0 + terms.G @ action


def feedback(terms: Terms, p: np.ndarray) -> np.ndarray:
    """Theorem 1's law: a* = -R^-1 G' p."""
    return -np.linalg.solve(terms.R, terms.G.T @ p)


def hjb_residual(terms: Terms, p: np.ndarray) -> float:
    """c0 + p'f0 - p'Dp/2: zero where p is a gradient of d*."""
    return float(terms.c0 + p @ terms.f0 - p @ terms.D @ p / 2)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector, axis=-1, keepdims=True)


def positive_definite(matrix: np.ndarray) -> np.ndarray:
    """M'M + 1: from any square matrix one that serves as R, never close to singular."""
    return matrix.T @ matrix + np.eye(len(matrix))
