"""Every critic with and without a direction and a pool: the tables of docs/results_critics.md, from critics.csv alone.

python docs/results/critics.py collect RUNS_DIR   # the runs of critics.toml -> docs/results/critics.csv
python docs/results/critics.py                    # the tables and the figure, from that CSV
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from make import HERE, put
from matplotlib.figure import Figure

from dcp.analysis.style import colours, house_style, save
from dcp.statistics import t_interval

DATA = HERE / "critics.csv"
CELLS = {
    "crl": "raw goal, no pool",
    "ssgc": "raw goal, pool",
    "dcp_no_pool": "direction, no pool",
    "dcp": "direction, pool",
}
COLUMNS = ("env_steps", "updates", "time_near_goal", "success_once", "wall_seconds")
Curve = dict[str, np.ndarray]  # a column of metrics.csv by its name
Runs = dict[tuple[str, str], list[Curve]]  # (critic, method) -> a curve per seed


def collect(folder: Path) -> None:
    """Write every evaluation of every finished run as a row."""
    with DATA.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["env", "method", "critic", "seed", *COLUMNS])
        for path in sorted(folder.glob("*/*-*/seed_*/metrics.csv")):
            env, cell, seed = path.parts[-4:-1]
            method, critic = cell.split("-", 1)
            with path.open(newline="") as metrics:
                for row in csv.DictReader(metrics):
                    values = [f"{float(row[name]):.6g}" for name in COLUMNS]
                    writer.writerow([env, method, critic, seed.removeprefix("seed_"), *values])


def read() -> dict[str, Runs]:
    rows: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    with DATA.open(newline="") as file:
        for row in csv.DictReader(file):
            rows[row["env"], row["critic"], row["method"], row["seed"]].append(row)
    most = max(len(records) for records in rows.values())
    found: dict[str, Runs] = defaultdict(lambda: defaultdict(list))
    for (env, critic, method, _), records in rows.items():
        if len(records) == most:  # finished
            curve = {name: np.array([float(record[name]) for record in records]) for name in COLUMNS}
            found[env][critic, method].append(curve)
    return found


def within(curve: Curve, seconds: float) -> int:
    """Return the last evaluation within this time; the first where there is none."""
    return max(int(np.sum(curve["wall_seconds"] <= seconds)) - 1, 0)


def success_table(runs: Runs, seconds: float | None = None) -> str:
    """Success at the last evaluation (%), or at the last one within so many seconds, with a 95% t-interval."""
    lines = ["| critic | " + " | ".join(CELLS.values()) + " |", "|---" * (len(CELLS) + 1) + "|"]
    for critic in dict.fromkeys(critic for critic, _ in runs):
        cells = []
        for method in CELLS:
            seeds = runs.get((critic, method), [])
            at = [-1 if seconds is None else within(seed, seconds) for seed in seeds]
            scores = [100 * seed["success_once"][n] for seed, n in zip(seeds, at, strict=True)]
            cells.append(str(t_interval(scores)) if scores else "")
        lines.append(f"| `{critic}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def minutes_table(runs: Runs) -> str:
    """What each row costs: milliseconds of one core per update and seed, all of training counted."""
    lines = ["| critic | " + " | ".join(CELLS.values()) + " |", "|---" * (len(CELLS) + 1) + "|"]
    for critic in dict.fromkeys(critic for critic, _ in runs):
        cells = []
        for method in CELLS:
            seeds = runs.get((critic, method), [])
            cost = [1e3 * s["wall_seconds"][-1] / s["updates"][-1] / len(seeds) for s in seeds]
            cells.append(f"{np.mean(cost):.2f}" if cost else "")
        lines.append(f"| `{critic}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def print_minutes(all_runs: dict[str, Runs]) -> None:
    """Print what each row had reached when the cheapest was done, and what each costs."""
    for env, runs in all_runs.items():
        least = min(seed["wall_seconds"][-1] for seeds in runs.values() for seed in seeds)
        print(
            f"{env}, after {least / 60:.1f} minutes:\n\n{success_table(runs, 1.02 * least)}\n\n{minutes_table(runs)}\n"
        )


def effects_table(all_runs: dict[str, Runs]) -> str:
    """What the direction and the pool add at the same critic and seed, in points of success averaged over the run."""
    pairs = {
        "direction, no pool": ("dcp_no_pool", "crl"),
        "direction, pool": ("dcp", "ssgc"),
        "pool, raw goal": ("ssgc", "crl"),
        "pool, direction": ("dcp", "dcp_no_pool"),
    }
    lines = ["| maze | critic | " + " | ".join(pairs) + " |", "|---" * (len(pairs) + 2) + "|"]
    for env, runs in all_runs.items():
        for critic in dict.fromkeys(critic for critic, method in runs if method == "dcp_no_pool"):
            gaps = []
            for one, other in pairs.values():
                means = [
                    100 * (a["success_once"].mean() - b["success_once"].mean())
                    for a, b in zip(runs.get((critic, one), []), runs.get((critic, other), []), strict=False)
                ]
                gaps.append(str(t_interval(means)) if means else "")
            lines.append(f"| {env} | `{critic}` | " + " | ".join(gaps) + " |")
    return "\n".join(lines)


def figure(all_runs: dict[str, Runs]) -> Figure:
    """Draw the mean success over updates: a row per maze, a column per critic that has an embedding."""
    critics = list(
        dict.fromkeys(critic for runs in all_runs.values() for critic, method in runs if method == "dcp_no_pool")
    )
    colour_of = colours(list(CELLS))
    with house_style():
        drawn = Figure(figsize=(2.6 * len(critics), 2.3 * len(all_runs)), layout="constrained")
        panels = drawn.subplots(len(all_runs), len(critics), sharex=True, sharey=True, squeeze=False)
        for row, (env, runs) in zip(panels, all_runs.items(), strict=True):
            for axes, critic in zip(row, critics, strict=True):
                for method, label in CELLS.items():
                    seeds = runs.get((critic, method), [])
                    if seeds:
                        mean = 100 * np.mean([seed["success_once"] for seed in seeds], axis=0)
                        axes.plot(seeds[0]["updates"] / 1e3, mean, color=colour_of[method], label=label)
                axes.set_title(f"{env}\n{critic}")
                axes.set_ylim(-2, 102)
            row[0].set_ylabel("Success (%)")
        for axes in panels[-1]:
            axes.set_xlabel("updates (thousands)")
        handles, labels = panels[0][0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=len(CELLS))
    return drawn


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["collect"]:
        collect(Path(arguments[1]))
        return
    all_runs = read()
    if arguments[:1] == ["minutes"]:
        print_minutes(all_runs)
        return
    for env, runs in all_runs.items():
        put(f"critics_{env}", success_table(runs))
    put("critics_effects", effects_table(all_runs))
    save(figure(all_runs), HERE / "critics.png")


if __name__ == "__main__":
    main(sys.argv[1:])
