"""Success over minutes of one core, by updates per iteration and batch: a table and a figure of docs/results_paper.md.

    python docs/results/success_per_minute.py collect RUNS_DIR  # runs of the grid file -> success_per_minute.csv
    python docs/results/success_per_minute.py cost              # what an iteration costs -> ..._cost.csv
    python docs/results/success_per_minute.py                   # the table and the figure, from these two

The grid file is success_per_minute.toml. Its first setting is the paper's, whose runs are those of the ledger.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import cost
import numpy as np
from make import HERE, put
from matplotlib.figure import Figure

from dcp.analysis.style import house_style, save
from dcp.ledger.tables import has_papers_settings
from dcp.run_folder import load_run

GRID, DATA = HERE / "success_per_minute.toml", HERE / "success_per_minute.csv"
COSTS = HERE / "success_per_minute_cost.csv"
LEDGER, PAPER = HERE.parents[1] / "results/ant_u_maze/dcp", "1998x256"
MINUTES = 90.0
MEASURES = {"success_once": "success", "time_near_goal": "steps near the goal"}
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
        if not has_papers_settings(load_run(path.parent).config):
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
    """Means over seeds of each setting, over the evaluations of the last third of the time."""
    head = ["updates x batch", "seeds", "steps", "minutes", "success (%)", "steps near the goal"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for setting, seeds in curves.items():
        late = [seed["minutes"] >= MINUTES * 2 / 3 for seed in seeds]
        means = [
            np.mean([np.mean(s[m][where]) if where.any() else s[m][-1] for s, where in zip(seeds, late, strict=True)])
            for m in MEASURES
        ]
        steps = np.mean([seed["env_steps"][-1] for seed in seeds]) / 1e6
        reached = np.mean([seed["minutes"][-1] for seed in seeds])
        cells = [setting.replace("x", " x "), len(seeds), f"{steps:.1f}M", f"{reached:.0f}"]
        cells += [f"{100 * means[0]:.1f}", f"{means[1]:.0f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["collect", folder]:
            collect(Path(folder))
        case ["cost"]:
            cost.write(cost.measure(cost.settings_of(GRID), rounds=3), COSTS)
        case _:
            curves = read()
            save(draw(curves), HERE / "success_per_minute.png")
            put("success_per_minute", table(curves))


if __name__ == "__main__":
    main(sys.argv[1:])
