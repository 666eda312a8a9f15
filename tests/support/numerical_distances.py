"""d* a second time, found numerically: by shortest paths on a grid, and by optimising the actions themselves."""

from collections.abc import Callable
from math import gcd

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from tools.theory.unicycle import Unicycle, seen_from

Metric = Callable[[np.ndarray], np.ndarray]  # [..., 2] -> [..., 2, 2]: M = (G R^-1 G')^-1


def grid(low: float, high: float, points: int) -> np.ndarray:
    """[points, points, 2]: a square of states."""
    axis = np.linspace(low, high, points)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)


def distances_to(metric: Metric, states: np.ndarray, goal: tuple[int, int], c0: float, reach: int) -> np.ndarray:
    """[X, Y, 2] -> [X, Y]: d* to the grid point `goal`, over straight moves of up to `reach` grid steps on an axis.

    Two errors, both of known sign or order: directions between two moves cost 1 / cos(half their angle), always too
    much, O(1 / reach^2); a move's length under a changing metric is taken by Simpson's rule. So refining the grid and
    the moves together converges.
    """
    shape = states.shape[:2]
    index = np.arange(shape[0] * shape[1]).reshape(shape)
    starts, ends, lengths = [], [], []
    for a, b in _moves(reach):
        here, there = _pair(shape, a, b)
        starts.append(index[here].ravel())
        ends.append(index[there].ravel())
        lengths.append(_length(metric, states[here], states[there]).ravel())
    roads = (np.concatenate(lengths), (np.concatenate(starts), np.concatenate(ends)))
    graph = csr_array(roads, shape=(index.size, index.size))
    found = dijkstra(graph, directed=False, indices=int(index[goal]))
    return np.sqrt(2 * c0) * np.asarray(found).reshape(shape)


def _length(metric: Metric, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """[..., 2], [..., 2] -> [...]: of the straight segment, by Simpson's rule."""
    move = end - start

    def speed(at: np.ndarray) -> np.ndarray:
        return np.sqrt(np.einsum("...i,...ij,...j->...", move, metric(at), move))

    return (speed(start) + 4 * speed((start + end) / 2) + speed(end)) / 6


def _moves(reach: int) -> list[tuple[int, int]]:
    """Each direction once, without its opposite."""
    span = range(-reach, reach + 1)
    return [(a, b) for a in range(reach + 1) for b in span if gcd(a, b) == 1 and (a > 0 or b > 0)]


def _pair(shape: tuple[int, ...], a: int, b: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Where a move (a, b) with a >= 0 may start, and where it then ends."""
    low, high = max(0, -b), shape[1] - max(0, b)
    return (slice(0, shape[0] - a), slice(low, high)), (slice(a, shape[0]), slice(low + b, high + b))


def best_found(car: Unicycle, s: np.ndarray, g: np.ndarray, pieces: int = 20, tries: int = 4) -> float:
    """Return the least cost over `tries` random starts, from the actions alone: no costate, no gradient of d*.

    The actions are constant over a number of equal pieces, so that each piece is an arc; the least length of a path
    made of arcs is never below d*, and comes down to it with more pieces. At a constant cost rate, d* is sqrt(2 c0)
    times the length.
    """
    goal = seen_from(s, g)
    prices = np.array([car.drive_price, car.turn_price])
    rng = np.random.default_rng(0)

    def squared_length(actions: np.ndarray) -> float:
        return float(np.sum(prices * actions.reshape(-1, 2) ** 2) / pieces)

    found = []
    for _ in range(tries):
        result = minimize(
            squared_length,
            rng.normal(size=2 * pieces),
            jac=lambda actions: (2 * prices * actions.reshape(-1, 2) / pieces).ravel(),
            constraints={"type": "eq", "fun": lambda actions: _end(actions) - goal},
            method="SLSQP",
            options={"maxiter": 300},
        )
        if result.success:
            found.append(np.sqrt(2 * car.c0 * result.fun))
    return float(min(found))


def _end(actions: np.ndarray) -> np.ndarray:
    """[2 pieces] -> [3]: where unit time under them leads from the origin."""
    drive, turn = actions.reshape(-1, 2).T
    time = 1 / len(drive)
    heading = np.concatenate([[0.0], np.cumsum(turn) * time])
    middle = (heading[:-1] + heading[1:]) / 2  # an arc's chord points there
    chord = drive * time * np.sinc(turn * time / 2 / np.pi)
    return np.array([np.sum(chord * np.cos(middle)), np.sum(chord * np.sin(middle)), heading[-1]])
