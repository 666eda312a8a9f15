"""Shortest paths on a maze's grid: how far a goal really is."""

from collections import deque

import numpy as np

from dcp.types import MazeLayout


def steps_from_start(layout: MazeLayout) -> np.ndarray:
    """[rows, columns]: cells to walk from the nearest start, up, down, left or right; inf where no path leads."""
    steps = np.full(layout.walls.shape, np.inf)
    starts = [(i, j) for i, row in enumerate(layout.rows) for j, cell in enumerate(row) if cell == "r"]
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
