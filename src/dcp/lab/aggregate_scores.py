"""Compare methods over all environments: interquartile means, probability of improvement, performance profiles."""

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from dcp.lab.result_tables import Cell, FigureSpec, Row, Section, Table, absent, shown
from dcp.lab.run_collection import METRICS, Collection, Run, common_end, nearest
from dcp.lab.statistics import (
    Interval,
    Statistic,
    bootstrap,
    interquartile_mean,
    mean_of_tasks,
    median_of_tasks,
    probability_of_improvement,
    profile_with_band,
)
from dcp.lab.style import colours, house_style

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
    "In brackets: 95% intervals by a stratified bootstrap, which resamples the seeds of each environment; "
    "none if an environment has a single seed."
)
NUM_LEVELS = 101  # of a performance profile

Scores = Mapping[str, list[np.ndarray]]  # method -> one array of seeds per environment


def aggregate_section(collection: Collection) -> Section:
    """Return the section; it is empty for fewer than two environments."""
    if len(common_environments(collection)) < 2:
        return Section("All environments together", "overall")
    tables = [make(collection, metric) for metric in METRICS for make in (aggregate_table, improvement_table)]
    caption = (
        "The mean of the middle half of all runs of all environments, with its 95% interval by a stratified "
        "bootstrap. A score is between 0 and 1."
    )
    figures = [FigureSpec("aggregate", caption, partial(aggregate_figure, collection))]
    for key, metric in METRICS.items():
        caption = (
            f"Performance profile, {metric.name.lower()}: the share of runs of all environments that "
            "score above each level, with 95% bands by a stratified bootstrap. The higher curve is the better method."
        )
        figures.append(FigureSpec(f"profile_{key}", caption, partial(profile_figure, collection, key)))
    return Section("All environments together", "overall", tuple(figures), tuple(tables))


def compared_methods(collection: Collection) -> list[str]:
    """Return the methods with runs in at least half of the environments: a rare one would leave few in common."""
    environments = collection.environments
    counts = {name: sum(bool(collection.of(env, name)) for env in environments) for name in collection.methods}
    return [name for name, count in counts.items() if 2 * count >= len(environments)]


def common_environments(collection: Collection) -> list[str]:
    """Return the environments where every method has a run, so that averages do not compare different tasks."""
    methods = compared_methods(collection)
    return [env for env in collection.environments if all(collection.of(env, name) for name in methods)]


def final_scores(collection: Collection, metric: str) -> Scores:
    """Return scores between 0 and 1, in each environment at the last evaluation that all its runs have reached.

    One is nan without a near evaluation or an episode length, so that the average is unknown too.
    """

    def score(run: Run, steps: float) -> float:
        at, length = nearest(run, steps), run.config.get("episode_length") or math.nan
        largest = length if metric == "time_near_goal" else 1.0
        return math.nan if at is None else float(run.metrics[metric][at] / largest)

    scores: dict[str, list[np.ndarray]] = {method: [] for method in compared_methods(collection)}
    for environment in common_environments(collection):
        end = common_end([run for method in scores for run in collection.of(environment, method)])
        for method, tasks in scores.items():
            tasks.append(np.array([score(run, end) for run in collection.of(environment, method)]))
    return scores


def aggregate_table(collection: Collection, metric: str) -> Table:
    scores, environments = final_scores(collection, metric), common_environments(collection)
    rows = []
    for method, tasks in scores.items():
        runs = sum(map(len, tasks))
        cells = [_estimate(bootstrap(statistic, tasks)) for statistic in STATISTICS.values()]
        counts = [Cell(str(count), count) for count in (len(tasks), runs)]
        rows.append(Row((Cell(method), *counts, *cells), method=method))
    left = [env for env in collection.environments if env not in environments]
    rare = [name for name in collection.methods if name not in scores]
    notes = [f"A score is {SCORE[metric]}, in each environment at the last evaluation that all its runs have reached."]
    notes += [INTERVALS, *([f"Left out, because a method has no run there: {', '.join(left)}."] if left else [])]
    notes += [f"Left out, with runs in fewer than half of the environments: {', '.join(rare)}."] if rare else []
    columns = ("Method", "Environments", "Runs", *STATISTICS)
    title = f"{METRICS[metric].name}, all environments together"
    return Table(f"aggregate_{metric}", title, columns, tuple(rows), tuple(notes))


def improvement_table(collection: Collection, metric: str) -> Table:
    """Compare every method with every other: how likely a run of the row beats a run of the column."""
    scores = final_scores(collection, metric)

    def cell(method: str, other: str) -> Cell:
        if method == other:
            return absent()
        tasks, rivals = scores[method], scores[other]
        if min(map(len, (*tasks, *rivals))) < 2:
            return absent("a single seed in an environment")
        return _estimate(bootstrap(probability_of_improvement, tasks, rivals, reps=2000))

    rows = [Row((Cell(method), *(cell(method, other) for other in scores)), method=method) for method in scores]
    notes = (
        "The probability that a run of the row's method beats one of the column's in the same environment, "
        "averaged over environments; a tie is half a win. A dash: a method has a single seed in an environment.",
        INTERVALS,
        "If one method wins every pair, the bootstrap has nothing to vary and the interval has no width.",
    )
    title = f"{METRICS[metric].name}: probability of improvement"
    return Table(f"improvement_{metric}", title, ("Method", *(f"over {name}" for name in scores)), tuple(rows), notes)


def _estimate(interval: Interval) -> Cell:
    if math.isnan(interval.mean):
        return Cell("NaN", math.nan, hover="a score is not known")
    if math.isnan(interval.low):
        return Cell(shown(interval.mean, 3), interval.mean)
    text = f"{shown(interval.mean, 3)} [{shown(interval.low, 3)}, {shown(interval.high, 3)}]"
    return Cell(text, interval.mean, bounds=(interval.low, interval.high))


def aggregate_figure(collection: Collection) -> Figure:
    """Draw a panel per metric and a row per method: a bar for the 95% interval of the interquartile mean and a line
    across it for the estimate; nothing for an unknown one."""
    scores = {metric: final_scores(collection, metric) for metric in METRICS}
    methods = list(next(iter(scores.values())))
    colour_of = colours(methods)
    with house_style():
        figure = Figure(figsize=(4.4 * len(scores), 0.9 + 0.38 * len(methods)), layout="constrained")
        for at, (metric, of_metric) in enumerate(scores.items()):
            axes = figure.add_subplot(1, len(scores), at + 1)
            for row, (method, tasks) in enumerate(of_metric.items()):
                mean, low, high, *_ = bootstrap(interquartile_mean, tasks)
                if not math.isnan(low):
                    axes.barh(row, high - low, 0.55, low, color=colour_of[method], alpha=0.35, linewidth=0)
                axes.plot([mean], [row], "|", color=colour_of[method], markersize=15, markeredgewidth=2.5)
            axes.set_yticks(range(len(methods)), methods)
            axes.set_ylim(len(methods) - 0.5, -0.5)
            axes.set_xlim(0.0, 1.05 * axes.get_xlim()[1])  # from 0, so that differences look as large as they are
            axes.grid(False, axis="y")
            axes.set_xlabel(f"{METRICS[metric].name}: interquartile mean")
    return figure


def profile_figure(collection: Collection, metric: str) -> Figure:
    """Draw the share of runs that score above each level: the higher curve is the better method."""
    scores = final_scores(collection, metric)
    known = [score for tasks in scores.values() for task in tasks for score in task if math.isfinite(score)]
    top = min(1.0, max(0.1, math.ceil(10.0 * max(known, default=1.0)) / 10.0))  # the first tenth that none exceeds
    levels = np.linspace(0.0, top, NUM_LEVELS)
    colour_of = colours(list(scores))
    with house_style():
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        axes = figure.add_subplot()
        for method, tasks in scores.items():
            profile, low, high = profile_with_band(tasks, levels)
            axes.plot(levels, profile, color=colour_of[method], label=method, drawstyle="steps-post")
            axes.fill_between(levels, low, high, color=colour_of[method], alpha=0.14, linewidth=0, step="post")
        axes.set_xlabel(f"Score ({METRICS[metric].name.lower()})")
        axes.set_ylabel("Share of runs above it")
        axes.set_xlim(0.0, levels[-1])
        axes.set_ylim(-0.015, 1.015)
        figure.legend(loc="outside lower center", ncols=min(4, len(scores)))
    return figure
