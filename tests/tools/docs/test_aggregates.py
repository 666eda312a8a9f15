"""Aggregates over tasks by hand, against SciPy, and against the numbers of the real rliable (golden/rliable.json)."""

import json
import math
import tracemalloc
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from tools.docs.aggregates import bootstrap, interquartile_mean, probability_of_improvement, resampled

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/rliable.json").read_text())


def mean_of_tasks(scores) -> np.ndarray:
    return np.mean([task.mean(axis=-1) for task in scores], axis=0)


def golden_scores(name: str) -> list[np.ndarray]:
    """Return rliable's [runs, tasks] as one array per task."""
    return list(np.asarray(GOLDEN["scores"][name]).T)


def test_the_probability_of_improvement_counts_pairs_and_halves_ties():
    """(3, 1) against (2, 1): 3 beats both, 1 loses to 2 and ties with 1: 2.5 of 4. A second task is lost: average."""
    assert probability_of_improvement([np.array([3.0, 1.0])], [np.array([2.0, 1.0])]) == 0.625
    both = probability_of_improvement(
        [np.array([3.0, 1.0]), np.array([0.0])], [np.array([2.0, 1.0]), np.array([1.0, 2.0, 3.0])]
    )
    assert both == 0.3125
    x, y = np.array([0.3, 0.7, 0.2, 0.7]), np.array([0.1, 0.7, 0.3])
    assert_allclose(probability_of_improvement([x], [y]), stats.mannwhitneyu(x, y).statistic / 12)


def test_the_interquartile_mean_cuts_a_quarter_at_either_end():
    """0 to 9 in three tasks: two are cut at each end, 2 to 7 stay, their mean is 4.5; an outlier changes nothing."""
    scores = [np.array([9.0, 0.0, 3.0]), np.array([1.0, 8.0]), np.array([2.0, 4.0, 5.0, 6.0, 7.0])]
    assert interquartile_mean(scores) == 4.5
    assert interquartile_mean([*scores[:1], np.array([1.0, 800.0]), *scores[2:]]) == 4.5
    assert_allclose(interquartile_mean(scores[2:]), stats.trim_mean(scores[2], 0.25))


def test_hundreds_of_runs_take_no_gigabytes():
    """All pairs of all resamples at once would be 500 x 200 x 200 numbers of 8 bytes: 160 MB."""
    runs = np.random.default_rng(0).random((2, 200))
    tracemalloc.start()
    bootstrap(probability_of_improvement, [runs[0]], [runs[1]], reps=500)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6


def test_a_bootstrap_draws_within_tasks():
    """Two tasks of two runs have 16 equally likely resamples; tasks that were mixed would have more values."""
    scores = [np.array([0.0, 1.0]), np.array([10.0, 14.0])]
    [drawn] = resampled(scores, reps=4000)
    means, counts = np.unique(mean_of_tasks(drawn), return_counts=True)
    exact = [np.mean([(a + b) / 2, (c + d) / 2]) for a, b, c, d in product((0, 1), (0, 1), (10, 14), (10, 14))]
    values, shares = np.unique(exact, return_counts=True)
    assert means.tolist() == values.tolist()
    assert_allclose(counts / 4000, shares / 16, atol=0.03)
    estimate = bootstrap(mean_of_tasks, scores)
    assert estimate[:3] == (6.25, 5.0, 7.5)  # the ends have 1 in 16 each: beyond 2.5%


def test_percentile_intervals_are_scipys():
    """One task is the plain bootstrap, which SciPy has."""
    scores = np.array([0.12, 0.5, 0.33, 0.9, 0.41, 0.77, 0.2])
    theirs = stats.bootstrap((scores,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(3))
    ours = bootstrap(mean_of_tasks, [scores], reps=20_000)
    assert_allclose(ours[1:3], theirs.confidence_interval, atol=0.01)


@pytest.mark.parametrize("name", ["x", "y"])
def test_aggregates_are_rliables(name: str):
    estimate = bootstrap(interquartile_mean, golden_scores(name), reps=20_000)
    assert_allclose(estimate.mean, GOLDEN["points"][name][0], rtol=1e-12)
    assert_allclose(estimate[1:3], np.asarray(GOLDEN["intervals"][name])[:, 0], atol=0.008)


def test_a_bootstrap_of_one_number_gives_floats():
    """A page writes their repr, and that of NumPy's is no number."""
    estimate = bootstrap(mean_of_tasks, [np.array([1.0, 2.0, 3.0])], reps=50)
    assert [type(each) for each in estimate[:3]] == [float, float, float]


def test_the_probability_of_improvement_is_rliables():
    estimate = bootstrap(probability_of_improvement, golden_scores("x"), golden_scores("y"))
    assert_allclose(estimate.mean, GOLDEN["improvement"]["point"], rtol=1e-12)
    assert_allclose(estimate[1:3], GOLDEN["improvement"]["interval"], atol=0.02)


def test_what_is_not_known_makes_an_estimate_unknown():
    scores = [np.array([0.1, math.nan]), np.array([0.2, 0.3])]
    assert all(math.isnan(number) for number in bootstrap(interquartile_mean, scores)[:3])
    assert math.isnan(bootstrap(interquartile_mean, []).mean)


def test_a_task_of_one_run_leaves_no_interval():
    estimate = bootstrap(mean_of_tasks, [np.array([0.1, 0.3]), np.array([0.4])])
    assert_allclose(estimate.mean, 0.3)
    assert math.isnan(estimate.low) and math.isnan(estimate.high)


def test_the_same_runs_give_the_same_interval():
    scores = [np.array([0.1, 0.3, 0.7])]
    assert bootstrap(mean_of_tasks, scores) == bootstrap(mean_of_tasks, scores)
