"""DCP and CRL on ant_u_maze at the paper's settings: the figure and table of docs/results.md.

    python docs/results/ant_u_maze.py collect RUNS_DIR     # run folders -> docs/results/ant_u_maze.csv
    python docs/results/ant_u_maze.py                      # the figure and the table, from the CSV alone

The runs: dcp train --env ant_u_maze --method M --preset paper --steps 5000000 --num-evals 10 --devices 1, one a core.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from make import HERE, PAGE, put
from matplotlib.figure import Figure

from dcp.analysis.curves import METRICS, Columns, methods_figure
from dcp.analysis.style import colours, save

CSV = HERE / "ant_u_maze.csv"
KEPT = ("env_steps", "success_once", "time_near_goal", "final_distance", "infonce_accuracy", "cells_visited")
COUNTS = ("diverged_episodes", "eval_diverged_episodes", "steps_per_second", "wall_seconds")
PAPER_STEPS = 10_000_000
PAPER = {  # the paper's tables at 10M steps: mean and 95% half-width over five seeds
    "dcp": {"success_once": (40.4, 9.5), "time_near_goal": (195.3, 58.0)},
    "crl": {"success_once": (26.8, 4.5), "time_near_goal": (161.9, 33.1)},
}


def collect(runs: Path) -> None:
    with CSV.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["method", "seed", *KEPT, *COUNTS])
        writer.writeheader()
        for record in sorted(runs.glob("ant_u_maze/*/seed_*/metrics.csv")):
            method, seed = record.parts[-3], record.parts[-2].removeprefix("seed_")
            with record.open(newline="") as source:
                for row in csv.DictReader(source):
                    values = {name: f"{float(row[name]):.6g}" for name in (*KEPT[1:], *COUNTS)}
                    writer.writerow(
                        {"method": method, "seed": seed, "env_steps": int(float(row["env_steps"])), **values}
                    )


def read() -> dict[str, list[Columns]]:
    with CSV.open(newline="") as file:
        rows = list(csv.DictReader(file))
    runs: dict[str, list[Columns]] = {}
    for method in ("dcp", "crl"):
        for seed in sorted({row["seed"] for row in rows if row["method"] == method}):
            mine = [row for row in rows if (row["method"], row["seed"]) == (method, seed)]
            columns = {name: np.array([float(row[name]) for row in mine]) for name in (*KEPT, *COUNTS)}
            runs.setdefault(method, []).append(columns)
    return runs


def figure(runs: dict[str, list[Columns]]) -> Figure:
    """Our curves, and the paper's values at 10M with their intervals."""
    drawn = methods_figure(runs, "ant_u_maze, the paper's settings; dots with bars: the paper at 10M, five seeds")
    colour_of = colours(list(runs))
    for axes, metric in zip(drawn.axes, METRICS, strict=True):
        for shift, method in enumerate(runs):
            mean, half = PAPER[method][metric]
            at = PAPER_STEPS * (1.0 - 0.012 * shift)
            axes.errorbar(at, mean, half, color=colour_of[method], fmt="o", capsize=3, markersize=4)
        axes.set_xlim(0, 1.03 * PAPER_STEPS)
        if METRICS[metric].top is None:
            axes.set_ylim(0, 1.05 * max(sum(PAPER[m][metric]) for m in runs))
    return drawn


def table(runs: dict[str, list[Columns]]) -> str:
    head = ["environment steps", *(f"{m}: {what}" for m in runs for what in ("success (%)", "time near goal"))]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    first = {m: seeds[0] for m, seeds in runs.items()}
    for i in range(min(len(run["env_steps"]) for run in first.values())):
        cells = [f"{int(next(iter(first.values()))['env_steps'][i]):,}"]
        for run in first.values():
            cells += [f"{100 * run['success_once'][i]:.1f}", f"{run['time_near_goal'][i]:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    paper = [f"{mean} ± {half}" for m in runs for mean, half in (PAPER[m][metric] for metric in METRICS)]
    lines.append("| " + " | ".join(["the paper, 10,000,000 (five seeds)", *paper]) + " |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["collect"]:
        collect(Path(arguments[1]))
    runs = read()
    save(figure(runs), HERE / "ant_u_maze.png")
    PAGE.write_text(put(PAGE.read_text(), "ant", table(runs)))


if __name__ == "__main__":
    main(sys.argv[1:])
