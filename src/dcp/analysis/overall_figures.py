"""Pictures of all environments together: interquartile means with their intervals, and performance profiles."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dcp.analysis.collection import Collection
from dcp.analysis.curves import METRICS
from dcp.analysis.overall import Scores, final_scores, label
from dcp.analysis.style import colours, house_style
from dcp.statistics import bootstrap, interquartile_mean, profile_with_band

NUM_LEVELS = 101


def aggregate_figure(collection: Collection) -> Figure:
    """A panel a metric, a row a method: the interquartile mean and its 95% interval."""
    scores = {metric: final_scores(collection, metric) for metric in METRICS}
    num_methods = len(next(iter(scores.values())))
    with house_style():
        figure = Figure(figsize=(4.4 * len(scores), 0.9 + 0.38 * num_methods), layout="constrained")
        for at, (metric, found) in enumerate(scores.items()):
            axes = figure.add_subplot(1, len(scores), at + 1)
            _draw_estimates(axes, found)
            axes.set_xlabel(f"{label(metric)}: interquartile mean")
    return figure


def _draw_estimates(axes: Axes, scores: Scores) -> None:
    """A bar for the interval, a line across it for the estimate. What is not known has neither."""
    colour_of = colours(list(scores))
    for row, (method, tasks) in enumerate(scores.items()):
        found = bootstrap(interquartile_mean, tasks)
        if not math.isnan(found.low):
            axes.barh(row, found.high - found.low, 0.55, found.low, color=colour_of[method], alpha=0.35, linewidth=0)
        axes.plot([found.mean], [row], "|", color=colour_of[method], markersize=15, markeredgewidth=2.5)
    axes.set_yticks(range(len(scores)), list(scores))
    axes.set_ylim(len(scores) - 0.5, -0.5)
    axes.set_xlim(0.0, 1.05 * axes.get_xlim()[1])  # differences look as large as they are
    axes.grid(False, axis="y")


def profile_figure(collection: Collection, metric: str) -> Figure:
    """The share of runs that score above each level: the higher curve is the better method."""
    scores = final_scores(collection, metric)
    levels = np.linspace(0.0, _top(scores), NUM_LEVELS)
    colour_of = colours(list(scores))
    with house_style():
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        axes = figure.add_subplot()
        for method, tasks in scores.items():
            profile, low, high = profile_with_band(tasks, levels)
            axes.plot(levels, profile, color=colour_of[method], label=method, drawstyle="steps-post")
            axes.fill_between(levels, low, high, color=colour_of[method], alpha=0.14, linewidth=0, step="post")
        axes.set_xlabel(f"Score ({label(metric).lower()})")
        axes.set_ylabel("Share of runs above it")
        axes.set_xlim(0.0, levels[-1])
        axes.set_ylim(-0.015, 1.015)
        figure.legend(loc="outside lower center", ncols=min(4, len(scores)))
    return figure


def _top(scores: Scores) -> float:
    """The first tenth that no score exceeds: curves of low scores need the room."""
    known = [score for tasks in scores.values() for task in tasks for score in task if math.isfinite(score)]
    return min(1.0, max(0.1, math.ceil(10.0 * max(known, default=1.0)) / 10.0))
