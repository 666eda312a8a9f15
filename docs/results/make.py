"""The figures and tables of docs/results*.md, from docs/results/point_mazes.csv alone.

    python docs/results/make.py

Tables go between the markers `<!-- NAME -->` and `<!-- /NAME -->` of docs/results*.md; the words around them are ours.
"""

import csv
import re
from collections import defaultdict
from pathlib import Path

import four_methods
import numpy as np
from matplotlib.figure import Figure

from dcp.lab.curves import Columns, methods_figure
from dcp.lab.statistics import t_interval
from dcp.lab.style import BLUE, GREEN, ORANGE, house_style, save

HERE = Path(__file__).parent
Runs = dict[str, dict[str, list[Columns]]]  # study -> label -> one record per seed

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
    with (HERE / "point_mazes.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            rows[row.pop("study"), row.pop("label"), row.pop("seed")].append(row)
    runs: Runs = defaultdict(lambda: defaultdict(list))
    for (study, label, _), records in rows.items():
        columns = {name: np.array([float(r[name]) for r in records]) for name in records[0] if records[0][name]}
        runs[study][label].append(columns)
    return runs


def final(seeds: list[Columns], metric: str, factor: float = 1.0) -> str:
    """The last evaluation, mean and 95% t-interval; a dash where it was not recorded."""
    if metric not in seeds[0]:
        return "-"
    return str(t_interval([factor * run[metric][-1] for run in seeds]))


def table(study: dict[str, list[Columns]], labels: list[str]) -> str:
    head = ["", "success at least once (%)", "time near goal", "InfoNCE accuracy (%)", "cells visited (%)", "seeds"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for label in labels:
        seeds = study[label]
        cells = [
            label,
            final(seeds, "success_once", 100.0),
            final(seeds, "time_near_goal"),
            final(seeds, "infonce_accuracy", 100.0),
            final(seeds, "cells_visited", 100.0),
            str(len(seeds)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def pool_table(study: dict[str, list[Columns]], labels: list[str]) -> str:
    """What the pool did, at the end of training."""
    names = {"pool_spread": "pool's spread", "state_to_subgoal": "s to z", "subgoal_to_goal": "z to g"}
    head = ["", *names.values(), "steps at z (%)", "training steps near g (%)"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for label in labels:
        seeds = study[label]
        cells = [_two_digits(seeds, name) for name in names]
        cells += [final(seeds, "time_at_subgoal", 100.0), final(seeds, "train_near_goal", 100.0)]
        lines.append("| " + " | ".join([label, *cells]) + " |")
    return "\n".join(lines)


def paired_table(big: dict[str, list[Columns]]) -> str:
    """DCP minus SSGC at the same switch and seed: only the condition differs."""
    lines = ["| switch | DCP - SSGC, success (points) |", "|---|---|"]
    for key in dict.fromkeys(key for rows in SWITCHES.values() for _, key in rows):
        pairs = zip(big[f"dcp, {key}"], big[f"ssgc, {key}"], strict=True)
        gaps = [100 * (dcp["success_once"][-1] - ssgc["success_once"][-1]) for dcp, ssgc in pairs]
        lines.append(f"| {key} | {t_interval(gaps)} |")
    return "\n".join(lines)


def speed_table(u: dict[str, list[Columns]], labels: list[str]) -> str:
    """Success at the third of ten evaluations, and the mean over all ten."""
    lines = ["| | success at 984,064 steps (%) | mean over the run (%) |", "|---|---|---|"]
    for label in labels:
        early = t_interval([100 * run["success_once"][2] for run in u[label]])
        lines.append(f"| {label} | {early} | {t_interval([100 * run['success_once'].mean() for run in u[label]])} |")
    return "\n".join(lines)


def _two_digits(seeds: list[Columns], metric: str) -> str:
    interval = t_interval([run[metric][-1] for run in seeds])
    return f"{interval.mean:.2f} ± {interval.half_width:.2f}"


def switches_figure(big: dict[str, list[Columns]]) -> Figure:
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


def put(name: str, text: str) -> None:
    """Write a table between its markers, into whichever of the pages docs/results*.md has them."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    places = [page for page in HERE.parent.glob("results*.md") if pattern.search(page.read_text())]
    if len(places) != 1:
        raise SystemExit(f"{len(places)} pages docs/results*.md have <!-- {name} --> and <!-- /{name} -->: one must")
    places[0].write_text(pattern.sub(lambda found: found[1] + text + "\n" + found[2], places[0].read_text()))


def main() -> None:
    runs = read()
    u, big = runs["point_u_maze"], runs["point_big_maze"]
    save(methods_figure({label: u[label] for label in U_FIGURE}, "point_u_maze, far goals"), HERE / "u_maze.png")
    save(switches_figure(big), HERE / "big_maze_switches.png")
    save(four_methods.curves_figure(runs), HERE / "four_methods.png")
    save(four_methods.overall_figure(runs), HERE / "four_methods_overall.png")
    pooled = [label for label in big if "pool_spread" in big[label][0]]
    order = [f"{method}, {key}" for method in ("dcp", "ssgc") for _, rows in SWITCHES.items() for _, key in rows]
    labels = [*dict.fromkeys(order), "crl", "dcp_no_pool"]
    put("four", four_methods.results_table(runs))
    put("overall", four_methods.overall_table(runs))
    put("against", four_methods.against_table(runs))
    put("u", table(u, _u_order(u)))
    put("speed", speed_table(u, _u_order(u)))
    put("paired", paired_table(big))
    put("big", table(big, labels))
    put("pool", pool_table(big, [label for label in labels if label in pooled]))


def _u_order(u: dict[str, list[Columns]]) -> list[str]:
    first = ["dcp", "dcp, paper's share 0", "crl", "ssgc", "ssgc, paper's share 0", "dcp_no_pool"]
    return [*first, *[label for label in ("crl-commanded", "dcp-future") if label in u]]


if __name__ == "__main__":
    main()
