"""Exact shortest paths, held against paths measured by hand and against the fine grid's."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.envs.fine_grid import grid_axes, path_distances
from dcp.envs.layouts import BIG, HARDEST, U
from dcp.envs.maze import parse_layout
from dcp.envs.true_paths import TruePaths

PINHOLE = parse_layout("#####\n#rg##\n#.#g#\n##..#\n#####", 1.0)


@pytest.mark.parametrize(
    ("start", "goal", "bends"),
    [
        ((1.0, 1.0), (3.0, 1.0), [(1.5, 2.5), (2.5, 2.5)]),  # around the wall's end
        ((2.0, 3.0), (3.0, 1.0), [(2.5, 2.5)]),
        ((3.0, 3.0), (3.0, 1.0), []),  # in sight
        ((1.5, 1.0), (1.5, 3.0), []),  # along a wall's face
        ((1.5, 2.5), (3.0, 1.0), [(2.5, 2.5)]),  # from a corner
    ],
)
def test_a_path_is_straight_but_for_corners(start, goal, bends):
    for scale in (1.0, 4.0):
        paths = TruePaths(parse_layout(U, scale))
        points = scale * np.array([start, *bends, goal])
        a, b = points[:1], points[-1:]
        assert_allclose(paths.lengths(a, b), np.linalg.norm(np.diff(points, axis=0), axis=1).sum())
        assert_allclose(paths.lengths(b, a), paths.lengths(a, b))
        first = (points[1] - points[0]) / np.linalg.norm(points[1] - points[0])
        assert_allclose(paths.directions(a, b)[0], first, atol=1e-9)


@pytest.mark.parametrize("text", [U, BIG, HARDEST])
def test_no_path_of_the_fine_grid_is_shorter_and_none_half_a_percent_longer(text):
    layout = parse_layout(text, 1.0)
    goal = layout.cells("g")[-1].astype(float)
    grid = path_distances(layout, goal, per_cell=4)
    x, y = grid_axes(layout, 4)
    at = np.argwhere(np.isfinite(grid.filled(np.inf)))[::7]
    points = np.stack([x[at[:, 0]], y[at[:, 1]]], axis=1)
    exact = TruePaths(layout).lengths(points, np.tile(goal, (len(points), 1)))
    ratio = grid.data[tuple(at.T)][exact > 0.0] / exact[exact > 0.0]
    assert ratio.min() > 1.0 - 1e-5 and ratio.max() < 1.005


def test_the_share_of_a_way_is_measured_along_it():
    """Legs of 1.5811, 1 and 1.5811: half of 4.1623 is the middle of the wall's end."""
    route = TruePaths(parse_layout(U, 1.0)).routes(np.array([[1.0, 1.0]]), np.array([[3.0, 1.0]]))[0]
    assert_allclose(route.at(0.5), [2.0, 2.5])
    assert_allclose(route.at(0.0), [1.0, 1.0])
    assert_allclose(route.at(1.0), [3.0, 1.0])


def test_nothing_passes_between_two_walls_that_touch_at_a_corner():
    paths = TruePaths(PINHOLE)
    a, b = np.array([[1.0, 2.0]]), np.array([[2.0, 3.0]])  # the straight line leads through the corner (1.5, 2.5)
    assert not paths.sees(a, b).any()
    assert paths.lengths(a, b) == np.inf
    assert len(paths.routes(a, b)[0].points) == 0 and np.isnan(paths.directions(a, b)).all()


def test_no_way_leads_along_the_seam_of_two_walls_or_from_inside_of_one():
    paths = TruePaths(parse_layout("#####\n#r#g#\n#.#.#\n#...#\n#####", 1.0))
    assert not paths.sees(np.array([[1.5, 1.0]]), np.array([[1.5, 3.0]])).any()  # between (1, 2) and (2, 2)
    assert paths.lengths(np.array([[1.0, 2.0]]), np.array([[1.0, 1.0]])) == np.inf
    assert_allclose(paths.lengths(np.array([[1.0, 1.0]]), np.array([[1.0, 3.0]])), 1.0 + 2 * np.hypot(1.5, 0.5))
