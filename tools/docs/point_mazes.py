"""Make the figures and tables of docs/results.md from point_mazes.csv alone.

    python -m tools.docs.point_mazes

Tables go between the page's markers `<!-- NAME -->` and `<!-- /NAME -->`; the words around them are ours.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from dcp.lab.curves import Columns, methods_figure, plot_methods
from dcp.lab.run_collection import METRICS
from dcp.lab.statistics import holm, paired_test, t_interval
from dcp.lab.style import BLUE, GREEN, INK, ORANGE, colours, house_style, save
from tools.docs.aggregates import bootstrap, interquartile_mean, probability_of_improvement
from tools.docs.pages import RESULTS, put

Runs = Mapping[str, Mapping[str, list[Columns]]]  # study -> label -> one record per seed

U_FIGURE = ["dcp", "crl", "ssgc", "dcp_no_pool"]
SWITCHES = {
    "Memory of the pool (episodes)": [("1/4", "memory 1/4"), ("1", "paper"), ("4", "memory 4")],
    "Scoring rule": [("inner\nproduct", "paper"), ("cosine", "cosine"), ("energy", "energy"), ("on path", "on_path")],
    "Share commanded g": [
        ("0", "paper"),
        ("0.25", "share 0.25"),
        ("0.5", "share 0.5"),
        ("0.75", "share 0.75"),
        ("1", "share 1"),
    ],
}


def read() -> Runs:
    rows: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    with (RESULTS / "point_mazes.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            rows[row.pop("study"), row.pop("label"), row.pop("seed")].append(row)
    runs: dict[str, dict[str, list[Columns]]] = defaultdict(lambda: defaultdict(list))
    for (study, label, _), records in rows.items():
        columns = {name: np.array([float(r[name]) for r in records]) for name in records[0] if records[0][name]}
        runs[study][label].append(columns)
    return runs


def u_table(u: Mapping[str, list[Columns]], labels: list[str]) -> str:
    """At the last evaluation, and the mean over all ten."""
    head = ["", "success at least once (%)", "mean over the run (%)"]
    lines = [_line(head), "|---" * len(head) + "|"]
    for label in labels:
        success = [100 * run["success_once"] for run in u[label]]
        values = [run[-1] for run in success], [run.mean() for run in success]
        lines.append(_line([label, *(str(t_interval(column)) for column in values)]))
    return "\n".join(lines)


def switches_table(big: Mapping[str, list[Columns]]) -> str:
    """Success of DCP and SSGC at each switch, and their difference by seed: only the condition differs."""
    lines = ["| switch | dcp (%) | ssgc (%) | dcp minus ssgc (points) |", "|---|---|---|---|"]
    for key in dict.fromkeys(key for rows in SWITCHES.values() for _, key in rows):
        dcp, ssgc = ([100 * run["success_once"][-1] for run in big[f"{method}, {key}"]] for method in ("dcp", "ssgc"))
        gaps = [ours - theirs for ours, theirs in zip(dcp, ssgc, strict=True)]
        lines.append(_line([key, *(str(t_interval(values)) for values in (dcp, ssgc, gaps))]))
    return "\n".join(lines)


def switches_figure(big: Mapping[str, list[Columns]]) -> Figure:
    """Success on the big maze, one switch at a time around the paper's literal point."""
    with house_style():
        figure = Figure(figsize=(10.5, 3.3), layout="constrained")
        panels = figure.subplots(1, len(SWITCHES), sharey=True, width_ratios=[len(rows) for rows in SWITCHES.values()])
        for axes, (title, rows) in zip(panels, SWITCHES.items(), strict=True):
            for method, colour, shift in (("dcp", BLUE, -0.08), ("ssgc", GREEN, 0.08)):
                means = [t_interval([100 * r["success_once"][-1] for r in big[f"{method}, {key}"]]) for _, key in rows]
                at = np.arange(len(rows)) + shift
                half = [interval.half_width for interval in means]
                axes.errorbar(at, [i.mean for i in means], half, color=colour, fmt="o", capsize=3, label=method)
                for x, (_, key) in zip(at, rows, strict=True):
                    seeds = [100 * run["success_once"][-1] for run in big[f"{method}, {key}"]]
                    axes.plot([x + shift] * len(seeds), seeds, ".", color=colour, alpha=0.35, markersize=4)
            crl = t_interval([100 * run["success_once"][-1] for run in big["crl"]]).mean
            axes.axhline(crl, color=ORANGE, linestyle="--", linewidth=1.2, label="crl, mean", zorder=1)
            axes.set_xticks(range(len(rows)), [name for name, _ in rows])
            axes.set_title(title)
            axes.set_ylim(-2, 102)
        panels[0].set_ylabel("Success at least once (%)")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        return figure


# The four methods on both point mazes, five seeds each, at the paper's literal settings.


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


def four_methods_table(runs: Runs) -> str:
    head = ["", *(f"{maze}: {what}" for maze in LABELS for what in ("success (%)", "mean success"))]
    lines = [_line(head), "|---" * len(head) + "|"]
    for method in METHODS:
        cells = [method]
        for maze in LABELS:
            cells.append(str(t_interval(100 * last(runs, maze, method, "success_once"))))
            cells.append(str(t_interval(100 * whole(runs, maze, method, "success_once"))))
        lines.append(_line(cells))
    return "\n".join(lines)


def overall_table(runs: Runs) -> str:
    """Both mazes together: interquartile means of success, with stratified bootstrap intervals."""
    lines = [_line(["", "last evaluation", "mean over the run", "time near goal, last"]), "|---" * 4 + "|"]
    for method in METHODS:
        cells = [method]
        for values, metric in ((last, "success_once"), (whole, "success_once"), (last, "time_near_goal")):
            interval = bootstrap(interquartile_mean, [values(runs, maze, method, metric) for maze in LABELS])
            cells.append(f"{100 * interval.mean:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]")
        lines.append(_line(cells))
    return "\n".join(lines)


def improvement(runs: Runs, other: str):
    """That a run of DCP beats a run of the other method, in success, over both mazes."""
    ours, theirs = ([last(runs, maze, name, "success_once") for maze in LABELS] for name in ("dcp", other))
    return bootstrap(probability_of_improvement, ours, theirs)


def against_table(runs: Runs) -> str:
    """DCP against each of the others: probability of improvement, and a paired test over seeds in each maze."""
    others = [method for method in METHODS if method != "dcp"]
    head = ["dcp against", "P(improvement)"]
    head += [f"{maze}: points" for maze in LABELS] + [f"{maze}: p (Holm)" for maze in LABELS]
    tests = [_paired(runs, maze, other) for other in others for maze in LABELS]
    corrected = holm([test.p_value for test in tests])
    rows = []
    for at, other in enumerate(others):
        mine = slice(2 * at, 2 * at + 2)
        chance = improvement(runs, other)
        cells = [f"{chance.mean:.2f} [{chance.low:.2f}, {chance.high:.2f}]"]
        cells += [str(test.difference) for test in tests[mine]]
        cells += [_p(test.p_value, p) for test, p in zip(tests[mine], corrected[mine], strict=True)]
        rows.append(_line([other, *cells]))
    return "\n".join([_line(head), "|---" * len(head) + "|", *rows])


def _paired(runs: Runs, maze: str, other: str):
    sides = [dict(enumerate(100 * last(runs, maze, name, "success_once"))) for name in ("dcp", other)]
    test = paired_test(*sides)
    assert test is not None
    return test


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
            interval = bootstrap(interquartile_mean, [last(runs, maze, method, "success_once") for maze in LABELS])
            _whisker(left, at, 100 * np.array(interval[:3]), colour[method])
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
    return {method: 100 * float(np.mean(changes)) for method, changes in steps.items()}


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    runs = read()
    u, big = runs["point_u_maze"], runs["point_big_maze"]
    save(methods_figure({label: u[label] for label in U_FIGURE}, "point_u_maze, far goals"), RESULTS / "u_maze.png")
    save(switches_figure(big), RESULTS / "big_maze_switches.png")
    save(curves_figure(runs), RESULTS / "four_methods.png")
    save(overall_figure(runs), RESULTS / "four_methods_overall.png")
    put("four", four_methods_table(runs))
    print(overall_table(runs))
    put("against", against_table(runs))
    put("u", u_table(u, _u_order(u)))
    put("big", switches_table(big))


def _u_order(u: Mapping[str, list[Columns]]) -> list[str]:
    first = ["dcp", "dcp, paper's share 0", "crl", "ssgc", "ssgc, paper's share 0", "dcp_no_pool"]
    return [*first, *[label for label in ("crl-commanded", "dcp-future") if label in u]]


if __name__ == "__main__":
    main()
