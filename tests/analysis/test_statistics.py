import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from dcp.analysis.statistics import t_interval
from dcp.errors import UserError


def test_five_seeds_of_which_one_succeeds_give_the_paper_s_kind_of_interval():
    # s = 12.5 / sqrt(5), so s / sqrt(5) = 2.5; t(0.975, 4) = 2.776445
    mean, half_width, num_seeds = t_interval([12.5, 0.0, 0.0, 0.0, 0.0])
    assert (mean, num_seeds) == (2.5, 5)
    assert_allclose(half_width, 2.776445 * 2.5, rtol=1e-6)
    assert str(t_interval([12.5, 0.0, 0.0, 0.0, 0.0])) == "2.5 ± 6.9"


def test_two_seeds_by_hand():
    # s = sqrt(2), so s / sqrt(2) = 1; t(0.975, 1) = 12.7062
    mean, half_width, _ = t_interval([1.0, 3.0])
    assert mean == 2.0
    assert_allclose(half_width, 12.7062, rtol=1e-5)


def test_equal_seeds_have_an_interval_of_no_width():
    assert t_interval([7.0, 7.0, 7.0])[:2] == (7.0, 0.0)


def test_the_interval_is_scipy_s():
    values = np.random.default_rng(0).normal(3.0, 2.0, 7)
    mean, half_width, _ = t_interval(values, confidence=0.9)
    expected = stats.t.interval(0.9, 6, values.mean(), stats.sem(values))
    assert_allclose((mean - half_width, mean + half_width), expected)


def test_one_seed_has_a_mean_and_no_interval():
    mean, half_width, num_seeds = t_interval([42.0])
    assert (mean, num_seeds) == (42.0, 1)
    assert np.isnan(half_width)
    assert str(t_interval([42.0])) == "42.0"


def test_a_missing_seed_is_not_left_out():
    assert np.isnan(t_interval([1.0, np.nan, 3.0])[:2]).all()


def test_many_quantities_at_once_equal_one_at_a_time():
    values = np.random.default_rng(1).normal(size=(4, 3))  # [seeds, K]
    together = t_interval(values)
    for k in range(3):
        alone = t_interval(values[:, k])
        assert_allclose((together.mean[k], together.half_width[k]), alone[:2])


@pytest.mark.parametrize("values", [[], np.zeros((0, 3)), 1.0])
def test_no_seed_is_a_mistake(values):
    with pytest.raises(UserError, match="at least one seed"):
        t_interval(values)


def test_a_confidence_of_one_is_a_mistake():
    with pytest.raises(UserError, match="between 0 and 1"):
        t_interval([1.0, 2.0], confidence=1.0)
