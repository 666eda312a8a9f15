"""Measures of three episodes of four steps that are written down by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from dcp.evaluation import Record, measure, training_scores
from dcp.lab.trial import by_distance, estimates

YES, NO = True, False
# Episode 0 reaches at its second step and leaves; 1 reaches at its last; 2 ends after two steps and never reaches.
NEAR = np.array([[NO, NO, NO], [YES, NO, NO], [YES, NO, NO], [NO, YES, NO]])  # [T, N]
ALIVE = np.array([[YES, YES, YES], [YES, YES, YES], [YES, YES, NO], [YES, YES, NO]])
DIVERGED = np.array([[NO, NO, NO], [NO, NO, NO], [NO, NO, YES], [NO, NO, NO]])
DISTANCE = np.array([[4.0, 8.0, 5.0], [2.0, 6.0, 4.0], [0.4, 4.0, 3.0], [0.3, 2.0, 3.0], [1.0, 0.2, 3.0]])  # [T + 1, N]
SATURATED = np.array([[1.0, 0.0, 0.5], [1.0, 0.0, 1.0], [0.0, 0.5, 1.0], [0.0, 0.5, 1.0]])
# [T, N, A]: episode 0 flips both components at each step, 1 one of two once, over a zero; 2 flips one, then ends.
SIGNS = np.array(
    [[[1, 1], [1, 1], [1, 1]], [[-1, -1], [0, 1], [-1, 1]], [[1, 1], [-1, 1], [1, -1]], [[-1, -1], [-1, 1], [-1, 1]]]
)


@pytest.fixture
def measures():
    return measure(Record(np.zeros((3, 4)), DISTANCE, NEAR, ALIVE, DIVERGED, SATURATED, SIGNS))


def test_each_measure_by_hand(measures):
    assert_array_equal(measures.time_near_goal, [2, 1, 0])
    assert_array_equal(measures.first_reach, [2, 4, 0])
    assert_array_equal(measures.success, [True, True, False])
    assert_allclose(measures.final_distance, [1.0, 0.2, 3.0])
    assert_allclose(measures.start_distance, [4.0, 8.0, 5.0])
    assert_allclose(measures.saturation, [0.5, 0.25, 0.75])  # the last: two steps that count
    assert_allclose(measures.action_flips, [1.0, 0.5 / 3, 0.5])  # the last: of its one pair of steps
    assert_array_equal(measures.diverged, [False, False, True])
    assert_array_equal(measures.steps, [4, 4, 2])
    assert_allclose(measures.cumulative_reach, [0.0, 1 / 3, 1 / 3, 2 / 3])


def test_one_number_each(measures):
    summary = measures.summary()
    assert summary["time_near_goal"] == 1.0
    assert_allclose(summary["success_once"], 2 / 3)
    assert_allclose(summary["final_distance"], 1.4)
    assert summary["eval_diverged_episodes"] == 1
    assert_allclose(summary["saturation"], 4.5 / 10)  # over the ten steps that count: 2 + 1 + 1.5
    assert_allclose(summary["action_flips"], (3 + 0.5 + 0.5) / 7)  # over the pairs of steps that count: 3 + 3 + 1
    assert summary["median_first_reach"] == 3.0
    assert {name: summary[name] for name in training_scores(measures)} == training_scores(measures)


def test_an_estimate_of_saturation_is_the_mean_over_steps_as_in_the_summary(measures):
    """Ratio of sums: residuals 4 (.5 - .45), 4 (.25 - .45), 2 (.75 - .45); t(2) sqrt(3/2 (.04 + .64 + .36)) / 10."""
    found = estimates(measures)["saturation"]
    assert_allclose(found.mean, 0.45)
    assert_allclose([found.low, found.high], [0.0, 0.45 + 4.3027 * np.sqrt(1.5 * 1.04) / 10], atol=1e-4)


def test_without_a_success_there_is_no_first_reach():
    record = Record(
        np.zeros((1, 4)), DISTANCE[:, 2:], NEAR[:, 2:], ALIVE[:, 2:], DIVERGED[:, 2:], SATURATED[:, 2:], SIGNS[:, 2:]
    )
    assert np.isnan(measure(record).summary()["median_first_reach"])


def test_success_by_distance_by_hand(measures):
    """Starts 4, 8 and 5 from their goals: two bins from 4 to 6 (one of two reached) and 6 to 8 (the one reached)."""
    near, far = by_distance(measures, bins=2)
    assert near == (4.0, 6.0, 2, 1)
    assert far == (6.0, 8.0, 1, 1)


def test_another_distance_may_take_the_place_of_the_straight_one(measures):
    assert [b.episodes for b in by_distance(measures, np.array([1.0, 2.0, 9.0]), bins=2)] == [2, 1]


def test_a_distance_on_an_edge_belongs_to_the_bin_above_and_the_last_bin_has_both_its_edges():
    """0 to 4 in four bins: the edges are 0, 1, 2, 3, 4. Paths in a maze are whole cells, so edges are met."""
    near = np.array([[True, False, False, False, True]])
    five = measure(
        Record(
            np.zeros((5, 2)),
            np.zeros((2, 5)),
            near,
            np.ones((1, 5), bool),
            np.zeros((1, 5), bool),
            np.zeros((1, 5)),
            np.ones((1, 5, 2)),
        )
    )
    bins = by_distance(five, np.arange(5.0))
    assert [(b.low, b.high, b.episodes, b.successes) for b in bins] == [
        (0, 1, 1, 1),
        (1, 2, 1, 0),
        (2, 3, 1, 0),
        (3, 4, 2, 1),
    ]


def test_goals_that_are_all_equally_far_share_one_bin(measures):
    bins = by_distance(measures, np.full(3, 5.0))
    assert sum(b.episodes for b in bins) == 3
    assert max(b.episodes for b in bins) == 3


@given(
    near=arrays(bool, (6, 5)),
    ends=arrays(np.int64, 5, elements=st.integers(0, 6)),
    distance=arrays(np.float64, (7, 5), elements=st.floats(0, 50)),
)
def test_cumulative_reach_never_falls_and_ends_at_success_and_bins_add_up(near, ends, distance):
    alive = np.arange(6)[:, None] < ends[None]  # [T, N]
    record = Record(
        np.zeros((5, 4)), distance, near & alive, alive, np.zeros((6, 5), bool), np.zeros((6, 5)), np.ones((6, 5, 2))
    )
    found = measure(record)
    assert np.all(np.diff(found.cumulative_reach) >= 0)
    assert found.cumulative_reach[-1] == found.success.mean() == training_scores(found)["success_once"]
    bins = by_distance(found)
    assert sum(b.episodes for b in bins) == 5
    assert sum(b.successes for b in bins) == found.success.sum()
