"""Draw a figure of docs/results_paper.md and print its table: success over minutes of one core, by updates and batch.

    python -m tools.docs.success_per_minute collect RUNS_DIR  # runs of the grid file -> success_per_minute.csv
    python -m tools.docs.success_per_minute cost              # what an iteration costs -> ..._cost.csv
    python -m tools.docs.success_per_minute                   # the table and the figure, from these two

The grid file is success_per_minute.toml. Its first setting is the paper's, whose runs are those of the ledger.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dcp.files.run_folder import load_run
from dcp.lab.paper_values import settings_apart
from dcp.lab.style import house_style, save
from tools.docs import iteration_cost as cost
from tools.docs.pages import RESULTS, ROOT

GRID, DATA = RESULTS / "success_per_minute.toml", RESULTS / "success_per_minute.csv"
COSTS = RESULTS / "success_per_minute_cost.csv"
LEDGER, PAPER = ROOT / "ledger/ant_u_maze/dcp", "1998x256"
MINUTES = 90.0
MEASURES = {"success_once": "success (%)", "time_near_goal": "steps near the goal"}
COLUMNS = ("env_steps", "updates", *MEASURES)
Curve = dict[str, np.ndarray]  # a column of metrics.csv by its name, and "minutes"


def collect(folder: Path) -> None:
    """Write every evaluation of the grid's runs as a row."""
    with DATA.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["setting", "seed", *COLUMNS])
        for path in sorted(folder.glob("*x*/*/*/seed_*/metrics.csv")):
            setting, seed = path.parents[3].name, path.parent.name.removeprefix("seed_")
            with path.open(newline="") as metrics:
                rows = list(csv.DictReader(metrics))
            writer.writerows([setting, seed, *(f"{float(row[name]):.6g}" for name in COLUMNS)] for row in rows)


def read() -> dict[str, list[Curve]]:
    """-> setting -> a curve per seed, up to so many minutes of one core; the paper's setting from the ledger"""
    rows: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for path in sorted(LEDGER.glob("seed_*/metrics.csv")):
        if settings_apart(load_run(path.parent).config):
            continue
        with path.open(newline="") as file:
            rows[PAPER, path.parent.name] = list(csv.DictReader(file))
    with DATA.open(newline="") as file:
        for row in csv.DictReader(file):
            rows[row["setting"], row["seed"]].append(row)
    costs = {name.split("/", 1)[0]: one for name, one in cost.read(COSTS).items()}
    curves: dict[str, list[Curve]] = defaultdict(list)
    for (setting, _), records in rows.items():
        curve = {name: np.array([float(record[name]) for record in records]) for name in COLUMNS}
        curve["success_once"] *= 100
        curve["minutes"] = costs[setting].minutes(curve["updates"])
        curves[setting].append({name: column[curve["minutes"] <= 1.01 * MINUTES] for name, column in curve.items()})
    return curves


def draw(curves: dict[str, list[Curve]]) -> Figure:
    with house_style():
        figure = Figure(figsize=(8.0, 3.2), layout="constrained")
        for axes, (measure, label) in zip(figure.subplots(1, 2), MEASURES.items(), strict=True):
            for number, (setting, seeds) in enumerate(curves.items()):
                for seed in seeds:
                    name = setting if seed is seeds[0] else None
                    axes.plot(seed["minutes"], seed[measure], color=f"C{number}", label=name)
            axes.set_xlabel("minutes of one core")
            axes.set_title(label)
        axes.legend(title="updates x batch")
    return figure


def table(curves: dict[str, list[Curve]]) -> str:
    """Compare the settings at the minutes that all have reached: means over the evaluations of the last third of it."""
    common = min(seed["minutes"][-1] for seeds in curves.values() for seed in seeds)
    head = [
        "updates x batch",
        "seeds",
        "steps",
        *(f"{label}, up to {common:.0f} minutes" for label in MEASURES.values()),
    ]
    head += ["minutes in all", "last evaluation (%)"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for setting, seeds in curves.items():
        cells = [setting.replace("x", " x "), str(len(seeds))]
        cells.append(f"{_mean(seeds, 'env_steps', common, np.max) / 1e6:.1f}M")
        cells.append(f"{_mean(seeds, 'success_once', common):.1f}")
        cells.append(f"{_mean(seeds, 'time_near_goal', common):.0f}")
        cells.append(f"{min(seed['minutes'][-1] for seed in seeds):.0f}")
        cells.append(", ".join(f"{seed['success_once'][-1]:.1f}" for seed in seeds))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(seeds: list[Curve], name: str, end: float, over: Callable[[np.ndarray], Any] = np.mean) -> float:
    """Return the mean over seeds of a column's mean (or its `over`) in the last third of the time until `end`."""
    late = [(seed["minutes"] >= end * 2 / 3) & (seed["minutes"] <= end) for seed in seeds]
    return float(np.mean([over(seed[name][where]) for seed, where in zip(seeds, late, strict=True)]))


def main(arguments: list[str]) -> None:
    match arguments:
        case ["collect", folder]:
            collect(Path(folder))
        case ["cost"]:
            cost.write(cost.measure(cost.settings_of(GRID), rounds=3), COSTS)
        case _:
            curves = read()
            save(draw(curves), RESULTS / "success_per_minute.png")
            print(table(curves))


if __name__ == "__main__":
    main(sys.argv[1:])
