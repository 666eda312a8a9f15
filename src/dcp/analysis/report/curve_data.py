"""Learning curves as the page's script reads them: the statistics are made here, the script only draws."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dcp.analysis.collection import Collection
from dcp.analysis.curves import METRICS, over_seeds
from dcp.analysis.report.names import Names
from dcp.analysis.run_reading import Run
from dcp.analysis.style import human_count


def metric_data() -> list[dict[str, Any]]:
    return [{"key": key, "label": metric.label, "top": metric.top} for key, metric in METRICS.items()]


def curve_data(collection: Collection, names: Names) -> list[dict[str, Any]]:
    """One object an environment that has a curve: its groups of seeds, each with its runs and its means."""
    return [
        {
            "environment": names.environments.index(environment),
            "groups": [
                _group(names.methods.index(method), collection.of(environment, method))
                for method in collection.methods
                if collection.of(environment, method)
            ],
        }
        for environment in collection.environments
    ]


def curve_notes(collection: Collection, environment: str) -> list[str]:
    """What a reader of one environment's curves must know: missing seeds, and means that end before the lines."""
    alone = [method for method in collection.methods if len(collection.of(environment, method)) == 1]
    notes = [f"{', '.join(alone)}: one seed, so no interval."] if alone else []
    for method in collection.methods:
        runs = collection.of(environment, method)
        if not runs:
            continue
        if missing := collection.missing_seeds(environment, method):
            notes.append(f"{method} has no run of seed {', '.join(map(str, missing))}, which other methods have.")
        notes += _end_of_mean(method, runs)
        notes += [
            f"{method}, seed {run.seed}: {run.state}." for run in runs if run.state != "finished" and len(runs) == 1
        ]
    return notes


def numbers(values: Iterable[float], digits: int) -> list[float | int | None]:
    """For JSON: what is not finite is null, which the script draws as a gap."""
    rounded = [round(float(value), digits) if np.isfinite(value) else None for value in values]
    return [int(value) if value is not None and value == int(value) else value for value in rounded]


def _group(method: int, runs: Sequence[Run]) -> dict[str, Any]:
    metrics = {}
    for key in METRICS:
        together = over_seeds([run.metrics for run in runs], key)
        metrics[key] = {
            "steps": numbers(together.steps, 0),
            "seconds": numbers(together.seconds, 1),
            "mean": numbers(together.mean, 3),
            "half": numbers(together.half_width, 3),
        }
    return {"method": method, "metrics": metrics, "runs": [_run(run) for run in runs]}


def _run(run: Run) -> dict[str, Any]:
    steps = run.metrics["env_steps"]
    seconds = run.metrics.get("wall_seconds", np.full(len(steps), np.nan))
    values = {key: numbers(metric.factor * run.metrics[key], 3) for key, metric in METRICS.items()}
    return {"seed": run.seed, "steps": numbers(steps, 0), "seconds": numbers(seconds, 1), "values": values}


def _end_of_mean(method: str, runs: Sequence[Run]) -> list[str]:
    """The mean is over all seeds; it ends with the shortest."""
    lasts = {run.seed: run.env_steps for run in runs}
    shared = set.intersection(*(set(run.metrics["env_steps"].tolist()) for run in runs))
    if not shared:
        return [f"{method} has no mean: its seeds were never evaluated at the same step."]
    end, furthest = max(shared), max(lasts.values())
    if end == furthest:
        return []
    short = [str(seed) for seed, last in lasts.items() if last < furthest]
    seeds = f"seed {', '.join(short)} ended early" if short else "later evaluations are not at the same steps"
    return [f"{method}'s mean ends at {human_count(end)} of {human_count(furthest)} steps: {seeds}."]
