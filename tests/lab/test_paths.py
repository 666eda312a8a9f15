"""Shortest paths, held against paths that were measured by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dcp.envs.mazes import BIG, HARDEST, U, parse_layout
from dcp.errors import UserError
from dcp.lab.paths import (
    TruePaths,
    along,
    cell_points,
    grid_points,
    require_free,
    wall_at,
)


def test_a_path_in_the_big_maze_by_hand():
    # (1, 1) to the corner (2.5, 2.5) of block (2, 3), past block (4, 3) at (3.5, 4.0) to the corner (4.5, 5.5) of
    # block (5, 5), and on to (6, 6)
    pieces = np.diff([(1.0, 1.0), (2.5, 2.5), (4.5, 5.5), (6.0, 6.0)], axis=0)
    lengths = TruePaths(parse_layout(BIG, 1.0)).lengths(np.array([[1.0, 1.0]]), np.array([[6.0, 6.0]]))
    assert_allclose(lengths, [np.linalg.norm(pieces, axis=1).sum()])


def test_one_goal_serves_many_points():
    layout = parse_layout(HARDEST, 1.0)
    points, goal = cell_points(layout, 2), np.array([[7.0, 10.0]])
    paths = TruePaths(layout)
    assert_allclose(paths.lengths(points, goal), paths.lengths(points, np.repeat(goal, len(points), axis=0)))


def test_walls_are_marked_and_their_faces_are_free():
    layout = parse_layout("#####\n#rg##\n#####", 1.0)
    expected = np.ones((7, 11), bool)
    expected[2:5, 2:7] = False  # x from 0.5 to 1.5, y from 0.5 to 2.5
    assert_array_equal(wall_at(layout, grid_points(layout, per_cell=2)), expected)
    assert_array_equal(
        cell_points(layout, 2),
        [
            [0.75, 0.75],
            [0.75, 1.25],
            [0.75, 1.75],
            [0.75, 2.25],
            [1.25, 0.75],
            [1.25, 1.25],
            [1.25, 1.75],
            [1.25, 2.25],
        ],
    )


@pytest.mark.parametrize("goal", [(2.0, 1.0), (0.0, 1.0), (-9.0, 1.0), (1.0, 99.0), (np.nan, 1.0)])
def test_a_goal_in_a_wall_or_outside_is_a_mistake(goal):
    with pytest.raises(UserError, match="lies in a wall"):
        require_free(parse_layout(U, 1.0), np.array(goal))


def test_a_wall_s_face_is_free():
    layout = parse_layout(U, 4.0)
    assert not wall_at(layout, np.array([6.0, 4.0]))  # the floor of the upper corridor
    assert wall_at(layout, np.array([6.01, 4.0]))


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


def test_the_share_of_a_way_is_measured_along_it():
    """Legs of 1.5811, 1 and 1.5811: half of 4.1623 is the middle of the wall's end."""
    route = TruePaths(parse_layout(U, 1.0)).routes(np.array([[1.0, 1.0]]), np.array([[3.0, 1.0]]))[0]
    assert_allclose(along(route, 0.5), [2.0, 2.5])
    assert_allclose(along(route, 0.0), [1.0, 1.0])
    assert_allclose(along(route, 1.0), [3.0, 1.0])


def test_nothing_passes_between_two_walls_that_touch_at_a_corner():
    assert wall_at(PINHOLE, np.array([1.5, 2.5]))
    paths = TruePaths(PINHOLE)
    a, b = np.array([[1.0, 2.0]]), np.array([[2.0, 3.0]])  # the straight line leads through the corner (1.5, 2.5)
    assert not paths.sees(a, b).any()
    assert paths.lengths(a, b) == np.inf
    assert len(paths.routes(a, b)[0]) == 0 and np.isnan(paths.directions(a, b)).all()


def test_no_way_leads_along_the_seam_of_two_walls_or_from_inside_of_one():
    paths = TruePaths(parse_layout("#####\n#r#g#\n#.#.#\n#...#\n#####", 1.0))
    assert not paths.sees(np.array([[1.5, 1.0]]), np.array([[1.5, 3.0]])).any()  # between (1, 2) and (2, 2)
    assert paths.lengths(np.array([[1.0, 2.0]]), np.array([[1.0, 1.0]])) == np.inf
    assert_allclose(paths.lengths(np.array([[1.0, 1.0]]), np.array([[1.0, 3.0]])), 1.0 + 2 * np.hypot(1.5, 0.5))
