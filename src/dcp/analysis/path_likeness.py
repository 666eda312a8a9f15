"""How a field over a maze compares with the true paths: the order of distances, and the way it points."""

from typing import NamedTuple

import numpy as np

from dcp.analysis.landscape import Landscape
from dcp.envs.fine_grid import POINTS_PER_CELL, grid_axes, path_distances
from dcp.envs.plane import unit
from dcp.statistics import spearman
from dcp.types import MazeLayout


def arrows_per_cell(layout: MazeLayout) -> int:
    """In each direction: a large maze has fewer, or nobody could tell them apart."""
    return 4 if max(layout.walls.shape) <= 6 else 2


class Truth(NamedTuple):
    """The maze itself, seen from a goal."""

    landscape: Landscape  # path lengths
    points: np.ndarray  # [K, 2]: evenly over the free cells, off their faces; where directions are compared
    directions: np.ndarray  # [K, 2]: the steepest way down the path's length, unit vectors


class Likeness(NamedTuple):
    """Of a field and its directions with the truth. nan where one of the two is constant."""

    order: float  # Spearman's rank correlation of the distances, over the free points of the fine grid
    basin: float  # share of these points from which steepest descent ends at the goal
    nearer: float  # share of the compared points at which the direction leads to a shorter path


def true_landscape(layout: MazeLayout, goal: np.ndarray, per_cell: int = POINTS_PER_CELL) -> Truth:
    """goal [G]; only its place in the plane counts."""
    lengths = path_distances(layout, goal[:2], per_cell)
    x, y = grid_axes(layout, per_cell)
    landscape = Landscape(layout, np.asarray(goal), x, y, lengths)
    at = _compared(lengths, per_cell // arrows_per_cell(layout))  # [K, 2]
    points = np.stack([x[at[:, 0]], y[at[:, 1]]], axis=-1)
    return Truth(landscape, points, unit(-_slope(lengths.filled(np.inf), at)))


def _compared(lengths: np.ma.MaskedArray, gap: int) -> np.ndarray:
    """[K, 2]: grid indices, `gap` apart and half a gap away from cells' faces, wherever a path leads from."""
    i, j = np.meshgrid(*(np.arange(gap // 2, n - 1, gap) for n in lengths.shape), indexing="ij")
    inside = np.isfinite(lengths.filled(np.inf)[i, j])
    return np.stack([i[inside], j[inside]], axis=-1)


def _slope(lengths: np.ndarray, at: np.ndarray) -> np.ndarray:
    """[K, 2]: central differences; the points are inside of cells, so their neighbours are free."""
    i, j = at.T
    return np.stack([lengths[i + 1, j] - lengths[i - 1, j], lengths[i, j + 1] - lengths[i, j - 1]], axis=-1)


def rank_correlation(a: np.ma.MaskedArray, b: np.ma.MaskedArray) -> float:
    """Spearman's, over the points that are free in both and finite; ties share their mean rank."""
    both = ~np.ma.getmaskarray(a) & ~np.ma.getmaskarray(b) & np.isfinite(a.data) & np.isfinite(b.data)
    return spearman(a.data[both], b.data[both], least=2)


def leads_nearer(directions: np.ndarray, truth: Truth) -> np.ndarray:
    """[K]: where a direction [K, 2] makes the path to the goal shorter: within 90 degrees of the steepest way."""
    return np.sum(directions * truth.directions, axis=-1) > 0.0


def basin(distance: np.ma.MaskedArray, truth: Truth, threshold: float) -> np.ndarray:
    """[X, Y]: True where going down the field, always to the lowest of the eight neighbours, ends near the goal.

    Moves go between free points and slide along walls. Elsewhere a local minimum holds whoever only goes down.
    """
    free = np.isfinite(truth.landscape.distance.filled(np.inf))
    height = np.where(free, distance.data, np.inf)
    shape, index = height.shape, np.arange(height.size)
    lowest, best = index.copy(), height.ravel().copy()
    padded = np.pad(height, 1, constant_values=np.inf)
    for i, j in ((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)):
        seen = padded[1 + i : 1 + i + shape[0], 1 + j : 1 + j + shape[1]].ravel()
        better = seen < best
        lowest[better], best[better] = index[better] + i * shape[1] + j, seen[better]
    while not np.array_equal(lowest[lowest], lowest):  # each pass doubles the way that is followed
        lowest = lowest[lowest]
    x, y = truth.landscape.x, truth.landscape.y
    goal = truth.landscape.goal[:2]
    arrived = np.hypot(x[:, None] - goal[0], y[None, :] - goal[1]).ravel() <= threshold
    return arrived[lowest].reshape(shape) & free


def likeness(distance: np.ma.MaskedArray, directions: np.ndarray, truth: Truth, threshold: float) -> Likeness:
    """`threshold`: how near to the goal counts as there, the environment's own."""
    free = np.isfinite(truth.landscape.distance.filled(np.inf))
    return Likeness(
        rank_correlation(distance, truth.landscape.distance),
        float(basin(distance, truth, threshold)[free].mean()),
        float(np.mean(leads_nearer(directions, truth))),
    )


def straight_line(truth: Truth, threshold: float) -> Likeness:
    """What would be had without knowing a wall: distance and direction as the crow flies."""
    x, y = truth.landscape.x, truth.landscape.y
    goal = truth.landscape.goal[:2]
    gaps = np.hypot(x[:, None] - goal[0], y[None, :] - goal[1])
    distance = np.ma.masked_array(gaps, np.ma.getmaskarray(truth.landscape.distance))
    return likeness(distance, unit(goal[None] - truth.points), truth, threshold)
