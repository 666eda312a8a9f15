"""Shortest paths between any two points of a maze, exactly: length, first direction, and points on the way.

For a point without size. Such a path is straight but for bends at walls' corners, so the corners that see each other
are a small graph that holds every path. `fine_grid` has the lengths to one goal over a whole maze, to half a percent.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse.csgraph import shortest_path

from dcp.types import MazeLayout

FACE = 1e-9  # cells: a path may touch walls
PINHOLE = 1e-6  # cells: what stands where two walls touch at a corner, so that nothing passes between them
CHUNK = 1 << 18  # segments times boxes that are looked at together


class Route(NamedTuple):
    """From one point to another; empty if no path leads there."""

    points: np.ndarray  # [bends + 2, 2]

    def at(self, share: float) -> np.ndarray:
        """[2]: the point after this share of the way"""
        lengths = np.linalg.norm(np.diff(self.points, axis=0), axis=1)
        along = np.append(0.0, np.cumsum(lengths))
        return np.stack([np.interp(share * along[-1], along, axis) for axis in self.points.T])


class TruePaths:
    def __init__(self, layout: MazeLayout):
        self.layout = layout
        self.boxes = layout.scale * np.concatenate([_runs(layout.walls), _pinholes(layout.walls)])  # [W, 2, 2]
        self.corners = layout.scale * _corners(layout.walls)  # [C, 2]

    @cached_property
    def _between(self) -> tuple[np.ndarray, np.ndarray]:
        """Lengths [C, C] and predecessors [C, C] of the paths between corners."""
        direct = self._direct(self.corners, self.corners)
        graph = np.where(np.isfinite(direct), direct, 0.0)  # no road
        if not len(graph):
            return graph, np.zeros((0, 0), int)
        lengths, before = shortest_path(graph, directed=False, return_predecessors=True)
        return lengths, before

    def sees(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """[K, 2], [K, 2] -> [K]: whether the straight line between them passes through no wall"""
        step = max(1, CHUNK // len(self.boxes))
        parts = [_free(a[i : i + step], b[i : i + step], self.boxes) for i in range(0, len(a), step)]
        return np.concatenate(parts) if parts else np.zeros(0, bool)

    def lengths(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """[K, 2], [K, 2] -> [K]; inf where no path leads, such as from inside a wall"""
        return self._first(np.asarray(a, float), np.asarray(b, float))[0]

    def directions(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """[K, 2], [K, 2] -> [K, 2]: the unit vector at a along the shortest path to b; nan where a = b or none leads"""
        routes = self.routes(a, b)
        found = np.full((len(routes), 2), np.nan)
        for i, route in enumerate(routes):
            ahead = route.points - np.asarray(a[i], float)
            far = np.linalg.norm(ahead, axis=1)
            if np.any(far > 1e-9):  # the first bend may be here, at a corner
                first = np.argmax(far > 1e-9)
                found[i] = ahead[first] / far[first]
        return found

    def routes(self, a: np.ndarray, b: np.ndarray) -> list[Route]:
        a, b = np.asarray(a, float), np.asarray(b, float)
        lengths, first, last = self._first(a, b)
        return [self._route(*each) for each in zip(a, b, lengths, first, last, strict=True)]

    def _route(self, a: np.ndarray, b: np.ndarray, length: float, first: int, last: int) -> Route:
        if not np.isfinite(length):
            return Route(np.zeros((0, 2)))
        bends = []
        while last >= 0 and last != first:  # backwards from the last bend
            bends.append(last)
            last = int(self._between[1][first, last])
        bends += [first] if first >= 0 else []
        return Route(np.stack([a, *self.corners[bends[::-1]], b]))

    def _first(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lengths [K], and which corner is the first bend and which the last [K]; -1 where the way is straight."""
        straight = np.where(self.sees(a, b), np.linalg.norm(a - b, axis=1), np.inf)  # [K]
        none = np.full(len(a), -1)
        if not len(self.corners):
            return straight, none, none
        there = self._direct(a, self.corners)[:, :, None] + self._between[0][None]  # [K, C, C]: by way of each corner
        first = there.argmin(axis=1)  # [K, C]: the best first bend, for each last one
        by_last = np.take_along_axis(there, first[:, None], axis=1)[:, 0] + self._direct(b, self.corners)  # [K, C]
        last = by_last.argmin(axis=1)  # [K]
        bent = by_last[np.arange(len(a)), last]
        is_bent = bent < straight
        first = first[np.arange(len(a)), last]
        return np.minimum(bent, straight), np.where(is_bent, first, none), np.where(is_bent, last, none)

    def _direct(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """[K, 2], [C, 2] -> [K, C]: the straight distance; inf where a wall is between"""
        left, right = np.repeat(a, len(b), axis=0), np.tile(b, (len(a), 1))
        far = np.linalg.norm(left - right, axis=1)
        return np.where(self.sees(left, right), far, np.inf).reshape(len(a), len(b))


def _free(a: np.ndarray, b: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """[K]: whether segments from a to b [K, 2] pass through the inside of no box [W, 2 corners, 2]; by slabs."""
    enter, leave = np.zeros((len(a), len(boxes))), np.ones((len(a), len(boxes)))  # [K, W]: shares of the way
    for axis in (0, 1):
        low, high = boxes[:, 0, axis][None], boxes[:, 1, axis][None]  # [1, W]
        start, move = a[:, axis, None], (b - a)[:, axis, None]  # [K, 1]
        level = move == 0.0  # along this axis it stays
        pace = 1.0 / np.where(level, 1.0, move)
        to_low, to_high = (low - start) * pace, (high - start) * pace
        beside = level & ((start <= low) | (start >= high))
        enter = np.maximum(enter, np.where(level, np.where(beside, np.inf, 0.0), np.minimum(to_low, to_high)))
        leave = np.minimum(leave, np.where(level, 1.0, np.maximum(to_low, to_high)))
    return ~np.any(enter < leave, axis=1)


def _runs(walls: np.ndarray) -> np.ndarray:
    """[W, 2, 2]: low and high corner, in cells, of every longest row and column of walls.

    Both kinds: the seam between two walls of a row is inside of the row's box, that of a column inside of the column's.
    """
    found = []
    for axis, lines in enumerate((walls, walls.T)):
        for i, line in enumerate(lines):
            edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
            for start, end in edges.reshape(-1, 2):
                low, high = np.array([i, start]) - 0.5 + FACE, np.array([i + 1, end]) - 0.5 - FACE
                box = np.stack([low, high])
                found.append(box if axis == 0 else box[:, ::-1])
    return np.stack(found)


def _around(walls: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The four cells about each inner corner of the grid, [rows - 1, columns - 1] each."""
    return walls[:-1, :-1], walls[:-1, 1:], walls[1:, :-1], walls[1:, 1:]


def _corners(walls: np.ndarray) -> np.ndarray:
    """[C, 2], in cells: where one of four cells is a wall: a path may bend there."""
    return np.argwhere(sum(part.astype(int) for part in _around(walls)) == 1) + 0.5


def _pinholes(walls: np.ndarray) -> np.ndarray:
    """[H, 2, 2], in cells: a speck where two walls touch at a corner alone."""
    a, b, c, d = _around(walls)
    at = np.argwhere((a & d & ~b & ~c) | (b & c & ~a & ~d)) + 0.5  # [H, 2]
    return np.stack([at - PINHOLE, at + PINHOLE], axis=1)
