"""Two methods on one environment: which is better, by how much, and how sure five seeds can make us."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from dcp.analysis.statistics import Interval, t_interval

SMALL = 0.075  # of the larger mean
NEGLIGIBLE = 0.2  # standard deviations: Cohen's bound of a small effect

Verdict = Literal["up", "down", "about", "unknown"]


class PairedTest(NamedTuple):
    """Over the seeds that both have: ours less theirs."""

    difference: Interval
    p_value: float  # two-sided, Student t; nan for fewer than two pairs, or if all differences are zero


def effect_size(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Cohen's d: the difference of the means in pooled standard deviations. nan if no method has two seeds."""
    gap, freedom = float(np.mean(ours) - np.mean(theirs)), len(ours) + len(theirs) - 2
    if freedom < 1 or math.isnan(gap):
        return math.nan
    squares = sum(np.sum((np.asarray(side) - np.mean(side)) ** 2) for side in (ours, theirs))
    spread = math.sqrt(squares / freedom)
    if spread <= 1e-12 * max(abs(gap), 1e-300):  # nothing but rounding
        return math.copysign(math.inf, gap) if gap else 0.0
    return gap / spread


def verdict(ours: Sequence[float], theirs: Sequence[float]) -> Verdict:
    """The paper's arrows. "about" is a small difference (below 7.5% of the larger mean) or one lost in the spread of
    the seeds (below 0.2 standard deviations); otherwise the arrow names the higher mean. See docs/statistics.md.
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
    """seed -> value on either side. None without a common seed.

    Seeds are pairs: both methods meet the same random numbers and the same evaluation episodes.
    """
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        return None
    found = t_interval([ours[seed] - theirs[seed] for seed in shared])
    gap, half = float(found.mean), float(found.half_width)
    if not math.isfinite(half) or (half == 0.0 and gap == 0.0):
        return PairedTest(found, math.nan)
    if half == 0.0:
        return PairedTest(found, 0.0)
    freedom = len(shared) - 1
    t = gap / (half / stats.t.ppf(0.975, freedom))
    return PairedTest(found, float(2.0 * stats.t.sf(abs(t), freedom)))


def holm(p_values: Sequence[float]) -> list[float]:
    """For several tests at once: the k-th smallest of m is multiplied by m - k + 1. A nan was no test and stays nan."""
    adjusted = [math.nan] * len(p_values)
    tested = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    largest = 0.0
    for rank, (p, i) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        adjusted[i] = largest
    return adjusted
