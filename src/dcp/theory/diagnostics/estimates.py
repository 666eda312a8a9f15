"""Means with intervals over episodes: states of one episode are much alike, so the episode is the sample."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 200  # of the bootstrap


class Estimate(NamedTuple):
    """With its 95% interval; nan where there is none."""

    mean: float
    low: float
    high: float


NONE = Estimate(math.nan, math.nan, math.nan)


def of_mean(values: np.ndarray, episodes: np.ndarray, least: float = -math.inf, most: float = math.inf) -> Estimate:
    """values [K], episodes [K]: Student t with the variance between episodes. What is not finite does not count.

    With one state an episode it is the plain t interval. Where values have bounds, so has the interval.
    """
    mean, variance, count = _between(values, episodes)
    if count < 2:
        return Estimate(mean, math.nan, math.nan)
    half = float(stats.t.ppf(0.5 + 0.5 * CONFIDENCE, df=count - 1)) * math.sqrt(variance)
    return Estimate(mean, max(mean - half, least), min(mean + half, most))


def of_share(holds: np.ndarray, episodes: np.ndarray) -> Estimate:
    """holds [K] of bools: Wilson's interval, as if of so many independent states as would vary as much."""
    share, variance, count = _between(np.asarray(holds, float), episodes)
    if not count:
        return NONE
    n = share * (1.0 - share) / variance if variance > 0.0 else float(count)
    z = float(stats.norm.ppf(0.5 + 0.5 * CONFIDENCE))
    centre = (share + z**2 / (2.0 * n)) / (1.0 + z**2 / n)
    half = z / (1.0 + z**2 / n) * math.sqrt(share * (1.0 - share) / n + z**2 / (4.0 * n**2))
    return Estimate(share, max(centre - half, 0.0), min(centre + half, 1.0))


def _between(values: np.ndarray, episodes: np.ndarray) -> tuple[float, float, int]:
    """Mean, its variance by the sums of residuals of each episode, and the number of episodes."""
    known = np.isfinite(values)
    values, episodes = np.asarray(values, float)[known], np.asarray(episodes)[known]
    if not len(values):
        return math.nan, math.nan, 0
    mean = float(values.mean())
    _, which = np.unique(episodes, return_inverse=True)
    count = int(which.max()) + 1
    residuals = np.bincount(which, weights=values - mean)  # [count]
    variance = float(np.sum(residuals**2)) / len(values) ** 2
    return mean, variance * count / max(count - 1, 1), count


def of_statistic(statistic: Callable[[np.ndarray], float], episodes: np.ndarray, seed: int = 0) -> Estimate:
    """A number that follows from rows (indices [K] -> float), with the bootstrap's interval over whole episodes."""
    value = statistic(np.arange(len(episodes)))
    rows = [np.flatnonzero(episodes == episode) for episode in np.unique(episodes)]
    if len(rows) < 2 or not math.isfinite(value):
        return Estimate(value, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    drawn = [
        statistic(np.concatenate([rows[i] for i in rng.integers(0, len(rows), len(rows))])) for _ in range(RESAMPLES)
    ]
    low, high = np.nanpercentile(drawn, [50.0 - 50.0 * CONFIDENCE, 50.0 + 50.0 * CONFIDENCE])
    return Estimate(value, float(low), float(high))
