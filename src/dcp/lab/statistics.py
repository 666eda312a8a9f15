"""Statistics: means with their intervals, and tests between two methods.

Every interval is two-sided, at 95%, and is returned as an `Interval`.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from dcp.errors import UserError

CONFIDENCE = 0.95
EPISODE_REPS = 200  # resamples of the bootstrap over episodes
SMALL = 0.075  # a difference of the means that counts as none: of the larger mean
NEGLIGIBLE = 0.2  # the same in standard deviations: Cohen's bound of a small effect
_SEED = 0  # the same report from the same runs

Verdict = Literal["up", "down", "about", "unknown"]


class Interval(NamedTuple):
    """A mean between its bounds: floats for one quantity, arrays [K] for many. Bounds are nan where there are none."""

    mean: Any
    low: Any = math.nan
    high: Any = math.nan
    half_width: Any = math.nan  # of a symmetric interval; kept because high - mean would be rounded
    count: int = 0  # how many seeds, episodes or pairs it is made of, where that was counted

    def __str__(self) -> str:
        if not math.isfinite(self.half_width):
            return f"{self.mean:.1f}"
        return f"{self.mean:.1f} ± {self.half_width:.1f}"

    def as_json(self) -> dict[str, Any]:
        """Return the three numbers that result files hold."""
        return {"mean": self.mean, "low": self.low, "high": self.high}


UNKNOWN = Interval(math.nan)


# Means and shares of independent samples.


def t_interval(values: Sequence[Any] | np.ndarray) -> Interval:
    """Return Student's t interval of the mean over seeds or episodes: values [n] or [n, K].

    Half width = t * s / sqrt(n), with the sample's standard deviation s (n - 1) and t's quantile at n - 1 degrees
    of freedom. A nan among the values makes the result nan: leaving it out would flatter the mean.
    """
    samples = np.asarray(values, np.float64)
    if samples.ndim == 0 or len(samples) == 0:
        raise UserError("an interval needs the result of at least one seed")
    n = len(samples)
    mean = samples.mean(axis=0)
    if n == 1:
        unknown = np.full_like(mean, np.nan)[()]
        return Interval(mean, unknown, unknown, unknown, n)
    half = stats.t.ppf(0.5 + 0.5 * CONFIDENCE, df=n - 1) * samples.std(axis=0, ddof=1) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, half, n)


def episode_interval(values: np.ndarray) -> Interval:
    """Return Student's t interval as plain floats; unknown without any episode."""
    if len(values) == 0:
        return UNKNOWN
    mean, low, high, half, count = t_interval(values)
    return Interval(float(mean), float(low), float(high), float(half), count)


def success_interval(success: np.ndarray) -> Interval:
    """Return Wilson's interval of a share: it stays within 0 and 1, also where all succeed or none."""
    low, high = stats.binomtest(int(success.sum()), len(success)).proportion_ci(CONFIDENCE, method="wilson")
    return Interval(float(success.mean()), float(low), float(high), count=len(success))


def weighted_interval(values: np.ndarray, weights: np.ndarray, least: float, most: float) -> Interval:
    """Return the weighted mean of episodes, with Student's t over them: a mean over steps, where episodes differ."""
    return _t_within(*_ratio(values * weights, weights), least, most) if np.any(weights) else UNKNOWN


def _ratio(sums: np.ndarray, weights: np.ndarray) -> tuple[float, float, int]:
    """Return the mean over episodes with these sums and weights [H], its standard error by the residuals, and H."""
    count, total = len(sums), float(np.sum(weights))
    mean = float(np.sum(sums) / total)
    return mean, math.sqrt(count / max(count - 1, 1) * float(np.sum((sums - mean * weights) ** 2))) / total, count


def _t_within(mean: float, error: float, count: int, least: float, most: float) -> Interval:
    """Return Student's t interval of a mean with this standard error, within its bounds; none for fewer than two."""
    if count < 2:
        return Interval(mean, count=count)
    half = float(stats.t.ppf(0.5 + 0.5 * CONFIDENCE, df=count - 1)) * error
    return Interval(mean, max(mean - half, least), min(mean + half, most), count=count)


def paired_success_interval(wins: int, losses: int, pairs: int) -> Interval:
    """Return Agresti and Min's interval of the difference of two shares on the same episodes.

    Half an episode is added to each of the four outcomes: where no pair differs, or all do, there is an interval too.
    """
    b, c, n = wins + 0.5, losses + 0.5, pairs + 2.0
    centre, error = (b - c) / n, 1.96 * math.sqrt(b + c - (b - c) ** 2 / n) / n
    return Interval((wins - losses) / pairs, max(centre - error, -1.0), min(centre + error, 1.0), count=pairs)


class Paired(NamedTuple):
    """Compare two evaluations on the same episodes: success and time near goal, `after` minus `before`."""

    success_once: Interval
    time_near_goal: Interval
    wins: int  # reached only after
    ties: int
    losses: int  # reached only before

    def as_json(self) -> dict[str, Any]:
        return {name: each.as_json() if isinstance(each, Interval) else each for name, each in self._asdict().items()}


def paired_episodes(before: tuple[np.ndarray, np.ndarray], after: tuple[np.ndarray, np.ndarray]) -> Paired:
    """Compare success [N] and time near goal [N] of the same episodes."""
    gain = after[0].astype(int) - before[0].astype(int)  # [N]
    wins, losses = int(np.sum(gain > 0)), int(np.sum(gain < 0))
    success = paired_success_interval(wins, losses, len(gain))
    return Paired(success, episode_interval(after[1] - before[1]), wins, len(gain) - wins - losses, losses)


def success_difference_error(share_a: float, share_b: float, episodes_a: int, episodes_b: int) -> float:
    """Return half of the interval of a difference of two success shares, from the number of episodes.

    Agresti and Caffo's: two episodes are added to each side, one a success, so that 0 and 100% have an interval too.
    """
    variance = 0.0
    for share, episodes in ((share_a, episodes_a), (share_b, episodes_b)):
        n = episodes + 2
        p = (share * episodes + 1) / n
        variance += p * (1 - p) / n
    return 1.96 * math.sqrt(variance)


# States of one episode are much alike, so here the episode is the sample.


def clustered_mean(
    values: np.ndarray, episodes: np.ndarray, least: float = -math.inf, most: float = math.inf
) -> Interval:
    """Return the mean of values [K] by Student's t with the variance between episodes [K]; only finite ones count.

    With one state per episode it is the plain t interval. Where values have bounds, so has the interval.
    """
    return _t_within(*_between(values, episodes), least, most)


def clustered_share(holds: np.ndarray, episodes: np.ndarray) -> Interval:
    """Return Wilson's interval for bools [K], with the number of independent states that would vary as much."""
    share, error, count = _between(np.asarray(holds, float), episodes)
    if count < 2:
        return Interval(share, count=count) if count else UNKNOWN
    states = float(np.isfinite(holds).sum())
    n = float(count)
    if 0.0 < share < 1.0:  # where all episodes have the same share, no more states than there are
        n = min(share * (1.0 - share) / max(error, 1e-12) ** 2, states)
    z = float(stats.norm.ppf(0.5 + 0.5 * CONFIDENCE))
    centre = (share + z**2 / (2.0 * n)) / (1.0 + z**2 / n)
    half = z / (1.0 + z**2 / n) * math.sqrt(share * (1.0 - share) / n + z**2 / (4.0 * n**2))
    return Interval(share, max(centre - half, 0.0), min(centre + half, 1.0), count=count)


def _between(values: np.ndarray, episodes: np.ndarray) -> tuple[float, float, int]:
    """Return the mean of the finite values, its standard error between episodes, and the number of episodes."""
    known = np.isfinite(values)
    if not known.any():
        return math.nan, math.nan, 0
    _, which, weights = np.unique(np.asarray(episodes)[known], return_inverse=True, return_counts=True)
    return _ratio(np.bincount(which, weights=np.asarray(values, float)[known]), weights)


def clustered_statistic(statistic: Callable[[np.ndarray], float], episodes: np.ndarray) -> Interval:
    """Return a number that follows from rows (indices [K] -> float), with a bootstrap over whole episodes."""
    value = statistic(np.arange(len(episodes)))
    rows = [np.flatnonzero(episodes == episode) for episode in np.unique(episodes)]
    if len(rows) < 2 or not math.isfinite(value):
        return Interval(value, count=len(rows))
    rng = np.random.default_rng(_SEED)
    drawn = [
        statistic(np.concatenate([rows[i] for i in rng.integers(0, len(rows), len(rows))])) for _ in range(EPISODE_REPS)
    ]
    low, high = np.nanpercentile(drawn, [50.0 - 50.0 * CONFIDENCE, 50.0 + 50.0 * CONFIDENCE])
    return Interval(value, float(low), float(high), count=len(rows))


def spearman(x: np.ndarray, y: np.ndarray, least: int = 3) -> float:
    """Return the rank correlation of x [K] and y [K]; ties share their mean rank.

    It is nan for fewer than `least` pairs, or where one of the two is constant.
    """
    if len(x) < least or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return float("nan")
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])


# Two methods on one environment: which is better, by how much, and how sure a few seeds can make us.


class PairedTest(NamedTuple):
    """Over the seeds that both have: ours less theirs."""

    difference: Interval
    p_value: float  # two-sided, Student t; nan for fewer than two pairs, or if all differences are zero


def effect_size(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return Cohen's d: the difference of the means in pooled standard deviations; nan if no method has two seeds."""
    gap, freedom = float(np.mean(ours) - np.mean(theirs)), len(ours) + len(theirs) - 2
    if freedom < 1 or math.isnan(gap):
        return math.nan
    squares = sum(np.sum((np.asarray(side) - np.mean(side)) ** 2) for side in (ours, theirs))
    spread = math.sqrt(squares / freedom)
    if spread <= 1e-12 * max(abs(gap), 1e-300):  # only rounding
        return math.copysign(math.inf, gap) if gap else 0.0
    return gap / spread


def probability_of_improvement(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return how likely a seed of ours beats a seed of theirs (Mann and Whitney); a tie is half, nan if one is."""
    if not np.isfinite([*ours, *theirs]).all():
        return math.nan
    return float(stats.mannwhitneyu(ours, theirs, method="asymptotic").statistic) / (len(ours) * len(theirs))


def verdict(ours: Sequence[float], theirs: Sequence[float]) -> Verdict:
    """Return the paper's arrow. "about" is a small difference (at most 7.5% of the larger mean) or one that is lost in
    the spread of the seeds (below 0.2 standard deviations); otherwise it names the higher mean. See docs/protocols.md.
    """
    if len(ours) == 0 or len(theirs) == 0:
        return "unknown"
    mine, other = float(np.mean(ours)), float(np.mean(theirs))
    if math.isnan(mine) or math.isnan(other):
        return "unknown"
    small = abs(mine - other) <= SMALL * max(abs(mine), abs(other))
    if small or abs(effect_size(ours, theirs)) < NEGLIGIBLE:  # nan is not below
        return "about"
    return "up" if mine > other else "down"


def paired_test(ours: Mapping[int, float], theirs: Mapping[int, float]) -> PairedTest | None:
    """Test seed -> value of both sides against each other; None without a common seed.

    Seeds are pairs: both methods meet the same random numbers and the same evaluation episodes.
    """
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        return None
    gaps = [ours[seed] - theirs[seed] for seed in shared]
    if len(shared) < 2 or not np.isfinite(gaps).all() or not np.any(gaps):
        return PairedTest(t_interval(gaps), math.nan)
    with np.errstate(divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # equal gaps have no variance, and p is 0
        test: Any = stats.ttest_1samp(gaps, 0.0)
    return PairedTest(t_interval(gaps), float(test.pvalue))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct for several tests at once: the k-th smallest of m is multiplied by m - k + 1. A nan was no test."""
    adjusted = [math.nan] * len(p_values)
    tested = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    largest = 0.0
    for rank, (p, i) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        adjusted[i] = largest
    return adjusted
