"""A maze's free space as a fine grid of points, and the true length of the shortest path from each to a goal."""

from functools import lru_cache
from math import gcd

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from dcp.errors import UserError
from dcp.types import MazeLayout

POINTS_PER_CELL = 16
LONGEST_MOVE = 5  # grid steps along one axis, in one move of a path


def grid_axes(layout: MazeLayout, per_cell: int = POINTS_PER_CELL) -> tuple[np.ndarray, np.ndarray]:
    """x [X], y [Y]: from wall to wall. Cells' corners are points; so are their centres, if `per_cell` is even."""
    rows, columns = (layout.scale * (np.arange(n * per_cell + 1) / per_cell - 0.5) for n in layout.walls.shape)
    return rows, columns


def inside_walls(layout: MazeLayout, per_cell: int = POINTS_PER_CELL) -> np.ndarray:
    """[X, Y]: True where every cell that touches the point is a wall, or lies outside."""
    return np.logical_and.reduce(_touching(layout, per_cell))


def wall_at(layout: MazeLayout, point: np.ndarray) -> bool:
    """Whether a point [2] lies in a wall or outside, or between two walls' corners; on a wall's face it is free."""
    at = np.asarray(point, float) / layout.scale + 0.5  # the cell's index, from its corner on
    if not np.all(np.abs(at) < 1e6):  # nan too
        return True
    rows, columns = (sorted({int(np.ceil(a)) - 1, int(np.floor(a))}) for a in at)
    height, width = layout.walls.shape
    free = [(i, j) for i in rows for j in columns if 0 <= i < height and 0 <= j < width and not layout.walls[i, j]]
    diagonal = len(free) == 2 and all(a != b for a, b in zip(*free, strict=True))
    return not free or diagonal


def path_distances(layout: MazeLayout, goal: np.ndarray, per_cell: int = POINTS_PER_CELL) -> np.ma.MaskedArray:
    """[X, Y]: how long the shortest way to the goal is for a point without size, in the maze's units.

    A path is made of straight moves between grid points, in every direction (a, b) with |a|, |b| <= 5 grid steps. The
    widest gap between two such directions is atan(1/5), so a straight line is 1 / cos(atan(1/5) / 2) - 1 = 0.5 % too
    long at most, and no path is ever too short. Shortest paths bend at walls' corners, which are points of the grid.
    Masked inside walls and between two walls that touch at a corner; inf where no path leads.
    """
    require_free(layout, goal)
    masked = inside_walls(layout, per_cell) | _pinholes(layout, per_cell)
    roads = _roads(layout, per_cell)
    graph = _with_source(roads, masked.size, *_ways_from(layout, goal, per_cell, masked))
    found = dijkstra(graph, directed=False, indices=masked.size)[: masked.size]
    return np.ma.masked_array(found.reshape(masked.shape), masked)


def require_free(layout: MazeLayout, goal: np.ndarray) -> None:
    """A goal [2] must lie in a free cell; a wall's face belongs to the free cell beside it."""
    if wall_at(layout, goal):
        where = ", ".join(f"{value:g}" for value in goal)
        last = ", ".join(f"{layout.scale * (n - 1.5):g}" for n in layout.walls.shape)
        raise UserError(
            f"the goal ({where}) lies in a wall: choose x and y in a free cell, from {layout.scale / 2:g} to ({last})"
        )


def _with_source(roads: csr_array, points: int, ways: np.ndarray, lengths: np.ndarray) -> csr_array:
    """The grid's graph with one more point, from which `ways` lead to points of the grid."""
    indptr = np.append(roads.indptr, roads.nnz + len(ways))
    indices = np.concatenate([roads.indices, ways])
    return csr_array((np.concatenate([roads.data, lengths]), indices, indptr), shape=(points + 1, points + 1))


def _ways_from(
    layout: MazeLayout, goal: np.ndarray, per_cell: int, masked: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The corners of the goal's own grid square, as flat indices, and how far they are. No wall begins inside of a
    square, so a straight line leads to each."""
    at = (np.asarray(goal, float) / layout.scale + 0.5) * per_cell  # in grid steps
    near, far = np.floor(at + 1e-6).astype(int), np.ceil(at - 1e-6).astype(int)
    corners = [(i, j) for i in {near[0], far[0]} for j in {near[1], far[1]}]
    free = np.array([corner for corner in corners if not masked[corner]])
    lengths = np.linalg.norm(free - at, axis=1) * layout.scale / per_cell
    # A sparse graph takes a length of zero for no road: one millionth of a grid step stands for it.
    lengths = np.maximum(lengths, 1e-6 * layout.scale / per_cell)
    return np.asarray(np.ravel_multi_index(tuple(free.T), masked.shape)), lengths


@lru_cache(maxsize=4)
def _roads(layout: MazeLayout, per_cell: int) -> csr_array:
    """[points, points]: every free straight move, once, with its length. The same for every goal."""
    squares = np.kron(layout.walls, np.ones((per_cell, per_cell), bool))  # [X - 1, Y - 1]: True is wall
    shape = (squares.shape[0] + 1, squares.shape[1] + 1)
    closed = inside_walls(layout, per_cell) | _pinholes(layout, per_cell)
    index = np.arange(closed.size).reshape(shape)
    starts, ends, lengths = [], [], []
    for a, b in _moves():
        here, there = _ends(shape, a, b)
        open_ = ~closed[here] & ~closed[there] & ~_blocked(squares, a, b)
        starts.append(index[here][open_])
        ends.append(index[there][open_])
        lengths.append(np.full(int(open_.sum()), np.hypot(a, b) * layout.scale / per_cell))
    every = (np.concatenate(lengths), (np.concatenate(starts), np.concatenate(ends)))
    return csr_array(every, shape=(closed.size, closed.size))


def _moves() -> list[tuple[int, int]]:
    """Each direction once, without its opposite; no move passes over a grid point."""
    reach = range(-LONGEST_MOVE, LONGEST_MOVE + 1)
    return [(a, b) for a in range(LONGEST_MOVE + 1) for b in reach if gcd(a, b) == 1 and (a > 0 or b > 0)]


def _ends(shape: tuple[int, ...], a: int, b: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Where a move (a, b) with a >= 0 may start, and where it then ends."""
    x, y = shape
    low, high = max(0, -b), y - max(0, b)
    return (slice(0, x - a), slice(low, high)), (slice(a, x), slice(low + b, high + b))


def _blocked(squares: np.ndarray, a: int, b: int) -> np.ndarray:
    """For every start of a move (a, b): whether it passes through a wall. Along a wall's face it does not."""
    if a == 0 or b == 0:  # between two squares: both must be wall
        rim = np.pad(squares, ((0, 0), (1, 1)) if b == 0 else ((1, 1), (0, 0)), constant_values=True)
        return rim[:, :-1] & rim[:, 1:] if b == 0 else rim[:-1] & rim[1:]
    (rows, columns), _ = _ends((squares.shape[0] + 1, squares.shape[1] + 1), a, b)
    found = np.zeros((rows.stop, columns.stop - columns.start), bool)
    for i in range(a):
        for j in range(abs(b)):
            if j * a < abs(b) * (i + 1) and (j + 1) * a > abs(b) * i:  # the line crosses this square's inside
                left = columns.start + (j if b > 0 else -j - 1)
                found |= squares[i : i + found.shape[0], left : left + found.shape[1]]
    return found


def _pinholes(layout: MazeLayout, per_cell: int) -> np.ndarray:
    """[X, Y]: True where two walls touch at a corner with free cells on either side: no body passes there."""
    up_left, up_right, down_left, down_right = _touching(layout, per_cell)
    return (up_left & down_right & ~up_right & ~down_left) | (up_right & down_left & ~up_left & ~down_right)


def _touching(layout: MazeLayout, per_cell: int) -> list[np.ndarray]:
    """Four [X, Y]: whether the cell on each side of a point is a wall. Inside a cell all four are that cell."""
    walls = np.pad(layout.walls, 1, constant_values=True)

    def sides(n: int) -> tuple[np.ndarray, np.ndarray]:
        at = np.arange(n * per_cell + 1)
        return (at + per_cell - 1) // per_cell, at // per_cell + 1  # in the padded grid

    rows, columns = sides(layout.walls.shape[0]), sides(layout.walls.shape[1])
    return [walls[np.ix_(i, j)] for i in rows for j in columns]
