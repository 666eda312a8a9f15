"""Shortest paths, held against paths that were measured by hand and against each other."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dcp.envs.mazes import BIG, BIG_EVAL, HARDEST, U_EVAL, U, parse_layout
from dcp.errors import UserError
from dcp.lab.paths import (
    TruePaths,
    _blocked,
    _ends,
    _moves,
    farthest_goal,
    grid_axes,
    inside_walls,
    path_distances,
    steps_from_start,
    wall_at,
)

W = np.inf  # a wall


def test_steps_in_the_u_maze_by_hand():
    assert_array_equal(
        steps_from_start(parse_layout(U, 1.0)),
        [[W, W, W, W, W], [W, 0, 1, 2, W], [W, W, W, 3, W], [W, 6, 5, 4, W], [W, W, W, W, W]],
    )


def test_the_far_goal_of_the_u_maze_is_the_other_end():
    assert_array_equal(farthest_goal(parse_layout(U, 4.0)), [12.0, 4.0])
    assert_array_equal(farthest_goal(parse_layout(U_EVAL, 1.0)), [3.0, 1.0])


def test_the_far_goal_of_the_big_maze_lies_behind_the_last_block():
    # (1,1) down to (2,2), (3,2) to (3,4), (4,4) to (4,6), down to (6,6), back to (6,5): 3 + 2 + 3 + 2 + 1
    layout = parse_layout(BIG_EVAL, 1.0)
    assert_array_equal(farthest_goal(layout), [6.0, 5.0])
    assert steps_from_start(layout)[6, 5] == 11


def test_a_goal_that_no_path_leads_to_is_not_chosen():
    layout = parse_layout("#######\n#rg#gg#\n#######", 1.0)
    assert_array_equal(farthest_goal(layout), [1.0, 2.0])
    assert steps_from_start(layout)[1, 5] == np.inf


ROOM = parse_layout("######\n#r...#\n#....#\n#....#\n#...g#\n######", 1.0)
SLACK = 1.005  # the widest gap between two moves is atan(1/5): 1 / cos(atan(1/5) / 2) = 1.0049


def at(layout, point, lengths, per_cell=16):
    x, y = grid_axes(layout, per_cell)
    i, j = np.argmin(np.abs(x - point[0])), np.argmin(np.abs(y - point[1]))
    assert_allclose([x[i], y[j]], point, atol=1e-9)
    return lengths[i, j]


def test_a_straight_line_is_never_too_short_and_half_a_percent_too_long_at_most():
    lengths = path_distances(ROOM, np.array([1.0, 1.0]))
    x, y = grid_axes(ROOM)
    straight = np.hypot(x[:, None] - 1.0, y[None, :] - 1.0)
    free = ~inside_walls(ROOM) & (straight > 0.0)
    ratio = lengths[free] / straight[free]
    assert ratio.min() > 1.0 - 1e-6
    assert 1.004 < ratio.max() < SLACK  # the bound is reached: it is this neighbourhood's own


@pytest.mark.parametrize(
    ("start", "goal", "by_hand"),
    [
        # around the wall's end, whose corners are (1.5, 2.5) and (2.5, 2.5): there, along its face, and on
        ((1.0, 1.0), (3.0, 1.0), 2 * np.hypot(0.5, 1.5) + 1.0),
        ((1.0, 2.0), (3.0, 1.0), np.hypot(0.5, 0.5) + 1.0 + np.hypot(0.5, 1.5)),
        ((2.0, 3.0), (3.0, 1.0), np.hypot(0.5, 0.5) + np.hypot(0.5, 1.5)),  # one corner
        ((3.0, 3.0), (3.0, 1.0), 2.0),  # in sight
        ((1.25, 0.6875), (2.75, 1.4375), np.hypot(0.25, 1.8125) + 1.0 + np.hypot(0.25, 1.0625)),
    ],
)
def test_paths_in_the_u_maze_bend_at_its_corners(start, goal, by_hand):
    for scale in (1.0, 4.0):
        layout = parse_layout(U, scale)
        found = at(layout, scale * np.array(start), path_distances(layout, scale * np.array(goal)))
        assert scale * by_hand - 1e-5 <= found <= SLACK * scale * by_hand


def test_a_path_in_the_big_maze_by_hand():
    # (1, 1) to the corner (2.5, 2.5) of block (2, 3), past block (4, 3) at (3.5, 4.0) to the corner (4.5, 5.5) of
    # block (5, 5), and on to (6, 6)
    pieces = np.diff([(1.0, 1.0), (2.5, 2.5), (4.5, 5.5), (6.0, 6.0)], axis=0)
    by_hand = np.linalg.norm(pieces, axis=1).sum()
    layout = parse_layout(BIG, 1.0)
    found = at(layout, (1.0, 1.0), path_distances(layout, np.array([6.0, 6.0])))
    assert by_hand - 1e-5 <= found <= SLACK * by_hand


def test_no_path_leads_between_two_walls_that_touch_at_a_corner():
    layout = parse_layout("#####\n#r#.#\n#.#.#\n#..##\n##.g#\n#####", 1.0)
    assert wall_at(layout, np.array([2.5, 2.5]))
    lengths = path_distances(layout, np.array([4.0, 3.0]))
    assert np.isinf(at(layout, (1.0, 3.0), lengths))
    assert at(layout, (2.5, 2.5), lengths) is np.ma.masked
    assert np.isfinite(at(layout, (1.0, 1.0), lengths))


def test_a_finer_grid_changes_no_length_by_more_than_its_bound():
    layout = parse_layout(HARDEST, 1.0)
    coarse, fine = (path_distances(layout, np.array([7.0, 10.0]), n) for n in (8, 16))
    shared = fine[::2, ::2]
    far = (np.isfinite(shared) & (shared > 0.25)).filled(False)
    assert np.abs(coarse[far] / shared[far] - 1.0).max() < 0.005
    assert_array_equal(np.ma.getmaskarray(coarse), np.ma.getmaskarray(shared))


def test_a_goal_between_grid_points_is_reached_from_them_in_a_straight_line():
    goal = np.array([2.03, 2.41])
    lengths = path_distances(ROOM, goal)
    for point in ((2.0, 2.4375), (1.0, 1.0), (4.0, 3.0)):
        straight = np.hypot(*(goal - point))
        assert straight - 1e-9 <= at(ROOM, point, lengths) <= SLACK * straight + 1 / 16


def test_walls_are_masked_and_their_faces_are_free():
    masked = inside_walls(parse_layout("#####\n#rg##\n#####", 1.0), per_cell=2)
    expected = np.ones((7, 11), bool)
    expected[2:5, 2:7] = False  # x from 0.5 to 1.5, y from 0.5 to 2.5
    assert_array_equal(masked, expected)


@pytest.mark.parametrize("goal", [(2.0, 1.0), (0.0, 1.0), (-9.0, 1.0), (1.0, 99.0), (np.nan, 1.0)])
def test_a_goal_in_a_wall_or_outside_is_a_mistake(goal):
    with pytest.raises(UserError, match="lies in a wall"):
        path_distances(parse_layout(U, 1.0), np.array(goal))


def test_a_wall_s_face_is_free():
    layout = parse_layout(U, 4.0)
    assert not wall_at(layout, np.array([6.0, 4.0]))  # the floor of the upper corridor
    assert wall_at(layout, np.array([6.01, 4.0]))


def test_a_move_is_blocked_exactly_where_its_line_enters_a_wall():
    """Against points sampled along every move over random walls."""
    squares = np.random.default_rng(0).random((9, 11)) < 0.3
    along = (np.arange(600) + 0.4137) / 600  # never on a grid line
    for a, b in [(a, b) for a, b in _moves() if a and b]:
        (rows, columns), _ = _ends((10, 12), a, b)
        starts = np.stack(np.mgrid[rows, columns], axis=-1)  # [I, J, 2]
        passed = np.floor(starts[:, :, None] + along[:, None] * (a, b)).astype(int)  # [I, J, 600, 2]
        expected = squares[passed[..., 0], passed[..., 1]].any(axis=-1)
        assert_array_equal(_blocked(squares, a, b), expected)


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
