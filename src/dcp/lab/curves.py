"""Draw learning curves: of one run, of many seeds of many methods, and as the panels of a report's page."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from dcp.errors import UserError
from dcp.lab.report_html import Names, figure_files
from dcp.lab.result_tables import FigureSpec, Section
from dcp.lab.run_collection import FEWEST_SEEDS, METRICS, Collection, Metric
from dcp.lab.statistics import t_interval
from dcp.lab.style import INK, colours, house_style, human_count, step_axis

Columns = Mapping[str, np.ndarray]  # one run's metrics.csv: name -> [evaluations]
XAxis = Literal["steps", "seconds"]
X_COLUMNS: dict[XAxis, str] = {"steps": "env_steps", "seconds": "wall_seconds"}
UNITS = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))


class SeedsCurve(NamedTuple):
    """Statistics over the seeds of one method, at the evaluations that all of them have."""

    steps: np.ndarray  # [K]
    seconds: np.ndarray  # [K]: mean over seeds of the time of that evaluation; nan if one recorded no time
    mean: np.ndarray  # [K]: nan where a seed's value is
    half_width: np.ndarray  # [K]: 95% Student t; nan for fewer than three seeds
    num_seeds: int


def curve(run: Columns, metric: str, x: XAxis = "steps") -> tuple[np.ndarray, np.ndarray]:
    """Return environment steps or seconds [K], and the metric as shown [K]. A missing column is an error."""
    for name in (X_COLUMNS[x], metric):
        if name not in run:
            raise UserError(f"this run recorded no {name!r}: choose one of {', '.join(sorted(run))}")
    factor = METRICS[metric].factor if metric in METRICS else 1.0
    return np.asarray(run[X_COLUMNS[x]], float), factor * np.asarray(run[metric], float)


def over_seeds(runs: Sequence[Columns], metric: str) -> SeedsCurve:
    """Average the seeds. The mean ends with the shortest seed: over fewer seeds it would be another quantity.

    Seeds that were never evaluated at the same step have no mean: K is 0.
    """
    curves = [curve(run, metric) for run in runs]
    steps = np.asarray(sorted(set.intersection(*(set(own.tolist()) for own, _ in curves))))  # [K]
    if not len(steps):
        return SeedsCurve(steps, steps, steps, steps, len(runs))
    rows = [np.searchsorted(own, steps) for own, _ in curves]  # steps increase
    values = np.asarray([measured[at] for (_, measured), at in zip(curves, rows, strict=True)])  # [seeds, K]
    seconds = np.asarray([_seconds(run)[at] for run, at in zip(runs, rows, strict=True)]).mean(axis=0)
    interval = t_interval(values)
    half_width = interval.half_width if len(runs) >= FEWEST_SEEDS else np.full(len(steps), np.nan)
    return SeedsCurve(steps, seconds, interval.mean, half_width, len(runs))


def _seconds(run: Columns) -> np.ndarray:
    return np.asarray(run.get("wall_seconds", np.full(len(run["env_steps"]), np.nan)), float)


def plot_methods(
    axes: Axes,
    methods: Mapping[str, Sequence[Columns]],
    metric: str,
    x: XAxis = "steps",
    colour_of: Mapping[str, str] | None = None,
) -> None:
    """Draw the mean over seeds, its 95% t-interval as a band, and thin lines of seeds; no band below three seeds."""
    colour_of = colour_of or colours(list(methods))
    for label, runs in methods.items():
        if not runs:
            raise UserError(f"{label} has no run to plot: leave it out")
        together, colour = over_seeds(runs, metric), colour_of[label]
        at = together.steps if x == "steps" else together.seconds
        count = "1 seed" if len(runs) == 1 else f"{len(runs)} seeds"
        if len(runs) > 1:
            for run in runs:
                axes.plot(*curve(run, metric, x), color=colour, linewidth=0.7, alpha=0.35, zorder=2)
            low, high = together.mean - together.half_width, together.mean + together.half_width
            axes.fill_between(at, low, high, color=colour, alpha=0.14, linewidth=0, zorder=1)
        if not len(at):
            count += ", never evaluated at the same step"
        dot = "o" if len(at) == 1 or len(runs) == len(methods) == 1 else None  # a line through one point is invisible
        axes.plot(at, together.mean, color=colour, marker=dot, markersize=3.5, label=f"{label} ({count})", zorder=3)
    _dress(axes, metric, x)


def methods_figure(
    methods: Mapping[str, Sequence[Columns]],
    title: str,
    x: XAxis = "steps",
    colour_of: Mapping[str, str] | None = None,  # where several figures must agree beyond the methods' own colours
) -> Figure:
    """Draw both metrics of several methods with several seeds each. A run has a line where it has data."""
    shown: dict[str, dict[str, list[Columns]]] = {}
    for metric in METRICS:
        needed = {metric, "env_steps", X_COLUMNS[x]}
        recorded = {label: [run for run in runs if needed <= run.keys()] for label, runs in methods.items()}
        if any(recorded.values()):
            shown[metric] = {label: runs for label, runs in recorded.items() if runs}
    if not shown:
        raise UserError(f"nothing to plot: no run recorded {X_COLUMNS[x]!r} and one of {', '.join(METRICS)}")
    with house_style():
        figure = Figure(figsize=(4.4 * len(shown), 3.2), layout="constrained")
        figure.suptitle(title, color=INK, fontsize=11)
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, (metric, runs) in zip(panels, shown.items(), strict=True):
            plot_methods(axes, runs, metric, x, colour_of)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    return figure


def strip_figure(collection: Collection) -> Figure:
    """Draw all environments side by side: time near goal above, success below, as the paper's figure 2."""
    shared = colours(collection.methods)
    with house_style():
        figure = Figure(figsize=(3.2 * len(collection.environments) + 0.4, 5.4), layout="constrained")
        grid = figure.subplots(2, len(collection.environments), squeeze=False)
        for column, environment in zip(grid.T, collection.environments, strict=True):
            groups = {m: [r.metrics for r in runs] for (e, m), runs in collection.groups.items() if e == environment}
            for axes, metric in zip(column, reversed(METRICS), strict=True):
                plot_methods(axes, groups, metric, colour_of=shared)
                axes.legend(fontsize=7)
            column[0].set_title(environment, fontsize=10)
    return figure


def _dress(axes: Axes, metric: str, x: XAxis) -> None:
    shown = METRICS.get(metric, Metric(metric, 1.0, None))
    axes.set_ylabel(shown.label)
    (step_axis if x == "steps" else _time_axis)(axes)
    top = shown.top or axes.get_ylim()[1]  # bands may exceed the possible values; the axis does not
    axes.set_ylim(-0.015 * top, 1.015 * top)  # a line at either end keeps its full width
    axes.set_xlim(left=0.0)


def _time_axis(axes: Axes) -> None:
    """Choose the unit that suits the longest run, with ticks at its round numbers."""
    longest = axes.get_xlim()[1]
    unit, name = next(((size, name) for size, name in UNITS if longest >= 2 * size), UNITS[-1])
    rough = longest / unit / 5
    size = 10.0 ** np.floor(np.log10(rough))
    step = size * next(s for s in (1, 2, 2.5, 5, 10) if s * size >= rough)
    axes.xaxis.set_major_locator(MultipleLocator(step * unit))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds / unit:.4g}"))
    axes.set_xlabel(f"Wall-clock time ({name})")


# The panels of a report's page. Statistics are made here; the page's script only draws.

_WORDS = (
    "Bold: mean over seeds. Band: two-sided 95% Student-t interval of the mean. Thin: each seed. A mean is over all "
    "seeds of its method, so it ends where the shortest run ends; over time it is at the seeds' mean time of each "
    "evaluation. Point at a curve for its values, or use the arrow keys."
)
_SWITCHES = (
    ("axis", "Horizontal axis", (("steps", "environment steps"), ("seconds", "wall-clock time"))),
    ("range", "Vertical axis", (("full", "full range"), ("fit", "fit to data"))),
    ("seeds", "Seeds", (("true", "all seeds"), ("false", "only the mean"))),
)


def curve_section(collection: Collection, names: Names, x: XAxis) -> Section:
    """Return the section whose figures are for papers; the page shows `curve_panels` instead."""
    figures = []
    for environment in collection.environments:
        runs = {m: [run.metrics for run in collection.of(environment, m)] for m in collection.methods}
        if any(X_COLUMNS[x] in run for some in runs.values() for run in some):
            present = {method: some for method, some in runs.items() if some}
            make = partial(methods_figure, present, environment, x, names.colours)
            figures.append(FigureSpec(f"curves_{environment}", f"Learning curves on {environment}", make, environment))
    text = _WORDS if collection.environments else "No run has an evaluation yet."
    return Section("Learning curves", "curves", tuple(figures), text=text)


def curve_panels(collection: Collection, names: Names, figures: tuple[FigureSpec, ...]) -> str:
    """Return the places where the page's script draws, with links to the figures' files."""
    if not collection.environments:
        return ""
    groups = []
    for name, label, values in _SWITCHES:
        buttons = (f'<button type="button" data-switch="{name}" data-value="{v}">{text}</button>' for v, text in values)
        groups.append(f'<span class="switch" role="group" aria-label="{label}">{"".join(buttons)}</span>')
    files = {figure.environment: figure_files(figure.name) for figure in figures}
    panels = []
    for at, environment in enumerate(collection.environments):
        charts = "".join(
            f'<figure><figcaption>{metric.label}</figcaption><div data-chart="{at}" data-metric="{key}"></div></figure>'
            for key, metric in METRICS.items()
        )
        notes = escape(" ".join(curve_notes(collection, environment)))
        head = f"<header><h3>{escape(environment)}</h3>{files.get(environment, '')}</header>"
        note = f'<p class="note">{notes}</p>' if notes else ""
        tags = names.tags(environment)
        panels.append(f'<article class="panel"{tags}>{head}\n{note}<div class="pair">{charts}</div></article>\n')
    return f'<div class="controls">{"".join(groups)}</div>\n{"".join(panels)}'


def curve_notes(collection: Collection, environment: str) -> list[str]:
    """Return notes on one environment's curves: single seeds, and means that end before the lines."""
    groups = {method: runs for method in collection.methods if (runs := collection.of(environment, method))}
    alone = [method for method, runs in groups.items() if len(runs) == 1]
    notes = [f"{', '.join(alone)}: one seed, so no interval."] if alone else []
    for method, runs in groups.items():
        shared = set.intersection(*(set(run.metrics["env_steps"].tolist()) for run in runs))
        end, furthest = max(shared, default=0.0), max(run.env_steps for run in runs)
        short = [str(run.seed) for run in runs if run.env_steps < furthest]
        if not shared:
            notes.append(f"{method} has no mean: its seeds were never evaluated at the same step.")
        elif end < furthest:
            seeds = f"seed {', '.join(short)} ended early" if short else "later evaluations are not at the same steps"
            notes.append(f"{method}'s mean ends at {human_count(end)} of {human_count(furthest)} steps: {seeds}.")
    return notes


def curve_data(collection: Collection, names: Names) -> list[dict[str, Any]]:
    """Return one object per environment that has a curve: its groups of seeds, each with its runs and its means."""
    groups: dict[str, list[dict[str, Any]]] = {environment: [] for environment in collection.environments}
    for (environment, method), runs in collection.groups.items():
        metrics, shown = {}, []
        for key in METRICS:
            together = over_seeds([run.metrics for run in runs], key)
            columns = {"steps": (together.steps, 0), "seconds": (together.seconds, 1)}
            columns |= {"mean": (together.mean, 3), "half": (together.half_width, 3)}
            metrics[key] = {name: numbers(*column) for name, column in columns.items()}
        for run in runs:
            values = {key: numbers(metric.factor * run.metrics[key], 3) for key, metric in METRICS.items()}
            steps, seconds = numbers(run.metrics["env_steps"], 0), numbers(_seconds(run.metrics), 1)
            shown.append({"seed": run.seed, "steps": steps, "seconds": seconds, "values": values})
        groups[environment].append({"method": names.methods.index(method), "metrics": metrics, "runs": shown})
    return [{"environment": names.environments.index(env), "groups": some} for env, some in groups.items()]


def numbers(values: Iterable[float], digits: int) -> list[float | int | None]:
    """Round for JSON: what is not finite is null, which the script draws as a gap."""
    rounded = [round(float(value), digits) if np.isfinite(value) else None for value in values]
    return [int(value) if value is not None and value == int(value) else value for value in rounded]
