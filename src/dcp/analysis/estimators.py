"""What many runs on many tasks say together, as rliable defines it (Agarwal et al., 2021), with all resamples at once.

Scores are one array of runs a task: tasks may have different numbers of runs, which rliable's matrices cannot say.
A statistic takes arrays [..., runs] and reduces the last axis, so that resamples [reps, runs] go the same way.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

REPS = 10_000
CONFIDENCE = 0.95
_SEED = 0  # the same report from the same runs

Scores = Sequence[np.ndarray]  # a task: [..., runs]
Statistic = Callable[..., np.ndarray]  # one Scores or two -> [...]


class Estimated(NamedTuple):
    """A point estimate with its percentile interval. nan bounds: no interval can be given."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: Scores) -> np.ndarray:
    """The mean of the middle half of all runs of all tasks: the outer quarters, rounded down, are cut off."""
    runs = np.sort(np.concatenate(scores, axis=-1), axis=-1)  # [..., all runs]
    cut = runs.shape[-1] // 4
    return runs[..., cut : runs.shape[-1] - cut].mean(axis=-1)


def mean_of_tasks(scores: Scores) -> np.ndarray:
    return _task_means(scores).mean(axis=0)


def median_of_tasks(scores: Scores) -> np.ndarray:
    return np.median(_task_means(scores), axis=0)


def probability_of_improvement(ours: Scores, theirs: Scores) -> np.ndarray:
    """That a run of ours beats a run of theirs on the same task, averaged over tasks; a tie is half a win."""
    tasks = []
    for x, y in zip(ours, theirs, strict=True):
        wins = [_wins(x[..., i : i + 1], y) for i in range(x.shape[-1])]  # one by one: all pairs of all resamples at
        tasks.append(np.mean(wins, axis=0))  # once would take gigabytes with a few hundred runs
    return np.mean(tasks, axis=0)


def _wins(one: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[..., 1], [..., runs] -> the share of the others that it beats: [...]"""
    return ((one > others) + 0.5 * (one == others)).mean(axis=-1)


def performance_profile(scores: Scores, levels: np.ndarray) -> np.ndarray:
    """The share of all runs of all tasks whose score is above each level: [..., levels]."""
    runs = np.concatenate(scores, axis=-1)
    return np.stack([(runs > level).mean(axis=-1) for level in levels], axis=-1)


def bootstrap(statistic: Statistic, *scores: Scores, reps: int = REPS) -> Estimated:
    """Stratified: the runs of each task are drawn again, with replacement, and tasks stay as they are.

    A score that is not known makes the estimate unknown. A task with one run would always be drawn the same, and the
    interval would be too narrow: there is none then.
    """
    if not is_known(*scores):
        return Estimated(math.nan, math.nan, math.nan)
    value = float(statistic(*scores))
    if not has_interval(*scores):
        return Estimated(value, math.nan, math.nan)
    low, high = _bounds(statistic(*resampled(*scores, reps=reps)))
    return Estimated(value, float(low), float(high))


def profile_with_band(
    scores: Scores, levels: np.ndarray, reps: int = 2000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """-> the profile, its lower and its upper bounds: [levels] each, nan where unknown"""
    unknown = np.full(len(levels), math.nan)
    if not is_known(scores):
        return unknown, unknown, unknown
    profile = performance_profile(scores, levels)
    if not has_interval(scores):
        return profile, unknown, unknown
    low, high = _bounds(_drawn_profiles(scores, levels, reps))
    return profile, low, high


def _drawn_profiles(scores: Scores, levels: np.ndarray, reps: int) -> np.ndarray:
    """[reps, levels]. How often each run is drawn is all that counts here, so that a product of matrices does it."""
    draw = np.random.default_rng(_SEED)
    drawn = [draw.multinomial(len(task), np.full(len(task), 1.0 / len(task)), reps) for task in scores]  # [reps, n]
    above = np.concatenate(scores)[:, None] > levels  # [all runs, levels]
    return np.concatenate(drawn, axis=1) @ above.astype(float) / len(above)


def resampled(*scores: Scores, reps: int) -> list[list[np.ndarray]]:
    """Each task's runs [n] drawn again: [reps, n]. Methods are drawn independently of each other."""
    draw = np.random.default_rng(_SEED)
    return [[task[draw.integers(0, len(task), (reps, len(task)))] for task in tasks] for tasks in scores]


def is_known(*scores: Scores) -> bool:
    return all(len(tasks) > 0 and all(len(task) and np.isfinite(task).all() for task in tasks) for tasks in scores)


def has_interval(*scores: Scores) -> bool:
    return all(len(task) > 1 for tasks in scores for task in tasks)


def _task_means(scores: Scores) -> np.ndarray:
    return np.stack([task.mean(axis=-1) for task in scores])  # [tasks, ...]


def _bounds(drawn: np.ndarray) -> np.ndarray:
    """[reps, ...] -> [2, ...]"""
    outside = 50.0 * (1.0 - CONFIDENCE)
    return np.percentile(drawn, [outside, 100.0 - outside], axis=0)
