"""Find shortest paths of a point through a maze: their exact lengths, first directions and routes."""

from functools import cached_property

import numpy as np
from scipy.sparse.csgraph import shortest_path

from dcp.errors import UserError
from dcp.types import MazeLayout

POINTS_PER_CELL = 16
FACE = 1e-9  # cells: a path may touch walls
PINHOLE = 1e-6  # cells: the size of the block that closes the corner where two walls touch
CHUNK = 1 << 18  # segments times boxes that are tested together


# Points of the plane: a fine grid of them, and which are free.


def grid_axes(layout: MazeLayout, per_cell: int = POINTS_PER_CELL) -> tuple[np.ndarray, np.ndarray]:
    """Return the grid's x [X] and y [Y] from wall to wall. It contains cells' corners, and their centres for an even
    per_cell."""
    rows, columns = (layout.scale * (np.arange(n * per_cell + 1) / per_cell - 0.5) for n in layout.walls.shape)
    return rows, columns


def grid_points(layout: MazeLayout, per_cell: int = POINTS_PER_CELL) -> np.ndarray:
    """Return the grid's points [X, Y, 2]. The maze's free space is every one of them that is not `wall_at`."""
    return np.stack(np.meshgrid(*grid_axes(layout, per_cell), indexing="ij"), axis=-1)


def cell_points(layout: MazeLayout, per_cell: int) -> np.ndarray:
    """Return points [K, 2] spread evenly over the free cells, away from their edges."""
    steps = (np.arange(per_cell) + 0.5) / per_cell - 0.5
    axes = ((np.arange(n)[:, None] + steps).ravel() * layout.scale for n in layout.walls.shape)
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    return points[~wall_at(layout, points)]


def wall_at(layout: MazeLayout, points: np.ndarray) -> np.ndarray:
    """Mark points [..., 2] in a wall, outside, or between two walls' corners. A wall's face is free."""
    walls = np.pad(layout.walls, 1, constant_values=True)
    at = np.nan_to_num(np.round(np.asarray(points, float) / layout.scale + 0.5, 9), nan=-1.0)  # cells from the corner
    last = np.array(walls.shape) - 1
    low, high = (np.clip(index, 0, last).astype(int) for index in (np.ceil(at), np.floor(at) + 1))  # cells on each side
    a, b, c, d = (walls[x[..., 0], y[..., 1]] for x in (low, high) for y in (low, high))
    return (a & b & c & d) | _touch_diagonally(a, b, c, d)


def _touch_diagonally(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Return whether, of four cells around a corner, just two opposite ones are walls: no path passes between them."""
    return (a & d & ~b & ~c) | (b & c & ~a & ~d)


def require_free(layout: MazeLayout, goal: np.ndarray) -> None:
    """Refuse a goal [2] that is not in a free cell; a wall's face belongs to the free cell next to it."""
    if wall_at(layout, goal):
        where = ", ".join(f"{value:g}" for value in goal)
        last = ", ".join(f"{layout.scale * (n - 1.5):g}" for n in layout.walls.shape)
        raise UserError(
            f"the goal ({where}) lies in a wall: choose x and y in a free cell, from {layout.scale / 2:g} to ({last})"
        )


# Exact paths between any two points.


def along(route: np.ndarray, share: float) -> np.ndarray:
    """Return the point [2] after this share of a route [bends + 2, 2]; nan on a route without points."""
    if not len(route):
        return np.full(2, np.nan)
    lengths = np.append(0.0, np.cumsum(np.linalg.norm(np.diff(route, axis=0), axis=1)))
    return np.stack([np.interp(share * lengths[-1], lengths, axis) for axis in route.T])


class TruePaths:
    """Find exact shortest paths of a point without size between any two points of a maze.

    Such a path is straight except for bends at walls' corners, so the graph of corners that see each other contains
    every path.
    """

    def __init__(self, layout: MazeLayout):
        self.layout = layout
        self.boxes = layout.scale * np.concatenate([_wall_runs(layout.walls), _blocks(layout.walls)])  # [W, 2, 2]
        self.corners = layout.scale * _corners(layout.walls)  # [C, 2]

    @cached_property
    def _between(self) -> tuple[np.ndarray, np.ndarray]:
        """Return lengths [C, C] and predecessors [C, C] of the paths between corners."""
        direct = self._direct(self.corners, self.corners)
        graph = np.where(np.isfinite(direct), direct, 0.0)  # 0: no edge
        if not len(graph):
            return graph, np.zeros((0, 0), int)
        lengths, before = shortest_path(graph, directed=False, return_predecessors=True)
        return lengths, before

    @property
    def corner_lengths(self) -> np.ndarray:
        """Return the lengths [C, C] of the paths between corners, inf if there is no path."""
        return self._between[0]

    def sees(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return whether the straight line between two points avoids all walls: [K, 2], [K or 1, 2] -> [K]."""
        a, b = np.broadcast_arrays(a, b)
        step = max(1, CHUNK // len(self.boxes))
        parts = [_free(a[i : i + step], b[i : i + step], self.boxes) for i in range(0, len(a), step)]
        return np.concatenate(parts) if parts else np.zeros(0, bool)

    def lengths(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Measure paths: [K, 2], [K, 2] or [1, 2] -> [K]; inf if there is no path, such as from inside a wall."""
        return self._first(np.asarray(a, float), np.asarray(b, float))[0]

    def directions(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the unit vectors [K, 2] at a along the shortest paths to b; nan if a = b or there is no path."""
        routes = self.routes(a, b)
        ways = np.full((len(routes), 2), np.nan)
        for i, route in enumerate(routes):
            ahead = route - np.asarray(a[i], float)
            far = np.linalg.norm(ahead, axis=1)
            if np.any(far > 1e-9):  # the first bend may be at a itself
                first = np.argmax(far > 1e-9)
                ways[i] = ahead[first] / far[first]
        return ways

    def routes(self, a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
        """Return the shortest paths: [K, 2], [K, 2] -> K times [bends + 2, 2]; without points if there is no path."""
        a, b = np.asarray(a, float), np.asarray(b, float)
        return [self._route(*each) for each in zip(a, b, *self._first(a, b), strict=True)]

    def _route(self, a: np.ndarray, b: np.ndarray, length: float, first: int, last: int) -> np.ndarray:
        if not np.isfinite(length):
            return np.zeros((0, 2))
        bends = []
        while last >= 0 and last != first:  # backwards from the last bend
            bends.append(last)
            last = int(self._between[1][first, last])
        bends += [first] if first >= 0 else []
        return np.stack([a, *self.corners[bends[::-1]], b])

    def _first(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return lengths [K], and the corners of the first and the last bend [K]; -1 if the path is straight."""
        straight = np.where(self.sees(a, b), np.linalg.norm(a - b, axis=1), np.inf)  # [K]
        none = np.full(len(a), -1)
        if not len(self.corners):
            return straight, none, none
        onward = self._between[0] + self._direct(b, self.corners)[:, None]  # [K or 1, C, C]: from a corner by another
        bent = self._direct(a, self.corners) + onward.min(axis=2)  # [K, C]: through each first corner
        first, at = bent.argmin(axis=1), np.arange(len(a))
        last = np.broadcast_to(onward.argmin(axis=2), bent.shape)[at, first]
        is_bent = bent[at, first] < straight
        lengths = np.minimum(bent[at, first], straight)
        return lengths, np.where(is_bent, first, none), np.where(is_bent, last, none)

    def _direct(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Measure straight lines: [K, 2], [C, 2] -> [K, C]; inf if a wall is between."""
        left, right = np.repeat(a, len(b), axis=0), np.tile(b, (len(a), 1))
        far = np.linalg.norm(left - right, axis=1)
        return np.where(self.sees(left, right), far, np.inf).reshape(len(a), len(b))


def _free(a: np.ndarray, b: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return whether segments from a to b [K, 2] avoid the inside of all boxes [W, 2 corners, 2]: [K], by slabs."""
    enter, leave = np.zeros((len(a), len(boxes))), np.ones((len(a), len(boxes)))  # [K, W]: shares of the segment
    for axis in (0, 1):
        low, high = boxes[:, 0, axis][None], boxes[:, 1, axis][None]  # [1, W]
        start, move = a[:, axis, None], (b - a)[:, axis, None]  # [K, 1]
        level = move == 0.0  # no move along this axis
        pace = 1.0 / np.where(level, 1.0, move)
        to_low, to_high = (low - start) * pace, (high - start) * pace
        beside = level & ((start <= low) | (start >= high))
        enter = np.maximum(enter, np.where(level, np.where(beside, np.inf, 0.0), np.minimum(to_low, to_high)))
        leave = np.minimum(leave, np.where(level, 1.0, np.maximum(to_low, to_high)))
    return ~np.any(enter < leave, axis=1)


def _wall_runs(walls: np.ndarray) -> np.ndarray:
    """Return every maximal row and column of walls as a box: low and high corner, in cells, [W, 2, 2].

    Both are needed: a row's box covers the seams between its walls, a column's box those between its own.
    """
    boxes = []
    for axis, lines in enumerate((walls, walls.T)):
        for i, line in enumerate(lines):
            edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
            for start, end in edges.reshape(-1, 2):
                low, high = np.array([i, start]) - 0.5 + FACE, np.array([i + 1, end]) - 0.5 - FACE
                box = np.stack([low, high])
                boxes.append(box if axis == 0 else box[:, ::-1])
    return np.stack(boxes)


def _around(walls: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the four cells around each inner corner of the grid, [rows - 1, columns - 1] each."""
    return walls[:-1, :-1], walls[:-1, 1:], walls[1:, :-1], walls[1:, 1:]


def _corners(walls: np.ndarray) -> np.ndarray:
    """Return the corners where one of four cells is a wall, so that a path may bend there: [C, 2], in cells."""
    return np.argwhere(sum(part.astype(int) for part in _around(walls)) == 1) + 0.5


def _blocks(walls: np.ndarray) -> np.ndarray:
    """Return a tiny box where two walls touch only at a corner, so that no path passes between them: [H, 2, 2]."""
    a, b, c, d = _around(walls)
    at = np.argwhere(_touch_diagonally(a, b, c, d)) + 0.5  # [H, 2]
    return np.stack([at - PINHOLE, at + PINHOLE], axis=1)
