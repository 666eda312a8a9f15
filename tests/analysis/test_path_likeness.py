import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from dcp.analysis.path_likeness import basin, leads_nearer, likeness, rank_correlation, straight_line, true_landscape
from dcp.envs.layouts import BIG, U
from dcp.envs.maze import parse_layout

GOAL = np.array([3.0, 1.0])
MAZE = parse_layout(U, 1.0)


@pytest.fixture(scope="module")
def truth():
    return true_landscape(MAZE, GOAL)


def field(values):
    return np.ma.masked_invalid(np.asarray(values, float))


def test_ranks_by_hand():
    # 1 - 6 * sum(d^2) / (n (n^2 - 1)), ranks 1 2 3 4 against 1 3 2 4: d^2 = 0 1 1 0
    assert_allclose(rank_correlation(field([10, 20, 30, 40]), field([1, 9, 4, 100])), 1 - 6 * 2 / (4 * 15))


def test_ties_share_their_rank_as_in_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 6, (2, 30, 7)).astype(float)
    b[3] = np.nan  # walls
    expected = stats.spearmanr(np.delete(a, 3, axis=0).ravel(), np.delete(b, 3, axis=0).ravel()).statistic
    assert_allclose(rank_correlation(field(a), field(b)), expected)


def test_points_that_no_path_leads_from_do_not_count():
    assert_allclose(rank_correlation(field([1, 2, 3, 0]), np.ma.masked_array([5.0, 6.0, 7.0, np.inf])), 1.0)


def test_a_field_without_an_order_has_no_correlation():
    assert np.isnan(rank_correlation(field([1, 1, 1]), field([1, 2, 3])))


def test_the_truth_is_like_itself(truth):
    assert_allclose(likeness(truth.landscape.distance, truth.directions, truth, 0.125), (1.0, 1.0, 1.0))


def test_the_shortest_way_at_the_start_leads_to_the_wall_s_end(truth):
    at = np.argmin(np.linalg.norm(truth.points - [1.125, 1.125], axis=1))
    assert_allclose(truth.points[at], [1.125, 1.125])
    to_corner = np.array([1.5, 2.5]) - truth.points[at]
    assert_allclose(truth.directions[at], to_corner / np.linalg.norm(to_corner), atol=0.1)


def test_directions_lead_nearer_or_away(truth):
    assert leads_nearer(truth.directions, truth).all()
    assert not leads_nearer(-truth.directions, truth).any()
    assert_array_equal(len(truth.points), 7 * 16)  # free cells, four by four
    assert (
        len(true_landscape(parse_layout(BIG, 1.0), np.array([1.0, 2.0])).points) == 26 * 4
    )  # a large maze: two by two


def test_a_straight_line_s_basin_ends_at_the_wall(truth):
    """Going straight for g from the upper corridor ends at the wall's face above g, where nothing is nearer."""
    x, y = truth.landscape.x, truth.landscape.y
    gaps = np.ma.masked_array(np.hypot(x[:, None] - 3.0, y[None, :] - 1.0), truth.landscape.distance.mask)
    inside = basin(gaps, truth, 0.125)

    def there(point):
        return inside[np.argmin(np.abs(x - point[0])), np.argmin(np.abs(y - point[1]))]

    assert there((3.0, 3.0))
    assert there((2.0, 3.0))  # down the right side of the wall, and along
    assert not there((1.0, 1.0))
    assert not there((1.5, 1.0))
    assert not inside[truth.landscape.distance.mask].any()
    assert 0.5 < straight_line(truth, 0.125).basin < 0.75


def test_a_local_minimum_that_is_no_goal_keeps_its_basin(truth):
    x, y = truth.landscape.x, truth.landscape.y
    elsewhere = np.ma.masked_array(np.hypot(x[:, None] - 1.0, y[None, :] - 1.0), truth.landscape.distance.mask)
    assert not basin(elsewhere, truth, 0.125).any()
    assert_allclose(likeness(-truth.landscape.distance, -truth.directions, truth, 0.125), (-1.0, 0.0, 0.0), atol=1e-9)
