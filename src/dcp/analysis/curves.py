"""Learning curves: one run, or many seeds of many methods."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dcp.analysis.statistics import t_interval
from dcp.analysis.style import INK, colours, house_style, step_axis
from dcp.errors import UserError

Columns = Mapping[str, np.ndarray]  # one run's metrics.csv: name -> [evaluations]


class Metric(NamedTuple):
    label: str
    factor: float  # what is stored times this is what is shown
    top: float | None  # the largest value there can be


METRICS = {
    "success_once": Metric("Success at least once (%)", 100.0, 100.0),
    "time_near_goal": Metric("Time near goal (steps)", 1.0, None),
}


def curve(run: Columns, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """-> environment steps [K], the metric as shown [K]. A missing column is an error, never zeros."""
    for name in ("env_steps", metric):
        if name not in run:
            raise UserError(f"this run recorded no {name!r}: choose one of {', '.join(sorted(run))}")
    factor = METRICS[metric].factor if metric in METRICS else 1.0
    return np.asarray(run["env_steps"], float), factor * np.asarray(run[metric], float)


def across_seeds(runs: Sequence[Columns], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """-> the steps at which every seed was evaluated [K], values [seeds, K]. The shortest run cuts all short."""
    curves = [curve(run, metric) for run in runs]
    shared = sorted(set.intersection(*(set(steps.tolist()) for steps, _ in curves)))
    if not shared:
        raise UserError("these seeds were never evaluated at the same step: plot runs of one and the same config")
    values = [[dict(zip(steps.tolist(), ys.tolist(), strict=True))[at] for at in shared] for steps, ys in curves]
    return np.asarray(shared), np.asarray(values)


def plot_run(axes: Axes, run: Columns, metric: str, colour: str) -> None:
    """One run. A gap in the record is a gap in the line; the dots show what was measured."""
    steps, values = curve(run, metric)
    axes.plot(steps, values, color=colour, marker="o", markersize=3.5, zorder=3)
    _dress(axes, metric)


def plot_methods(axes: Axes, methods: Mapping[str, Sequence[Columns]], metric: str) -> None:
    """Mean over seeds with its 95% t-interval as a band, each seed as a thin line. One seed has no band."""
    colour_of = colours(list(methods))
    for label, runs in methods.items():
        if not runs:
            raise UserError(f"{label} has no run to plot: leave it out")
        colour = colour_of[label]
        steps, values = across_seeds(runs, metric)
        interval = t_interval(values)
        if len(runs) > 1:
            for run in runs:
                axes.plot(*curve(run, metric), color=colour, linewidth=0.7, alpha=0.35, zorder=2)
            low, high = interval.mean - interval.half_width, interval.mean + interval.half_width
            axes.fill_between(steps, low, high, color=colour, alpha=0.14, linewidth=0, zorder=1)
        count = "1 seed" if len(runs) == 1 else f"{len(runs)} seeds"
        axes.plot(steps, interval.mean, color=colour, label=f"{label} ({count})", zorder=3)
    _dress(axes, metric)


def run_figure(run: Columns, title: str, method: str) -> Figure:
    """Both metrics of one run; a metric that was not recorded has no panel."""
    recorded = [metric for metric in METRICS if metric in run]
    if not recorded:
        raise UserError(f"nothing to plot: this run recorded none of {', '.join(METRICS)}")
    with house_style():
        figure, panels = _panels(len(recorded), title)
        for axes, metric in zip(panels, recorded, strict=True):
            plot_run(axes, run, metric, colours([method])[method])
    return figure


def methods_figure(methods: Mapping[str, Sequence[Columns]], title: str) -> Figure:
    """Both metrics of several methods, several seeds each."""
    with house_style():
        figure, panels = _panels(len(METRICS), title)
        for axes, metric in zip(panels, METRICS, strict=True):
            plot_methods(axes, methods, metric)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    return figure


def _panels(count: int, title: str) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(4.4 * count, 3.2), layout="constrained")
    figure.suptitle(title, color=INK, fontsize=11)
    return figure, [figure.add_subplot(1, count, i + 1) for i in range(count)]


def _dress(axes: Axes, metric: str) -> None:
    shown = METRICS.get(metric, Metric(metric, 1.0, None))
    axes.set_ylabel(shown.label)
    step_axis(axes)
    top = shown.top or axes.get_ylim()[1]  # bands may pass what is possible; the axis does not
    axes.set_ylim(-0.015 * top, 1.015 * top)  # a line at either end keeps its full width
    axes.set_xlim(left=0.0)
