"""Spearman's rank correlation, and a straight line, with intervals over episodes."""

from typing import Any

import numpy as np

from dcp.statistics import UNKNOWN, Interval, clustered_statistic, spearman


def rank_correlation(x: np.ndarray, y: np.ndarray, episodes: np.ndarray) -> Interval:
    """x [K], y [K] of these episodes [K]"""
    return clustered_statistic(lambda rows: spearman(x[rows], y[rows]), episodes)


def line(x: np.ndarray, y: np.ndarray, episodes: np.ndarray) -> dict[str, Any]:
    """y = intercept + slope x by least squares, and the share of y's variance that it explains."""
    if len(x) < 3 or np.ptp(x) == 0.0:
        return {"slope": UNKNOWN.as_json(), "intercept": float("nan"), "r2": float("nan")}
    slope, intercept = np.polyfit(x, y, 1)
    left, whole = np.sum((y - intercept - slope * x) ** 2), np.sum((y - y.mean()) ** 2)
    return {
        "slope": clustered_statistic(lambda rows: _slope(x[rows], y[rows]), episodes).as_json(),
        "intercept": float(intercept),
        "r2": float(1.0 - left / whole) if whole > 0.0 else float("nan"),
    }


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    centred = x - x.mean()
    square = np.sum(centred**2)
    return float(np.sum(centred * y) / square) if square > 0.0 else float("nan")
