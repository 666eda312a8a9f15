"""The four methods of the table on both point mazes, five seeds each, at the paper's literal settings.

`make.py` calls this: tables for docs/results.md, and two figures beside this file.
"""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from dcp.lab.curves import Columns, plot_methods
from dcp.lab.run_collection import METRICS
from dcp.lab.statistics import bootstrap, holm, interquartile_mean, paired_test, probability_of_improvement, t_interval
from dcp.lab.style import INK, colours, house_style

Runs = Mapping[str, Mapping[str, list[Columns]]]  # study -> label -> one record per seed

METHODS = ("dcp", "ssgc", "dcp_no_pool", "crl")
# The paper's literal settings: nobody is commanded g but where the method says so.
LABELS = {
    "point_u_maze": {"dcp": "dcp, paper's share 0", "ssgc": "ssgc, paper's share 0"},
    "point_big_maze": {"dcp": "dcp, paper", "ssgc": "ssgc, paper"},
}
EPISODE = 250  # steps
SCALE = {"success_once": 1.0, "time_near_goal": 1.0 / EPISODE}  # -> scores between 0 and 1


def of(runs: Runs, maze: str, method: str) -> list[Columns]:
    return runs[maze][LABELS[maze].get(method, method)]


def last(runs: Runs, maze: str, method: str, metric: str) -> np.ndarray:
    """[seeds]: the last evaluation, between 0 and 1"""
    return SCALE[metric] * np.array([run[metric][-1] for run in of(runs, maze, method)])


def whole(runs: Runs, maze: str, method: str, metric: str) -> np.ndarray:
    """[seeds]: the mean over all ten evaluations, which forgives a last one that swings"""
    return SCALE[metric] * np.array([run[metric].mean() for run in of(runs, maze, method)])


def results_table(runs: Runs) -> str:
    head = ["", *(f"{maze}: {what}" for maze in LABELS for what in ("success (%)", "time near goal", "mean success"))]
    lines = [_line(head), "|---" * len(head) + "|"]
    for method in METHODS:
        cells = [method]
        for maze in LABELS:
            cells.append(str(t_interval(100 * last(runs, maze, method, "success_once"))))
            cells.append(str(t_interval(EPISODE * last(runs, maze, method, "time_near_goal"))))
            cells.append(str(t_interval(100 * whole(runs, maze, method, "success_once"))))
        lines.append(_line(cells))
    return "\n".join(lines)


def overall_table(runs: Runs) -> str:
    """Both mazes together: interquartile means of success, with stratified bootstrap intervals."""
    lines = [_line(["", "last evaluation", "mean over the run", "time near goal, last"]), "|---" * 4 + "|"]
    for method in METHODS:
        cells = [method]
        for values, metric in ((last, "success_once"), (whole, "success_once"), (last, "time_near_goal")):
            found = bootstrap(interquartile_mean, [values(runs, maze, method, metric) for maze in LABELS])
            cells.append(f"{100 * found.mean:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]")
        lines.append(_line(cells))
    return "\n".join(lines)


def improvement(runs: Runs, other: str, values=last):
    """That a run of DCP beats a run of the other method, in success, over both mazes."""
    ours, theirs = ([values(runs, maze, name, "success_once") for maze in LABELS] for name in ("dcp", other))
    return bootstrap(probability_of_improvement, ours, theirs)


def against_table(runs: Runs) -> str:
    """DCP against each of the others: probability of improvement, and a paired test over seeds in each maze."""
    others = [method for method in METHODS if method != "dcp"]
    head = ["dcp against", "P(improvement), last", "P(improvement), mean over the run"]
    head += [f"{maze}: last, points" for maze in LABELS] + [f"{maze}: p (Holm)" for maze in LABELS]
    tests = [_paired(runs, maze, other) for other in others for maze in LABELS]
    corrected = holm([test.p_value for test in tests])
    rows = []
    for at, other in enumerate(others):
        mine = slice(2 * at, 2 * at + 2)
        chances = [improvement(runs, other, values) for values in (last, whole)]
        cells = [f"{p.mean:.2f} [{p.low:.2f}, {p.high:.2f}]" for p in chances]
        cells += [str(test.difference) for test in tests[mine]]
        cells += [_p(test.p_value, p) for test, p in zip(tests[mine], corrected[mine], strict=True)]
        rows.append(_line([other, *cells]))
    return "\n".join([_line(head), "|---" * len(head) + "|", *rows])


def _paired(runs: Runs, maze: str, other: str):
    sides = [dict(enumerate(100 * last(runs, maze, name, "success_once"))) for name in ("dcp", other)]
    found = paired_test(*sides)
    assert found is not None
    return found


def _p(plain: float, corrected: float) -> str:
    return f"{plain:.3f} ({corrected:.2f})"


def curves_figure(runs: Runs) -> Figure:
    with house_style():
        figure = Figure(figsize=(9.2, 5.9), layout="constrained")
        panels = figure.subplots(len(LABELS), len(METRICS), squeeze=False)
        for row, maze in zip(panels, LABELS, strict=True):
            for axes, metric in zip(row, METRICS, strict=True):
                plot_methods(axes, {method: of(runs, maze, method) for method in METHODS}, metric)
                axes.set_title(maze)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def overall_figure(runs: Runs) -> Figure:
    """Interquartile means, and the probability that DCP improves on each of the others."""
    colour = colours(list(METHODS))
    with house_style():
        figure = Figure(figsize=(9.2, 2.5), layout="constrained")
        left, right = figure.subplots(1, 2)
        for at, method in enumerate(METHODS):
            found = bootstrap(interquartile_mean, [last(runs, maze, method, "success_once") for maze in LABELS])
            _whisker(left, at, 100 * np.array(found[:3]), colour[method])
        others = [method for method in METHODS if method != "dcp"]
        for at, other in enumerate(others):
            _whisker(right, at, np.array(improvement(runs, other)[:3]), colour[other])
        left.set_xlabel("Interquartile mean of success, last evaluation (%)")
        left.set_xlim(0, 102)
        right.set_xlabel("Probability that a run of dcp beats one of ...")
        right.set_xlim(0.0, 1.02)
        right.axvline(0.5, color=INK, linewidth=0.9, linestyle="--")
        for axes, names in ((left, METHODS), (right, others)):
            axes.set_yticks(range(len(names)), names)
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.grid(axis="y", visible=False)
    return figure


def _whisker(axes, at: int, estimate: np.ndarray, colour: str) -> None:
    value, low, high = estimate  # an Interval's first three
    axes.plot([low, high], [at, at], color=colour, linewidth=6, alpha=0.35, solid_capstyle="butt")
    axes.plot([value], [at], marker="o", markersize=7, color=colour)


def swings(runs: Runs) -> dict[str, float]:
    """For the words: how far success moves between two evaluations in a row, in points, on average."""
    steps = {
        method: [
            abs(b - a) for maze in LABELS for run in of(runs, maze, method) for a, b in pairwise(run["success_once"])
        ]
        for method in METHODS
    }
    return {method: 100 * float(np.mean(found)) for method, found in steps.items()}


def _line(cells) -> str:
    return "| " + " | ".join(cells) + " |"
