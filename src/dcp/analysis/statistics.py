"""What several seeds, or pairs of episodes, say together."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from dcp.errors import UserError


class Interval(NamedTuple):
    """mean +- half_width. Floats for one quantity, arrays [K] for many. One seed has no interval: half_width is nan."""

    mean: Any
    half_width: Any
    num_seeds: int

    def __str__(self) -> str:
        if not math.isfinite(self.half_width):
            return f"{self.mean:.1f}"
        return f"{self.mean:.1f} ± {self.half_width:.1f}"


def t_interval(values: Sequence[Any] | np.ndarray, confidence: float = 0.95) -> Interval:
    """Two-sided interval of the mean over seeds: values [seeds] or [seeds, K].

    Half width = t * s / sqrt(n), with the sample's standard deviation s (n - 1) and t's quantile at n - 1 degrees
    of freedom. A nan among the seeds makes the result nan: leaving it out would flatter the mean.
    """
    seeds = np.asarray(values, np.float64)
    if seeds.ndim == 0 or len(seeds) == 0:
        raise UserError("an interval needs the result of at least one seed")
    if not 0.0 < confidence < 1.0:
        raise UserError(f"confidence is {confidence}: use a number between 0 and 1, both excluded")
    n = len(seeds)
    mean = seeds.mean(axis=0)
    if n == 1:
        return Interval(mean, np.full_like(mean, np.nan)[()], n)
    quantile = stats.t.ppf(0.5 + 0.5 * confidence, df=n - 1)
    return Interval(mean, quantile * seeds.std(axis=0, ddof=1) / math.sqrt(n), n)


class Estimate(NamedTuple):
    """A mean over episodes with its 95% interval. One episode has none: its bounds are nan."""

    mean: float
    low: float
    high: float


def of_pairs(wins: int, losses: int, pairs: int) -> Estimate:
    """A difference of two shares on the same episodes, with Agresti and Min's interval.

    Half an episode is added to each of the four outcomes: where no pair differs, or all do, there is an interval too.
    """
    b, c, n = wins + 0.5, losses + 0.5, pairs + 2.0
    centre, error = (b - c) / n, 1.96 * math.sqrt(b + c - (b - c) ** 2 / n) / n
    return Estimate((wins - losses) / pairs, max(centre - error, -1.0), min(centre + error, 1.0))
