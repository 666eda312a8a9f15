"""All environments together: interquartile mean, probability of improvement and performance profiles."""

import math
from collections.abc import Mapping

import numpy as np

from dcp.analysis.collection import Collection
from dcp.analysis.curves import METRICS
from dcp.analysis.evaluation_points import common_end, nearest
from dcp.analysis.run_reading import Run
from dcp.analysis.tables import Cell, Row, Table, absent, shown
from dcp.statistics import (
    Interval,
    Statistic,
    bootstrap,
    interquartile_mean,
    mean_of_tasks,
    median_of_tasks,
    probability_of_improvement,
)

STATISTICS: dict[str, Statistic] = {
    "Interquartile mean": interquartile_mean,
    "Median": median_of_tasks,
    "Mean": mean_of_tasks,
}
SCORE = {
    "success_once": "the share of episodes that succeed",
    "time_near_goal": "the share of an episode's steps that are near the goal",
}
INTERVALS = (
    "In brackets: 95% intervals by a stratified bootstrap, which draws the seeds of each environment again; "
    "none if an environment has a single seed."
)

Scores = Mapping[str, list[np.ndarray]]  # method -> one array of seeds an environment


def compared_methods(collection: Collection) -> list[str]:
    """Those with runs in at least half of the environments: a rare one would leave little that is common to all."""
    environments = collection.environments
    counts = {name: sum(bool(collection.of(env, name)) for env in environments) for name in collection.methods}
    return [name for name, count in counts.items() if 2 * count >= len(environments)]


def common_environments(collection: Collection) -> list[str]:
    """Where each of them has a run: an average over other sets of environments would compare tasks, not methods."""
    methods = compared_methods(collection)
    return [env for env in collection.environments if all(collection.of(env, name) for name in methods)]


def final_scores(collection: Collection, metric: str) -> Scores:
    """Between 0 and 1, in each environment at the last evaluation that all its runs have reached."""
    scores: dict[str, list[np.ndarray]] = {method: [] for method in compared_methods(collection)}
    for environment in common_environments(collection):
        end = common_end([run for method in scores for run in collection.of(environment, method)])
        for method, tasks in scores.items():
            tasks.append(np.array([_score(run, metric, end) for run in collection.of(environment, method)]))
    return scores


def _score(run: Run, metric: str, steps: float) -> float:
    """nan if there is no evaluation near, or no length to divide by: what is not known makes the average unknown."""
    at = nearest(run, steps)
    if at is None:
        return math.nan
    length = run.config.get("episode_length") or math.nan
    return float(run.metrics[metric][at] / (length if metric == "time_near_goal" else 1.0))


def aggregate_table(collection: Collection, metric: str) -> Table:
    scores, environments = final_scores(collection, metric), common_environments(collection)
    rows = []
    for method, tasks in scores.items():
        runs = sum(map(len, tasks))
        cells = [_estimate(bootstrap(statistic, tasks)) for statistic in STATISTICS.values()]
        rows.append(
            Row((Cell(method), Cell(str(len(tasks)), len(tasks)), Cell(str(runs), runs), *cells), method=method)
        )
    left = [env for env in collection.environments if env not in environments]
    rare = [name for name in collection.methods if name not in scores]
    notes = [f"A score is {SCORE[metric]}, in each environment at the last evaluation that all its runs have reached."]
    notes += [INTERVALS, *([f"Left out, because a method has no run there: {', '.join(left)}."] if left else [])]
    notes += [f"Left out, with runs in fewer than half of the environments: {', '.join(rare)}."] if rare else []
    columns = ("Method", "Environments", "Runs", *STATISTICS)
    title = f"{label(metric)}, all environments together"
    return Table(f"aggregate_{metric}", title, columns, tuple(rows), tuple(notes))


def improvement_table(collection: Collection, metric: str) -> Table:
    """Every method against every other: how likely a run of the row beats a run of the column."""
    scores = final_scores(collection, metric)
    rows = []
    for method, tasks in scores.items():
        cells = [
            absent() if other == method else _estimate(bootstrap(probability_of_improvement, tasks, rivals, reps=2000))
            for other, rivals in scores.items()
        ]
        rows.append(Row((Cell(method), *cells), method=method))
    notes = (
        "The probability that a run of the row's method beats one of the column's in the same environment, "
        "averaged over environments; a tie is half a win.",
        INTERVALS,
        "Where one method wins every pair the bootstrap finds nothing to vary, and its interval has no width.",
    )
    title = f"{label(metric)}: probability of improvement"
    return Table(f"improvement_{metric}", title, ("Method", *(f"over {name}" for name in scores)), tuple(rows), notes)


def _estimate(found: Interval) -> Cell:
    if math.isnan(found.mean):
        return Cell("NaN", math.nan, hover="a score is not known")
    if math.isnan(found.low):
        return Cell(shown(found.mean, 3), found.mean)
    text = f"{shown(found.mean, 3)} [{shown(found.low, 3)}, {shown(found.high, 3)}]"
    return Cell(text, found.mean, bounds=(found.low, found.high))


def label(metric: str) -> str:
    """Without its unit: scores have none."""
    return METRICS[metric].label.split(" (")[0]
