"""Spearman's rank correlation, and a straight line, with intervals over episodes."""

from typing import Any

import numpy as np
from scipy import stats

from dcp.theory.diagnostics.estimates import Estimate, of_statistic


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """nan where one of the two is constant; ties share their mean rank."""
    if len(x) < 3 or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return float("nan")
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])


def rank_correlation(x: np.ndarray, y: np.ndarray, episodes: np.ndarray) -> Estimate:
    """x [K], y [K] of these episodes [K]"""
    return of_statistic(lambda rows: spearman(x[rows], y[rows]), episodes)


def line(x: np.ndarray, y: np.ndarray, episodes: np.ndarray) -> dict[str, Any]:
    """y = intercept + slope x by least squares, and the share of y's variance that it explains."""
    if len(x) < 3 or np.ptp(x) == 0.0:
        return {"slope": Estimate(*[float("nan")] * 3)._asdict(), "intercept": float("nan"), "r2": float("nan")}
    slope, intercept = np.polyfit(x, y, 1)
    left, whole = np.sum((y - intercept - slope * x) ** 2), np.sum((y - y.mean()) ** 2)
    return {
        "slope": of_statistic(lambda rows: _slope(x[rows], y[rows]), episodes)._asdict(),
        "intercept": float(intercept),
        "r2": float(1.0 - left / whole) if whole > 0.0 else float("nan"),
    }


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    centred = x - x.mean()
    square = np.sum(centred**2)
    return float(np.sum(centred * y) / square) if square > 0.0 else float("nan")
