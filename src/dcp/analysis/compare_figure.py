"""Two runs' curves over each other, and their difference below; the section of a report on exactly two runs."""

from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dcp.analysis.collection import Collection
from dcp.analysis.compare_runs import Comparison, compare
from dcp.analysis.compare_tables import comparison_tables
from dcp.analysis.curves import METRICS, curve
from dcp.analysis.sections import FigureSpec, Section
from dcp.analysis.style import BLUE, INK, ORANGE, colours, house_style, step_axis
from dcp.errors import UserError


def comparison_figure(found: Comparison) -> Figure:
    if not found.metrics:
        raise UserError("nothing to plot: one of the two runs has no evaluation yet")
    with house_style():
        figure = Figure(figsize=(4.6 * len(found.metrics), 4.3), layout="constrained")
        panels = figure.subplots(2, len(found.metrics), squeeze=False, height_ratios=[3, 1.2], sharex="col")
        for (above, below), metric in zip(panels.T, found.metrics, strict=True):
            _draw_curves(above, found, metric)
            _draw_difference(below, found, metric)
        figure.suptitle(_title(found), fontsize=11)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def _title(found: Comparison) -> str:
    """What the two have in common."""
    a, b = found.a.run, found.b.run
    parts = [(a.env, b.env), (a.method, b.method), (f"seed {a.seed}", f"seed {b.seed}")]
    return ", ".join(x for x, y in parts if x == y)


def _colours(found: Comparison) -> tuple[str, str]:
    """A method keeps its colour; two runs of one method are blue and orange."""
    a, b = found.a.run.method, found.b.run.method
    known = colours([a, b])
    return (known[a], known[b]) if a != b else (BLUE, ORANGE)


def _draw_curves(axes: Axes, found: Comparison, metric: str) -> None:
    shown = METRICS[metric]
    marks = zip((found.a, found.b), found.names, _colours(found), ("o", "s"), ("-", "--"), strict=True)
    for side, name, colour, marker, line in marks:  # told apart in grey print, too
        steps, values = curve(side.run.metrics, metric)
        axes.plot(steps, values, line, color=colour, marker=marker, markersize=3.8, label=name)
    axes.set_ylabel(shown.label)
    top = shown.top or max(axes.get_ylim()[1], 1e-9)
    axes.set_ylim(-0.02 * top, 1.02 * top)
    axes.set_xlim(left=0.0)


def _draw_difference(axes: Axes, found: Comparison, metric: str) -> None:
    shared = found.shared(metric)
    colour_a, colour_b = _colours(found)
    gap = shared.a - shared.b
    axes.axhline(0.0, color=INK, linewidth=0.8)
    axes.vlines(shared.steps, 0.0, gap, color=[colour_a if value > 0 else colour_b for value in gap], linewidth=3.0)
    if not len(shared.steps):
        axes.text(0.5, 0.5, "no common evaluation", transform=axes.transAxes, ha="center", va="center", fontsize=9)
    axes.set_ylabel("A - B")
    axes.margins(y=0.15)
    step_axis(axes)


def sections(collection: Collection) -> list[Section]:
    """Nothing unless the report is about exactly two runs."""
    runs = [run for run in collection.runs if not run.is_damaged]
    if len(runs) != 2:
        return []
    found = compare(runs[0].folder, runs[1].folder)
    caption = "Both runs over each other; below, A less B at the evaluations that both had."
    figures = (FigureSpec("compare", caption, partial(comparison_figure, found)),) if found.metrics else ()
    words = f"A is {runs[0].folder}, B is {runs[1].folder}."
    return [Section("The two runs", "compare", figures, tuple(comparison_tables(found)), words)]
