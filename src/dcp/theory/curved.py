"""Driftless systems with state-dependent G(s) and R(s), whose d* has a closed form.

Without drift d* is sqrt(2 c0) times the length of the shortest path under the metric M(s) = D(s)^-1. So a space of
constant curvature k (a sphere for k > 0, a plane for k = 0, a hyperbolic plane for k < 0) seen through any smooth
coordinates is an exact system: the plane in straight coordinates is the linear-quadratic point, d* = sqrt(2 c0)
|g - s|_M with M = G^-T R G^-1; every other one has G and R that change from state to state.
"""

from dataclasses import dataclass

import numpy as np

from dcp.theory.system import Terms


@dataclass(frozen=True)
class Curved:
    """Coordinates y = B (s + bend sin(s_2) e_1) of a space of constant curvature."""

    B: np.ndarray  # [n, n] invertible
    curvature: float = 0.0  # k; for k < 0 states must keep |y|^2 < 1 / |k|
    bend: float = 0.0
    R0: np.ndarray | None = None  # [n, n] positive definite; the identity if not given
    R_swing: float = 0.0  # R(s) = R0 (1 + R_swing sin(s_1)), below 1
    c0: float = 1.0

    def chart(self, s: np.ndarray) -> np.ndarray:
        """[..., n] -> [..., n]: y of s."""
        bent = np.array(s, float)
        bent[..., 0] += self.bend * np.sin(bent[..., 1])
        return bent @ self.B.T

    def state(self, y: np.ndarray) -> np.ndarray:
        """[..., n] -> [..., n]: s of y."""
        s = y @ np.linalg.inv(self.B).T
        s[..., 0] -= self.bend * np.sin(s[..., 1])
        return s

    def chart_jacobian(self, s: np.ndarray) -> np.ndarray:
        """[..., n] -> [..., n, n]"""
        bent = np.broadcast_to(np.eye(s.shape[-1]), (*s.shape, s.shape[-1])).copy()
        bent[..., 0, 1] += self.bend * np.cos(s[..., 1])
        return self.B @ bent

    def metric(self, s: np.ndarray) -> np.ndarray:
        """[..., n] -> [..., n, n]: M(s), the squared length of a small step."""
        jacobian, y = self.chart_jacobian(s), self.chart(s)
        stretch = 2 / (1 + self.curvature * np.sum(y * y, -1))  # stereographic coordinates
        return stretch[..., None, None] ** 2 * np.swapaxes(jacobian, -1, -2) @ jacobian

    def terms(self, s: np.ndarray) -> Terms:
        """R as given; G such that G R^-1 G' = M^-1."""
        n = len(s)
        R = (np.eye(n) if self.R0 is None else self.R0) * (1 + self.R_swing * np.sin(s[0]))  # noqa: N806
        root_of_inverse = np.linalg.inv(np.linalg.cholesky(self.metric(s))).T
        return Terms(np.zeros(n), root_of_inverse @ np.linalg.cholesky(R).T, R, self.c0)

    def distance(self, s: np.ndarray, g: np.ndarray) -> np.ndarray:
        """sin_k(d / 2)^2 = q with q = |x - y|^2 / ((1 + k |x|^2) (1 + k |y|^2)) in coordinates x, y."""
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
        """Straight on from x: seen from x (Moebius addition) a shortest path is a straight line."""
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
    """The inverse of sin(root k t) / root k, and its limits for k = 0 and k < 0."""
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
    """The motion of the space that takes the origin to x, applied to y."""
    xy, xx, yy = x @ y, x @ x, y @ y
    return ((1 - 2 * k * xy - k * yy) * x + (1 + k * xx) * y) / (1 - 2 * k * xy + k * k * xx * yy)
