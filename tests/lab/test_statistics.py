"""Every statistic by hand, and against SciPy."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from dcp.errors import UserError
from dcp.lab.statistics import (
    clustered_mean,
    clustered_share,
    clustered_statistic,
    effect_size,
    episode_interval,
    holm,
    paired_success_interval,
    paired_test,
    probability_of_improvement,
    success_interval,
    t_interval,
    verdict,
)


def test_five_seeds_of_which_one_succeeds_give_the_paper_s_kind_of_interval():
    # s = 12.5 / sqrt(5), so s / sqrt(5) = 2.5; t(0.975, 4) = 2.776445
    mean, _, _, half_width, num_seeds = t_interval([12.5, 0.0, 0.0, 0.0, 0.0])
    assert (mean, num_seeds) == (2.5, 5)
    assert_allclose(half_width, 2.776445 * 2.5, rtol=1e-6)
    assert str(t_interval([12.5, 0.0, 0.0, 0.0, 0.0])) == "2.5 ± 6.9"


def test_two_seeds_by_hand():
    # s = sqrt(2), so s / sqrt(2) = 1; t(0.975, 1) = 12.7062
    mean, _, _, half_width, _ = t_interval([1.0, 3.0])
    assert mean == 2.0
    assert_allclose(half_width, 12.7062, rtol=1e-5)


def test_equal_seeds_have_an_interval_of_no_width():
    assert t_interval([7.0, 7.0, 7.0])[:4] == (7.0, 7.0, 7.0, 0.0)


def test_the_interval_is_scipy_s():
    values = np.random.default_rng(0).normal(3.0, 2.0, 7)
    mean, _, _, half_width, _ = t_interval(values)
    expected = stats.t.interval(0.95, 6, values.mean(), stats.sem(values))
    assert_allclose((mean - half_width, mean + half_width), expected)


def test_one_seed_has_a_mean_and_no_interval():
    mean, _, _, half_width, num_seeds = t_interval([42.0])
    assert (mean, num_seeds) == (42.0, 1)
    assert np.isnan(half_width)
    assert str(t_interval([42.0])) == "42.0"


def test_a_missing_seed_is_not_left_out():
    assert np.isnan(t_interval([1.0, np.nan, 3.0])[:4]).all()


def test_many_quantities_at_once_equal_one_at_a_time():
    values = np.random.default_rng(1).normal(size=(4, 3))  # [seeds, K]
    together = t_interval(values)
    for k in range(3):
        alone = t_interval(values[:, k])
        assert_allclose((together.mean[k], together.half_width[k]), (alone.mean, alone.half_width))


@pytest.mark.parametrize("values", [[], np.zeros((0, 3)), 1.0])
def test_no_seed_is_a_mistake(values):
    with pytest.raises(UserError, match="at least one seed"):
        t_interval(values)


def test_an_interval_of_episodes_is_students():
    """1, 2, 3: mean 2, s = 1, t(0.975, 2) = 4.3027, half width 4.3027 / sqrt(3) = 2.4841."""
    found = episode_interval(np.array([1.0, 2.0, 3.0]))
    assert_allclose(found[:3], [2.0, 2.0 - 2.4841, 2.0 + 2.4841], atol=1e-4)


def test_an_interval_of_successes_is_wilsons():
    """3 of 4: (p + z^2/2n +- z sqrt(pq/n + z^2/4n^2)) / (1 + z^2/n), z = 1.95996: 0.3006 to 0.9544."""
    assert_allclose(success_interval(np.array([1, 1, 1, 0], bool))[:3], [0.75, 0.3006, 0.9544], atol=1e-4)
    assert success_interval(np.ones(8, bool)).high == 1.0
    assert success_interval(np.ones(8, bool)).low < 0.7


def test_an_interval_of_pairs_is_agresti_and_mins():
    """1 won, 1 lost, 2 tied: 1.5 and 1.5 of 6, so 0 +- 1.96 sqrt(3) / 6 = 0.5658. 16 ties: 0 +- 1.96 / 18 = 0.1089.
    4 lost of 4: (0.5 - 4.5) / 6 = -0.6667 +- 1.96 sqrt(5 - 16 / 6) / 6 = 0.4990, cut at -1."""
    assert_allclose(paired_success_interval(1, 1, 4)[:3], [0.0, -0.5658, 0.5658], atol=1e-4)
    assert_allclose(paired_success_interval(0, 0, 16)[:3], [0.0, -0.1089, 0.1089], atol=1e-4)
    assert_allclose(paired_success_interval(0, 4, 4)[:3], [-1.0, -1.0, -0.1677], atol=1e-4)


def test_with_one_state_an_episode_the_interval_is_student_s():
    """1, 2, 3: s = 1, t at 2 degrees of freedom 4.3027, so 4.3027 / sqrt(3) = 2.4841."""
    values, episodes = np.array([1.0, 2.0, 3.0]), np.arange(3)
    assert_allclose(clustered_mean(values, episodes)[:3], [2.0, 2.0 - 2.4841, 2.0 + 2.4841], atol=1e-4)
    assert_allclose(clustered_mean(values, episodes, 0.0, 4.0)[:3], [2.0, 0.0, 4.0])


def test_states_of_one_episode_are_not_counted_as_independent():
    """Two episodes, however many states: the residual sums are -K/4 and K/4 each, so t(1) * sqrt(2 * 2 / 16) / 1."""
    for times in (1, 50):
        values, episodes = np.repeat([0.0, 1.0], times), np.repeat([0, 1], times)
        found = clustered_mean(values, episodes)
        assert_allclose(found.high - found.mean, 12.7062 * 0.5, rtol=1e-4)


def test_what_is_not_known_does_not_count_and_one_episode_has_no_interval():
    assert clustered_mean(np.array([1.0, np.nan, 3.0]), np.array([0, 1, 2])).mean == 2.0
    assert np.isnan(clustered_mean(np.array([1.0, 3.0]), np.array([0, 0]))[1:3]).all()
    assert np.isnan(clustered_mean(np.array([np.nan]), np.array([0]))[:3]).all()


def test_a_share_has_wilson_s_interval_also_at_its_ends():
    """10 of 10: centre (1 + 0.19207) / 1.38415, half width as much below 1: 0.7225 to 1."""
    assert_allclose(clustered_share(np.ones(10, bool), np.arange(10))[:3], [1.0, 0.7225, 1.0], atol=1e-4)
    half = clustered_share(np.arange(40) % 2 == 0, np.arange(40))
    assert_allclose(half[:3], [0.5, 0.3528, 0.6472], atol=5e-3)


def test_episodes_that_agree_exactly_still_have_an_interval_and_one_has_none():
    """10 of 11 states in each of 16 episodes: as many states as there are, 176, and no more."""
    row = np.arange(11) < 10
    found = clustered_share(np.tile(row, 16), np.repeat(np.arange(16), 11))
    assert_allclose(found[:3], [10 / 11, 0.8575, 0.9432], atol=1e-3)
    assert np.isnan(clustered_share(row, np.zeros(11)).low)


def test_a_bootstrap_draws_whole_episodes():
    """Two episodes that agree within themselves: the mean is one of 0, 0.5 and 1."""
    values, episodes = np.repeat([0.0, 1.0], 30), np.repeat([0, 1], 30)
    found = clustered_statistic(lambda rows: float(values[rows].mean()), episodes)
    assert found[:3] == (0.5, 0.0, 1.0)


def test_the_papers_five_seeds_give_its_interval():
    """12.5, 0, 0, 0, 0: mean 2.5, s = 5.590, t(0.975, 4) = 2.776, half width 2.776 * 5.590 / sqrt(5) = 6.94."""
    assert str(t_interval([12.5, 0.0, 0.0, 0.0, 0.0])) == "2.5 ± 6.9"
    low, high = stats.t.interval(0.95, 4, 2.5, stats.sem([12.5, 0, 0, 0, 0]))
    assert_allclose(t_interval([12.5, 0.0, 0.0, 0.0, 0.0])[:4], [2.5, low, high, (high - low) / 2])


def test_the_probability_of_improvement_counts_pairs_and_halves_ties():
    """(3, 1) against (2, 1): 3 beats both, 1 loses to 2 and ties with 1: 2.5 of 4."""
    assert probability_of_improvement([3.0, 1.0], [2.0, 1.0]) == 0.625
    assert math.isnan(probability_of_improvement([3.0, math.nan], [2.0, 1.0]))


def test_the_effect_size_is_cohens():
    """1, 3 and 2, 6: difference -2; squares about the means 2 and 8, over 2 degrees of freedom: s = sqrt(5)."""
    assert_allclose(effect_size([1.0, 3.0], [2.0, 6.0]), -2.0 / math.sqrt(5.0))
    assert math.isnan(effect_size([1.0], [2.0]))
    assert effect_size([1.0, 1.0], [2.0, 2.0]) == -math.inf
    assert effect_size([1.0, 1.0], [1.0, 1.0]) == 0.0


def test_the_paired_test_is_students_over_common_seeds():
    """Differences 1, 2, 3 of the seeds 0, 1, 2: mean 2, s = 1, t = 2 sqrt(3) = 3.46, p = 0.0742 at two degrees."""
    ours, theirs = {0: 2.0, 1: 4.0, 2: 6.0, 7: 100.0}, {2: 3.0, 1: 2.0, 0: 1.0, 9: -100.0}
    found = paired_test(ours, theirs)
    assert found is not None
    assert found.difference.count == 3
    assert_allclose([found.difference.mean, found.p_value], [2.0, 0.0742], atol=1e-4)
    theirs_p = stats.ttest_rel([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]).pvalue
    assert_allclose(found.p_value, theirs_p)


def test_a_test_without_two_differing_pairs_has_no_p():
    one, same = paired_test({0: 1.0}, {0: 2.0}), paired_test({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0})
    assert one is not None and math.isnan(one.p_value)
    assert same is not None and math.isnan(same.p_value)
    assert paired_test({0: 1.0}, {1: 2.0}) is None


def test_holm_multiplies_the_smallest_most():
    """0.01, 0.04, 0.03 of three: 0.03; 0.03 * 2 = 0.06; then 0.04, but never below the one before."""
    assert_allclose(holm([0.01, 0.04, math.nan, 0.03]), [0.03, 0.06, math.nan, 0.06])
    assert_allclose(holm([0.6, 0.7]), [1.0, 1.0])


def test_the_arrow_names_the_higher_mean_unless_the_difference_is_small_or_lost_in_the_spread():
    assert verdict([10.0, 10.0], [9.2, 9.2]) == "up"  # 8% of the larger
    assert verdict([9.2, 9.2], [10.0, 10.0]) == "down"
    assert verdict([10.0, 10.0], [9.3, 9.3]) == "about"  # 7%
    assert verdict([0.0, 0.0], [0.0, 0.0]) == "about"
    assert verdict([20.0, 0.0, 1.0], [18.0, 0.0, 0.6]) == "about"  # 11%, but a tenth of a standard deviation
    assert verdict([10.0], [5.0]) == "up"  # one seed has no spread: the first half of the rule alone
    assert verdict([math.nan, 1.0], [5.0]) == "unknown"
    assert verdict([], [5.0]) == "unknown"
