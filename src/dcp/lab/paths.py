"""Shortest paths of a point through a maze: cell by cell, over a fine grid, or exactly.

- `path_lengths`, `steps_from_start`, `farthest_goal`: steps from cell to cell, up, down, left or right;
- `path_distances`: the length to one goal from every point of a fine grid, at most half a percent too long;
- `TruePaths`: exact lengths, first directions and routes between any two points of a maze.
"""

from collections import deque
from functools import cached_property, lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra, shortest_path

from dcp.errors import UserError
from dcp.types import MazeLayout

POINTS_PER_CELL = 16
LONGEST_MOVE = 5  # grid steps along one axis, in one move of a path
FACE = 1e-9  # cells: a path may touch walls
PINHOLE = 1e-6  # cells: the size of the block that closes the corner where two walls touch
CHUNK = 1 << 18  # segments times boxes that are tested together


# Steps from cell to cell.


def steps_from_start(layout: MazeLayout) -> np.ndarray:
    """Count the steps from the nearest start to each cell: [rows, columns], inf if there is no path."""
    return _steps_from(layout, [(i, j) for i, row in enumerate(layout.rows) for j, c in enumerate(row) if c == "r"])


def path_lengths(layout: MazeLayout, starts: np.ndarray, goals: np.ndarray) -> np.ndarray:
    """Measure paths from cell to cell: [N, 2], [N, 2] -> [N] in the maze's units, inf if there is no path."""
    from_cells, to_cells = _cells(layout, starts), _cells(layout, goals)
    steps = {cell: _steps_from(layout, [cell]) for cell in set(from_cells)}
    lengths = [steps[start][goal] for start, goal in zip(from_cells, to_cells, strict=True)]
    return np.asarray(lengths) * layout.scale


def farthest_goal(layout: MazeLayout) -> np.ndarray:
    """Return the centre [2] of the goal cell that is the most steps from any start; the first of equals."""
    goals = layout.cells("g")  # [K, 2]
    rows, columns = np.round(goals / layout.scale).astype(int).T
    reach = steps_from_start(layout)[rows, columns]
    return goals[np.argmax(np.where(np.isinf(reach), -1.0, reach))]


def _cells(layout: MazeLayout, points: np.ndarray) -> list[tuple[int, int]]:
    """Return the cell of each point [N, 2]; for a point outside the maze, the nearest cell."""
    last = np.asarray(layout.walls.shape) - 1
    return [tuple(cell) for cell in np.clip(np.round(points / layout.scale), 0, last).astype(int).tolist()]


def _steps_from(layout: MazeLayout, starts: list[tuple[int, int]]) -> np.ndarray:
    steps, walls = np.full(layout.walls.shape, np.inf), layout.walls
    for start in starts:
        steps[start] = 0
    queue = deque(starts)
    while queue:
        i, j = queue.popleft()
        for neighbour in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
            if not walls[neighbour] and np.isinf(steps[neighbour]):  # a maze is closed: no step leads outside
                steps[neighbour] = steps[i, j] + 1
                queue.append(neighbour)
    return steps


# A fine grid of points.


def grid_axes(layout: MazeLayout, per_cell: int = POINTS_PER_CELL) -> tuple[np.ndarray, np.ndarray]:
    """Return the grid's x [X] and y [Y] from wall to wall. It contains cells' corners, and their centres for an even
    per_cell.

    The maze's free space is every point that is not inside walls (`inside_walls`).
    """
    rows, columns = (layout.scale * (np.arange(n * per_cell + 1) / per_cell - 0.5) for n in layout.walls.shape)
    return rows, columns


def inside_walls(layout: MazeLayout, per_cell: int = POINTS_PER_CELL) -> np.ndarray:
    """Mark the grid points [X, Y] that touch no free cell."""
    return np.logical_and.reduce(_touching(layout, per_cell))


def wall_at(layout: MazeLayout, point: np.ndarray) -> bool:
    """Return whether a point [2] is in a wall, outside, or between two walls' corners. A wall's face is free."""
    at = np.asarray(point, float) / layout.scale + 0.5  # the cell's index, counted from its corner
    if not np.all(np.abs(at) < 1e6):  # nan too
        return True
    rows, columns = (sorted({int(np.ceil(a)) - 1, int(np.floor(a))}) for a in at)
    height, width = layout.walls.shape
    free = [(i, j) for i in rows for j in columns if 0 <= i < height and 0 <= j < width and not layout.walls[i, j]]
    diagonal = len(free) == 2 and all(a != b for a, b in zip(*free, strict=True))
    return not free or diagonal


def require_free(layout: MazeLayout, goal: np.ndarray) -> None:
    """Refuse a goal [2] that is not in a free cell; a wall's face belongs to the free cell next to it."""
    if wall_at(layout, goal):
        where = ", ".join(f"{value:g}" for value in goal)
        last = ", ".join(f"{layout.scale * (n - 1.5):g}" for n in layout.walls.shape)
        raise UserError(
            f"the goal ({where}) lies in a wall: choose x and y in a free cell, from {layout.scale / 2:g} to ({last})"
        )


def path_distances(layout: MazeLayout, goal: np.ndarray, per_cell: int = POINTS_PER_CELL) -> np.ma.MaskedArray:
    """Measure the shortest path to the goal from every grid point [X, Y], in the maze's units.

    A path is made of straight moves between grid points, in every direction (a, b) with |a|, |b| <= 5 grid steps. The
    widest gap between two such directions is atan(1/5), so a straight line is 1 / cos(atan(1/5) / 2) - 1 = 0.5 % too
    long at most, and no path is ever too short. Shortest paths bend at walls' corners, which are points of the grid.
    Masked inside walls and between two walls that touch at a corner; inf if there is no path.
    """
    require_free(layout, goal)
    masked = inside_walls(layout, per_cell) | _closed_corners(layout, per_cell)
    roads, points = _roads(layout, per_cell), masked.size
    ends, lengths = _roads_from(layout, goal, per_cell, masked)
    graph = csr_array(  # the grid's, with the goal as one more point
        (
            np.concatenate([roads.data, lengths]),
            np.concatenate([roads.indices, ends]),
            np.append(roads.indptr, roads.nnz + len(ends)),
        ),
        shape=(points + 1, points + 1),
    )
    lengths_to_goal = dijkstra(graph, directed=False, indices=points)[:points]
    return np.ma.masked_array(lengths_to_goal.reshape(masked.shape), masked)


def _roads_from(
    layout: MazeLayout, goal: np.ndarray, per_cell: int, masked: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of the goal's grid square, as flat indices, and their distances.

    No wall begins inside a square, so a straight line leads to each corner.
    """
    at = (np.asarray(goal, float) / layout.scale + 0.5) * per_cell  # in grid steps
    near, far = np.floor(at + 1e-6).astype(int), np.ceil(at - 1e-6).astype(int)
    corners = [(i, j) for i in {near[0], far[0]} for j in {near[1], far[1]}]
    free = np.array([corner for corner in corners if not masked[corner]])
    lengths = np.linalg.norm(free - at, axis=1) * layout.scale / per_cell
    # A sparse graph reads a length of zero as no edge, so a millionth of a grid step replaces it.
    lengths = np.maximum(lengths, 1e-6 * layout.scale / per_cell)
    return np.asarray(np.ravel_multi_index(tuple(free.T), masked.shape)), lengths


@lru_cache(maxsize=4)
def _roads(layout: MazeLayout, per_cell: int) -> csr_array:
    """Return the length of every free straight move, once each: [points, points]. It is the same for every goal."""
    squares = np.kron(layout.walls, np.ones((per_cell, per_cell), bool))  # [X - 1, Y - 1]: True is wall
    closed = inside_walls(layout, per_cell) | _closed_corners(layout, per_cell)
    index = np.arange(closed.size).reshape(closed.shape)
    starts, ends, lengths = [], [], []
    for a, b in _moves():
        here, there = _ends(closed.shape, a, b)
        is_open = ~closed[here] & ~closed[there] & ~_blocked(squares, a, b)
        starts.append(index[here][is_open])
        ends.append(index[there][is_open])
        lengths.append(np.full(int(is_open.sum()), np.hypot(a, b) * layout.scale / per_cell))
    every = (np.concatenate(lengths), (np.concatenate(starts), np.concatenate(ends)))
    return csr_array(every, shape=(closed.size, closed.size))


def _blocked(squares: np.ndarray, a: int, b: int) -> np.ndarray:
    """Mark the starts from which a move (a, b) passes through a wall. A move along a wall's face does not."""
    if a == 0 or b == 0:  # between two squares: both must be wall
        rim = np.pad(squares, ((0, 0), (1, 1)) if b == 0 else ((1, 1), (0, 0)), constant_values=True)
        return rim[:, :-1] & rim[:, 1:] if b == 0 else rim[:-1] & rim[1:]
    (rows, columns), _ = _ends((squares.shape[0] + 1, squares.shape[1] + 1), a, b)
    blocked = np.zeros((rows.stop, columns.stop - columns.start), bool)
    for i in range(a):
        for j in range(abs(b)):
            if j * a < abs(b) * (i + 1) and (j + 1) * a > abs(b) * i:  # the line crosses this square's inside
                left = columns.start + (j if b > 0 else -j - 1)
                blocked |= squares[i : i + blocked.shape[0], left : left + blocked.shape[1]]
    return blocked


def _closed_corners(layout: MazeLayout, per_cell: int) -> np.ndarray:
    """Mark the grid points [X, Y] where two walls touch at a corner between two free cells: they block paths."""
    up_left, up_right, down_left, down_right = _touching(layout, per_cell)
    return (up_left & down_right & ~up_right & ~down_left) | (up_right & down_left & ~up_left & ~down_right)


def _touching(layout: MazeLayout, per_cell: int) -> list[np.ndarray]:
    """Return whether the cell on each side of a point is a wall: four [X, Y]. Inside a cell all four are that cell."""
    walls = np.pad(layout.walls, 1, constant_values=True)

    def sides(n: int) -> tuple[np.ndarray, np.ndarray]:
        at = np.arange(n * per_cell + 1)
        return (at + per_cell - 1) // per_cell, at // per_cell + 1  # in the padded grid

    rows, columns = sides(layout.walls.shape[0]), sides(layout.walls.shape[1])
    return [walls[np.ix_(i, j)] for i in rows for j in columns]


def _moves() -> list[tuple[int, int]]:
    """Return each direction once, without its opposite; no move passes through another grid point."""
    span = range(-LONGEST_MOVE, LONGEST_MOVE + 1)
    return [(a, b) for a in range(LONGEST_MOVE + 1) for b in span if gcd(a, b) == 1 and (a > 0 or b > 0)]


def _ends(shape: tuple[int, ...], a: int, b: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Return where a move (a, b) with a >= 0 may start, and where it ends."""
    x, y = shape
    low, high = max(0, -b), y - max(0, b)
    return (slice(0, x - a), slice(low, high)), (slice(a, x), slice(low + b, high + b))


# Exact paths between any two points.


class Route(NamedTuple):
    """Hold a path from one point to another; empty if there is none."""

    points: np.ndarray  # [bends + 2, 2]

    def at(self, share: float) -> np.ndarray:
        """Return the point [2] after this share of the path."""
        lengths = np.linalg.norm(np.diff(self.points, axis=0), axis=1)
        along = np.append(0.0, np.cumsum(lengths))
        return np.stack([np.interp(share * along[-1], along, axis) for axis in self.points.T])


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
        """Return whether the straight line between two points avoids all walls: [K, 2], [K, 2] -> [K]."""
        step = max(1, CHUNK // len(self.boxes))
        parts = [_free(a[i : i + step], b[i : i + step], self.boxes) for i in range(0, len(a), step)]
        return np.concatenate(parts) if parts else np.zeros(0, bool)

    def lengths(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Measure paths: [K, 2], [K, 2] -> [K]; inf if there is no path, such as from inside a wall."""
        return self._first(np.asarray(a, float), np.asarray(b, float))[0]

    def directions(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the unit vectors [K, 2] at a along the shortest paths to b; nan if a = b or there is no path."""
        routes = self.routes(a, b)
        ways = np.full((len(routes), 2), np.nan)
        for i, route in enumerate(routes):
            ahead = route.points - np.asarray(a[i], float)
            far = np.linalg.norm(ahead, axis=1)
            if np.any(far > 1e-9):  # the first bend may be at a itself
                first = np.argmax(far > 1e-9)
                ways[i] = ahead[first] / far[first]
        return ways

    def routes(self, a: np.ndarray, b: np.ndarray) -> list[Route]:
        """Return the shortest paths: [K, 2], [K, 2] -> K routes."""
        a, b = np.asarray(a, float), np.asarray(b, float)
        return [self._route(*each) for each in zip(a, b, *self._first(a, b), strict=True)]

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
        """Return lengths [K], and the corners of the first and the last bend [K]; -1 if the path is straight."""
        straight = np.where(self.sees(a, b), np.linalg.norm(a - b, axis=1), np.inf)  # [K]
        none = np.full(len(a), -1)
        if not len(self.corners):
            return straight, none, none
        through = self._direct(a, self.corners)[:, :, None] + self._between[0][None]  # [K, C, C]: through each corner
        first = through.argmin(axis=1)  # [K, C]: the best first bend, for each last one
        by_last = np.take_along_axis(through, first[:, None], axis=1)[:, 0] + self._direct(b, self.corners)  # [K, C]
        last = by_last.argmin(axis=1)  # [K]
        bent = by_last[np.arange(len(a)), last]
        is_bent = bent < straight
        first = first[np.arange(len(a)), last]
        return np.minimum(bent, straight), np.where(is_bent, first, none), np.where(is_bent, last, none)

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
    at = np.argwhere((a & d & ~b & ~c) | (b & c & ~a & ~d)) + 0.5  # [H, 2]
    return np.stack([at - PINHOLE, at + PINHOLE], axis=1)
