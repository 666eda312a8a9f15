"""Theorem 2's two sides over orders of magnitude of eps and delta, and the slopes of their square roots."""

from typing import NamedTuple

import numpy as np

from dcp.theory.curved import Curved
from dcp.theory.invariance import Gap, Ripple, gap, sharpest_ripple, slack
from dcp.theory.system import unit


class Scene(NamedTuple):
    system: Curved
    s: np.ndarray  # [2]
    z: np.ndarray  # [2]: exactly on the way
    g: np.ndarray  # [2]


def scene(curvature: float, bend: float = 0.25, share: float = 0.4) -> Scene:
    """A planar system with state-dependent G and R, and a waypoint on its way."""
    system = Curved(
        B=np.array([[0.5, 0.1], [0.0, 0.45]]),
        curvature=curvature,
        bend=bend,
        R0=np.array([[1.5, 0.4], [0.4, 0.8]]),
        R_swing=0.3,
        c0=0.5,
    )
    s, g = np.array([-0.7, -0.5]), np.array([0.9, 0.8])
    return Scene(system, s, system.on_path(s, g, share), g)


def off_path(at: Scene, sideways: float) -> np.ndarray:
    """[2]: z moved off the way."""
    way = unit(at.g - at.s)
    return at.z + sideways * np.array([-way[1], way[0]])


def with_slack(at: Scene, eps: float) -> np.ndarray:
    """[2]: z moved sideways until the way over it is longer by eps."""
    low, high = 0.0, 4.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if slack(at.system, at.s, off_path(at, middle), at.g) < eps else (low, middle)
    return off_path(at, high)


def opposed_ripples(at: Scene, delta: float, curvature: float) -> tuple[Ripple, Ripple]:
    """Errors that turn z's direction and g's direction away from each other as far as their curvature lets them."""
    way = unit(at.system.gradient(at.s, at.g))
    across = np.array([-way[1], way[0]])
    return sharpest_ripple(delta, curvature, across, at.s), sharpest_ripple(delta, curvature, -across, at.s)


def over_eps(at: Scene, slacks: np.ndarray) -> list[Gap]:
    return [gap(at.system, at.s, with_slack(at, eps), at.g) for eps in slacks]


def over_delta(at: Scene, deltas: np.ndarray, curvature: float = 1.0) -> list[Gap]:
    """The sharpest errors that (B2) lets through: their slope grows as the square root of their size."""
    return [gap(at.system, at.s, at.z, at.g, *opposed_ripples(at, delta, curvature)) for delta in deltas]


def over_delta_smooth(at: Scene, deltas: np.ndarray, wave: float = 2.0) -> list[Gap]:
    """Errors of one fixed shape, scaled: their slope grows with their size itself."""
    return [gap(at.system, at.s, at.z, at.g, *opposed_ripples(at, delta, delta * wave**2)) for delta in deltas]


def over_both(at: Scene, slacks: np.ndarray, deltas: np.ndarray, curvature: float = 1.0) -> list[list[Gap]]:
    """[eps][delta]"""
    found = []
    for eps in slacks:
        z = with_slack(at, eps)
        row = [opposed_ripples(at, delta, curvature) for delta in deltas]
        found.append([gap(at.system, at.s, z, at.g, *pair) for pair in row])
    return found


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """Of log y over log x, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
