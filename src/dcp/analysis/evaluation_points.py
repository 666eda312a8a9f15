"""Which evaluation of a run stands for a number of environment steps. Nothing is interpolated."""

from collections.abc import Sequence

import numpy as np

from dcp.analysis.curves import METRICS
from dcp.analysis.run_reading import Run
from dcp.statistics import Interval, t_interval

REACH = 0.1  # of the checkpoint's steps


def nearest(run: Run, steps: float) -> int | None:
    """The evaluation nearest to these steps, if it lies within a tenth of them and within one evaluation interval.

    The second half keeps a run that is still on its way to 100M from being quoted at 100M when it is at 92M.
    """
    if not run.num_evaluations:
        return None
    points = np.asarray(run.metrics["env_steps"], float)
    at = int(np.argmin(np.abs(points - steps)))
    interval = np.max(np.diff(points, prepend=0.0))
    return at if abs(points[at] - steps) <= min(REACH * steps, interval) else None


def value_at(run: Run, metric: str, steps: float) -> float | None:
    """As shown: success in percent. None if the run has no evaluation near; nan if that is what was measured."""
    at = nearest(run, steps)
    return None if at is None else float(METRICS[metric].factor * run.metrics[metric][at])


def values_at(runs: Sequence[Run], metric: str, steps: float) -> dict[int, float]:
    """seed -> value, of the seeds that have an evaluation near"""
    found = {run.seed: value_at(run, metric, steps) for run in runs}
    return {seed: value for seed, value in found.items() if value is not None}


def interval_at(runs: Sequence[Run], metric: str, steps: float) -> Interval | None:
    """Over the seeds that have an evaluation near; None if none has."""
    values = list(values_at(runs, metric, steps).values())
    return t_interval(values) if values else None


def common_end(runs: Sequence[Run]) -> float:
    """The last evaluation of the run that has come least far: every one of them can be quoted there."""
    return min(run.env_steps for run in runs)
