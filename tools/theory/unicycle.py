"""A car without inertia, state (x, y, heading): it drives and turns but never slides sideways. im G has dimension 2.

Optimal paths solve Hamilton's equations from s, with the gradient p of d* as the costate: p'Dp = 2 c0 leaves an angle
and the sideways part of p free, so a shot (angle, sideways, time) ends at one goal, and d* = 2 c0 time if the path is
the shortest one. `solve` finds the shot for a goal in the car's own frame, where s is the origin.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tools.theory.control_systems import Terms

STEPS = 32  # of Runge-Kutta, along one path
LONGEST = 4.0  # time of the table's longest shots


class Shots(NamedTuple):
    """Hold the optimal paths from the origin to a goal, the cheapest first."""

    cost: np.ndarray  # [K]
    gradient: np.ndarray  # [K, 3]: p at s
    parameters: np.ndarray  # [K, 3]: angle, sideways, time


@dataclass(frozen=True)
class Unicycle:
    drive_price: float = 1.0
    turn_price: float = 1.0
    c0: float = 0.5  # d* is then the length of the path

    def terms(self, s: np.ndarray) -> Terms:
        G = np.array([[np.cos(s[2]), 0.0], [np.sin(s[2]), 0.0], [0.0, 1.0]])  # noqa: N806
        return Terms(np.zeros(3), G, np.diag([self.drive_price, self.turn_price]), self.c0)

    def costate(self, angle: np.ndarray, sideways: np.ndarray) -> np.ndarray:
        """Return the p with p'Dp = 2 c0 at heading 0: [...], [...] -> [..., 3]."""
        ahead = -np.sqrt(2 * self.c0 * self.drive_price) * np.cos(angle)
        turn = -np.sqrt(2 * self.c0 * self.turn_price) * np.sin(angle)
        return np.stack(np.broadcast_arrays(ahead, sideways, turn), -1)

    def shoot(self, parameters: np.ndarray, keep: bool = False) -> np.ndarray:
        """Return where a shot from the origin ends, [..., 3] -> [..., 3]; with `keep` the path [STEPS + 1, ..., 3]."""
        angle, sideways, time = np.moveaxis(parameters, -1, 0)
        p = self.costate(angle, sideways)
        y = np.concatenate([np.zeros_like(p), p], -1)  # [..., 6]
        h = (time / STEPS)[..., None]
        path = [y[..., :3]]
        for _ in range(STEPS):
            k1 = self._motion(y)
            k2 = self._motion(y + h / 2 * k1)
            k3 = self._motion(y + h / 2 * k2)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + self._motion(y + h * k3))
            path.append(y[..., :3])
        return np.stack(path) if keep else y[..., :3]

    def _motion(self, y: np.ndarray) -> np.ndarray:
        """Return Hamilton's equations: s' = -D p, p' = (p'Dp)_s / 2. Only the heading's costate changes."""
        heading, px, py, turn = y[..., 2], y[..., 3], y[..., 4], y[..., 5]
        cos, sin = np.cos(heading), np.sin(heading)
        drive = -(px * cos + py * sin) / self.drive_price
        zero = np.zeros_like(drive)
        return np.stack(
            [drive * cos, drive * sin, -turn / self.turn_price, zero, zero, drive * (px * sin - py * cos)], -1
        )

    def solve(self, s: np.ndarray, g: np.ndarray) -> Shots:
        """Find shots from s to g [3], the cheapest first: the table's best of each kind, then apply Newton."""
        goal = seen_from(s, g)
        table, ends = _table(self)  # [kinds, K, 3]
        nearest = np.sum((ends - goal) ** 2, -1).argmin(-1)
        starts = table[np.arange(len(table)), nearest]
        shots = self._newton(starts, goal)
        shots = shots[(np.linalg.norm(self.shoot(shots) - goal, axis=-1) < 1e-9) & (shots[:, 2] > 0)]
        if not len(shots):
            raise ValueError(f"no path found to {goal}, as seen from the car: is it further than {LONGEST} in time?")
        shots = shots[np.argsort(shots[:, 2])]
        p = self.costate(shots[:, 0], shots[:, 1])
        return Shots(2 * self.c0 * shots[:, 2], _turned(p, s[2]), shots)

    def distance(self, s: np.ndarray, g: np.ndarray) -> float:
        return float(self.solve(s, g).cost[0])

    def gradient(self, s: np.ndarray, g: np.ndarray) -> np.ndarray:
        return self.solve(s, g).gradient[0]

    def _newton(self, shots: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """Move all shots to the goal at once, [K, 3]; steps are kept short, so that none diverges."""
        step = 1e-6
        probes = step * np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])[:, None]  # [7, 1, 3]
        for _ in range(12):
            ends = self.shoot(shots + probes)  # [7, K, 3]
            missing = goal - ends[0]
            if np.all(np.abs(missing) < 1e-11):
                break
            jacobian = np.moveaxis((ends[1:4] - ends[4:]) / (2 * step), 0, -1)  # [K, 3, 3]
            move = np.einsum("kij,kj->ki", np.linalg.pinv(jacobian, rcond=1e-10), missing)
            shots = shots + move * np.minimum(
                1.0, 0.5 / np.maximum(np.linalg.norm(move, axis=-1, keepdims=True), 1e-12)
            )
        return shots


def seen_from(s: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return g [3] in the car's own frame."""
    return np.append(_turned(np.append(g[:2] - s[:2], 0.0), -s[2])[:2], g[2] - s[2])


def _turned(p: np.ndarray, heading: float) -> np.ndarray:
    """Rotate the plane's part by the heading: [..., 3]."""
    cos, sin = np.cos(heading), np.sin(heading)
    return np.stack([cos * p[..., 0] - sin * p[..., 1], sin * p[..., 0] + cos * p[..., 1], p[..., 2]], -1)


@lru_cache(maxsize=4)
def _table(car: Unicycle) -> tuple[np.ndarray, np.ndarray]:
    """Return shots in every direction and their ends, [kinds, K, 3] each. A kind is an eighth of the angles, a sign of
    the sideways part and a range of times: paths of several kinds may reach a goal, and we need the shortest."""
    angles = np.linspace(-np.pi, np.pi, 48, endpoint=False).reshape(8, 1, 6, 1)
    sides = np.sinh(np.linspace(0.01, 3.5, 16))
    angle, sideways = np.broadcast_arrays(angles, np.stack([sides, -sides])[:, None])  # [8, 2, 6, 16]
    start = np.stack([angle, sideways, np.full(angle.shape, LONGEST)], -1).reshape(16, -1, 3)
    path = car.shoot(start, keep=True)[1:]  # [T, 16, K, 3]
    shots = np.broadcast_to(start, path.shape).copy()
    shots[..., 2] = LONGEST * np.arange(1, STEPS + 1)[:, None, None] / STEPS
    table, ends = (
        by_time.reshape(4, STEPS // 4, 16, -1, 3).swapaxes(1, 2).reshape(64, -1, 3) for by_time in (shots, path)
    )
    return table, ends
