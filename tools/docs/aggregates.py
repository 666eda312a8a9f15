"""Estimate aggregates over many tasks as rliable defines them (Agarwal et al., 2021), for `point_mazes`.

Scores are one array of runs per task: tasks may have different numbers of runs, which rliable's matrices cannot say. A
statistic reduces the last axis of arrays [..., runs], so that it takes all resamples [reps, runs] at once.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from dcp.lab.statistics import UNKNOWN, Interval

REPS = 10_000  # resamples
Scores = Sequence[np.ndarray]  # per task: [..., runs]
Statistic = Callable[..., np.ndarray]  # one Scores or two -> [...]


def interquartile_mean(scores: Scores) -> np.ndarray:
    """Return the mean of the middle half of all runs of all tasks; the outer quarters, rounded down, are cut off."""
    return stats.trim_mean(np.concatenate(scores, axis=-1), 0.25, axis=-1)


def probability_of_improvement(ours: Scores, theirs: Scores) -> np.ndarray:
    """Return how likely a run of ours beats a run of theirs on the same task, averaged over tasks; a tie is half."""
    tasks = []
    for x, y in zip(ours, theirs, strict=True):
        rivals = (x[..., i : i + 1] for i in range(x.shape[-1]))  # all pairs of all resamples at once take gigabytes
        tasks.append(np.mean([((one > y) + 0.5 * (one == y)).mean(axis=-1) for one in rivals], axis=0))
    return np.mean(tasks, axis=0)


def bootstrap(statistic: Statistic, *scores: Scores, reps: int = REPS) -> Interval:
    """Return a stratified bootstrap: the runs of each task are drawn again, with replacement; tasks stay as they are.

    A score that is not known makes the estimate unknown. A task with one run would always be drawn the same, and the
    interval would be too narrow: there is none then.
    """
    if not all(len(tasks) > 0 and all(len(task) and np.isfinite(task).all() for task in tasks) for tasks in scores):
        return UNKNOWN
    value = float(statistic(*scores))
    if any(len(task) < 2 for tasks in scores for task in tasks):
        return Interval(value)
    low, high = np.percentile(statistic(*resampled(*scores, reps=reps)), [2.5, 97.5])
    return Interval(value, float(low), float(high))


def resampled(*scores: Scores, reps: int) -> list[list[np.ndarray]]:
    """Draw each task's runs [n] again: [reps, n]. Methods are drawn independently of each other."""
    draw = np.random.default_rng(0)
    return [[task[draw.integers(0, len(task), (reps, len(task)))] for task in tasks] for tasks in scores]
