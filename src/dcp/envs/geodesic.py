"""Shortest paths on a maze's grid: how far a goal really is."""

from collections import deque

import numpy as np

from dcp.types import MazeLayout


def steps_from_start(layout: MazeLayout) -> np.ndarray:
    """[rows, columns]: cells to walk from the nearest start, up, down, left or right; inf where no path leads."""
    return _steps_from(layout, [(i, j) for i, row in enumerate(layout.rows) for j, c in enumerate(row) if c == "r"])


def path_lengths(layout: MazeLayout, starts: np.ndarray, goals: np.ndarray) -> np.ndarray:
    """[N, 2], [N, 2] -> [N]: from cell to cell, in the maze's units; inf where no path leads."""
    from_cells, to_cells = _cells(layout, starts), _cells(layout, goals)
    steps = {cell: _steps_from(layout, [cell]) for cell in set(from_cells)}
    found = [steps[start][goal] for start, goal in zip(from_cells, to_cells, strict=True)]
    return np.asarray(found) * layout.scale


def _cells(layout: MazeLayout, points: np.ndarray) -> list[tuple[int, int]]:
    """The cell of each point [N, 2]; of one beyond the maze, the nearest."""
    last = np.asarray(layout.walls.shape) - 1
    return [tuple(cell) for cell in np.clip(np.round(points / layout.scale), 0, last).astype(int).tolist()]


def _steps_from(layout: MazeLayout, starts: list[tuple[int, int]]) -> np.ndarray:
    steps = np.full(layout.walls.shape, np.inf)
    for start in starts:
        steps[start] = 0
    queue = deque(starts)
    while queue:
        i, j = queue.popleft()
        for neighbour in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
            if not layout.walls[neighbour] and np.isinf(steps[neighbour]):  # a maze is closed: no step leads outside
                steps[neighbour] = steps[i, j] + 1
                queue.append(neighbour)
    return steps


def farthest_goal(layout: MazeLayout) -> np.ndarray:
    """[2]: centre of the goal cell with the longest shortest path from a start; the first one among equals."""
    steps = steps_from_start(layout)
    goals = layout.cells("g")  # [K, 2]
    rows, columns = np.round(goals / layout.scale).astype(int).T
    reach = steps[rows, columns]
    return goals[np.argmax(np.where(np.isinf(reach), -1.0, reach))]
