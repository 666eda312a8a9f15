"""Learning curves: one run, or many seeds of many methods."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from dcp.analysis.style import INK, colours, house_style, step_axis
from dcp.errors import UserError
from dcp.statistics import t_interval

Columns = Mapping[str, np.ndarray]  # one run's metrics.csv: name -> [evaluations]
XAxis = Literal["steps", "seconds"]
X_COLUMNS: dict[XAxis, str] = {"steps": "env_steps", "seconds": "wall_seconds"}
UNITS = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))


class Metric(NamedTuple):
    label: str
    factor: float  # what is stored times this is what is shown
    top: float | None  # the largest value there can be


METRICS = {
    "success_once": Metric("Success at least once (%)", 100.0, 100.0),
    "time_near_goal": Metric("Time near goal (steps)", 1.0, None),
}


class SeedsCurve(NamedTuple):
    """What the seeds of one method say together, at the evaluations that all of them had."""

    steps: np.ndarray  # [K]
    seconds: np.ndarray  # [K]: mean over seeds of the time at which each had that evaluation; nan if one kept no time
    mean: np.ndarray  # [K]: nan where a seed's value is
    half_width: np.ndarray  # [K]: 95% Student t; nan for one seed
    num_seeds: int

    def at(self, x: XAxis) -> np.ndarray:
        return self.steps if x == "steps" else self.seconds


def curve(run: Columns, metric: str, x: XAxis = "steps") -> tuple[np.ndarray, np.ndarray]:
    """-> environment steps or seconds [K], the metric as shown [K]. A missing column is an error, never zeros."""
    for name in (X_COLUMNS[x], metric):
        if name not in run:
            raise UserError(f"this run recorded no {name!r}: choose one of {', '.join(sorted(run))}")
    factor = METRICS[metric].factor if metric in METRICS else 1.0
    return np.asarray(run[X_COLUMNS[x]], float), factor * np.asarray(run[metric], float)


def over_seeds(runs: Sequence[Columns], metric: str) -> SeedsCurve:
    """The shortest seed ends the mean: a mean over fewer seeds further on would be another quantity in one line.

    Seeds that were never evaluated at the same step have no mean: K is 0.
    """
    curves = [curve(run, metric) for run in runs]
    shared = sorted(set.intersection(*(set(steps.tolist()) for steps, _ in curves)))
    if not shared:
        nothing = np.empty(0)
        return SeedsCurve(nothing, nothing, nothing, nothing, len(runs))
    values = np.asarray([_values_at(shared, *at) for at in curves])  # [seeds, K]
    clocks = [run.get("wall_seconds", np.full(len(run["env_steps"]), np.nan)) for run in runs]
    times = [_values_at(shared, steps, clock) for (steps, _), clock in zip(curves, clocks, strict=True)]
    interval = t_interval(values)
    return SeedsCurve(
        np.asarray(shared), np.asarray(times).mean(axis=0), interval.mean, interval.half_width, interval.count
    )


def recorded(methods: Mapping[str, Sequence[Columns]], metric: str, x: XAxis = "steps") -> dict[str, list[Columns]]:
    """The runs that can be drawn: those with the metric, the steps and the axis. A method without any is left out."""
    needed = {metric, "env_steps", X_COLUMNS[x]}
    found = {label: [run for run in runs if needed <= run.keys()] for label, runs in methods.items()}
    return {label: runs for label, runs in found.items() if runs}


def plot_run(axes: Axes, run: Columns, metric: str, colour: str) -> None:
    """One run. A gap in the record is a gap in the line; the dots show what was measured."""
    axes.plot(*curve(run, metric), color=colour, marker="o", markersize=3.5, zorder=3)
    _dress(axes, metric, "steps")


def plot_methods(
    axes: Axes,
    methods: Mapping[str, Sequence[Columns]],
    metric: str,
    x: XAxis = "steps",
    colour_of: Mapping[str, str] | None = None,
) -> None:
    """Mean over seeds with its 95% t-interval as a band, each seed as a thin line. One seed has no band."""
    colour_of = colour_of or colours(list(methods))
    for label, runs in methods.items():
        if not runs:
            raise UserError(f"{label} has no run to plot: leave it out")
        _plot_seeds(axes, label, runs, metric, x, colour_of[label])
    _dress(axes, metric, x)


def run_figure(run: Columns, title: str, method: str) -> Figure:
    """Both metrics of one run; a metric that was not recorded has no panel."""
    shown = [metric for metric in METRICS if metric in run]
    if not shown:
        raise UserError(f"nothing to plot: this run recorded none of {', '.join(METRICS)}")
    with house_style():
        figure, panels = _panels(len(shown), title)
        for axes, metric in zip(panels, shown, strict=True):
            plot_run(axes, run, metric, colours([method])[method])
    return figure


def methods_figure(
    methods: Mapping[str, Sequence[Columns]],
    title: str,
    x: XAxis = "steps",
    colour_of: Mapping[str, str] | None = None,  # where several figures must agree on more than the methods' own
) -> Figure:
    """Both metrics of several methods, several seeds each. A run has its line where it recorded what is shown."""
    shown = {metric: recorded(methods, metric, x) for metric in METRICS}
    shown = {metric: found for metric, found in shown.items() if found}
    if not shown:
        raise UserError(f"nothing to plot: no run recorded {X_COLUMNS[x]!r} and one of {', '.join(METRICS)}")
    with house_style():
        figure, panels = _panels(len(shown), title)
        for axes, (metric, found) in zip(panels, shown.items(), strict=True):
            plot_methods(axes, found, metric, x, colour_of)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    return figure


def _values_at(shared: Sequence[float], steps: np.ndarray, values: np.ndarray) -> list[float]:
    found = dict(zip(steps.tolist(), np.asarray(values, float).tolist(), strict=True))
    return [found[at] for at in shared]


def _plot_seeds(axes: Axes, label: str, runs: Sequence[Columns], metric: str, x: XAxis, colour: str) -> None:
    together = over_seeds(runs, metric)
    at, count = together.at(x), "1 seed" if len(runs) == 1 else f"{len(runs)} seeds"
    if len(runs) > 1:
        for run in runs:
            axes.plot(*curve(run, metric, x), color=colour, linewidth=0.7, alpha=0.35, zorder=2)
        low, high = together.mean - together.half_width, together.mean + together.half_width
        axes.fill_between(at, low, high, color=colour, alpha=0.14, linewidth=0, zorder=1)
    if not len(at):
        count += ", never evaluated at the same step"
    dot = "o" if len(at) == 1 else None  # a line through one point is nothing
    axes.plot(at, together.mean, color=colour, marker=dot, markersize=3.5, label=f"{label} ({count})", zorder=3)


def _panels(count: int, title: str) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(4.4 * count, 3.2), layout="constrained")
    figure.suptitle(title, color=INK, fontsize=11)
    return figure, [figure.add_subplot(1, count, i + 1) for i in range(count)]


def _dress(axes: Axes, metric: str, x: XAxis) -> None:
    shown = METRICS.get(metric, Metric(metric, 1.0, None))
    axes.set_ylabel(shown.label)
    (step_axis if x == "steps" else _time_axis)(axes)
    top = shown.top or axes.get_ylim()[1]  # bands may pass what is possible; the axis does not
    axes.set_ylim(-0.015 * top, 1.015 * top)  # a line at either end keeps its full width
    axes.set_xlim(left=0.0)


def _time_axis(axes: Axes) -> None:
    """In the unit that suits the longest run, with ticks at its round numbers."""
    longest = axes.get_xlim()[1]
    unit, name = next(((size, name) for size, name in UNITS if longest >= 2 * size), UNITS[-1])
    rough = longest / unit / 5
    size = 10.0 ** np.floor(np.log10(rough))
    step = size * next(s for s in (1, 2, 2.5, 5, 10) if s * size >= rough)
    axes.xaxis.set_major_locator(MultipleLocator(step * unit))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds / unit:.4g}"))
    axes.set_xlabel(f"Wall-clock time ({name})")
