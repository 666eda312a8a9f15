"""d* of the unicycle a second time, by value iteration on a grid: neither Hamilton's equations nor a gradient is used.

V(s) = min_a [2 c0 tau + V(s after tau under a)], V(goal) = 0, with V between grid points by interpolation. Only
actions of the optimal size are tried, a'Ra = 2 c0, in `actions` directions. V starts from what turning on the spot,
driving straight and turning again costs, which is never too little.
"""

import itertools

import numpy as np
from scipy.sparse import csr_array

from dcp.theory.unicycle import Unicycle

FAR = 50.0  # outside of the grid


def unicycle_values(car: Unicycle, half: float, places: int, headings: int, actions: int = 24) -> np.ndarray:
    """[places, places, headings]: d*(s, 0) for x, y from -half to half; `places` odd, so that the goal is a point."""
    axis = np.linspace(-half, half, places)
    angles = 2 * np.pi * np.arange(headings) / headings
    states = np.stack(np.meshgrid(axis, axis, angles, indexing="ij"), -1).reshape(-1, 3)
    spacing = 2 * half / (places - 1)
    tau = 1.5 * max(spacing, 2 * np.pi / headings) / np.sqrt(2 * car.c0 / min(car.drive_price, car.turn_price))
    steps = [
        _interpolation(_after(car, states, a, tau), half, places, headings)
        for a in 2 * np.pi * np.arange(actions) / actions
    ]
    goal = np.ravel_multi_index((places // 2, places // 2, 0), (places, places, headings))
    values = np.append(turn_drive_turn(car, states), FAR)  # the last one is everything outside
    values[goal] = 0.0
    for _ in range(2000):
        best = np.minimum.reduce([step @ values for step in steps]) + 2 * car.c0 * tau
        new = np.minimum(values[:-1], best)
        if np.max(values[:-1] - new) < 1e-9:
            break
        values[:-1] = new
    return values[:-1].reshape(places, places, headings)


def turn_drive_turn(car: Unicycle, states: np.ndarray) -> np.ndarray:
    """[K, 3] -> [K]: a way to the origin that is always there, forward or backward."""
    far = np.hypot(states[:, 0], states[:, 1])
    bearing = np.where(far > 0, np.arctan2(-states[:, 1], -states[:, 0]), 0.0)
    turns = [
        np.abs(_wrapped(facing - states[:, 2])) + np.abs(_wrapped(facing)) for facing in (bearing, bearing + np.pi)
    ]
    turning = np.where(far > 0, np.minimum(*turns), np.abs(_wrapped(states[:, 2])))
    return np.sqrt(2 * car.c0) * (np.sqrt(car.turn_price) * turning + np.sqrt(car.drive_price) * far)


def _wrapped(angle: np.ndarray) -> np.ndarray:
    return (angle + np.pi) % (2 * np.pi) - np.pi


def _after(car: Unicycle, states: np.ndarray, angle: float, tau: float) -> np.ndarray:
    """[K, 3]: after driving an arc; the mean heading is exact to the third order."""
    drive = np.sqrt(2 * car.c0 / car.drive_price) * np.cos(angle)
    turn = np.sqrt(2 * car.c0 / car.turn_price) * np.sin(angle)
    middle = states[:, 2] + turn * tau / 2
    chord = drive * tau * np.sinc(turn * tau / 2 / np.pi)
    return np.stack([states[:, 0] + chord * np.cos(middle), states[:, 1] + chord * np.sin(middle), states[:, 2] + turn * tau], -1)


def _interpolation(at: np.ndarray, half: float, places: int, headings: int) -> csr_array:
    """[K, K + 1]: the weights of the eight grid points around each state; outside is the last column."""
    spacing = 2 * half / (places - 1)
    cells = np.stack([(at[:, 0] + half) / spacing, (at[:, 1] + half) / spacing, at[:, 2] / (2 * np.pi / headings)], -1)
    base = np.floor(cells).astype(int)
    share = cells - base
    rows, columns, weights = [], [], []
    for corner in itertools.product((0, 1), repeat=3):
        point = base + corner
        weight = np.prod(np.where(corner, share, 1 - share), -1)
        inside = np.all((point[:, :2] >= 0) & (point[:, :2] < places), -1)
        flat = (np.clip(point[:, 0], 0, places - 1) * places + np.clip(point[:, 1], 0, places - 1)) * headings
        rows.append(np.arange(len(at)))
        columns.append(np.where(inside, flat + point[:, 2] % headings, len(at)))
        weights.append(weight)
    entries = (np.concatenate(weights), (np.concatenate(rows), np.concatenate(columns)))
    return csr_array(entries, shape=(len(at), len(at) + 1))
