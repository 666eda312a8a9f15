"""Make the tables of docs/results_others.md, every critic with and without a direction and a pool, from critics.csv.

python -m tools.docs.critics collect RUNS_DIR   # the runs of critics.toml -> docs/results/critics.csv
python -m tools.docs.critics cost               # what an iteration of each row costs -> docs/results/critics_cost.csv
python -m tools.docs.critics                    # the tables and the figure, from these two
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dcp.lab.statistics import t_interval
from dcp.lab.style import colours, house_style, save
from tools.docs import iteration_cost as cost
from tools.docs.pages import RESULTS, put

DATA, COSTS = RESULTS / "critics.csv", RESULTS / "critics_cost.csv"
CELLS = {
    "crl": "raw goal, no pool",
    "ssgc": "raw goal, pool",
    "dcp_no_pool": "direction, no pool",
    "dcp": "direction, pool",
}
COSTED = "point_u_maze"  # an iteration costs the same on both: the maze is a small part of it
COLUMNS = ("env_steps", "updates", "time_near_goal", "success_once", "wall_seconds")
ASYMMETRY = "asymmetry"  # of a quasimetric critic alone
Curve = dict[str, np.ndarray]  # a column of metrics.csv by its name
Runs = dict[tuple[str, str], dict[str, Curve]]  # (critic, method) -> seed -> its curve


def collect(folder: Path) -> None:
    """Write every evaluation of the folder's runs as a row; rows of runs that it does not have are kept."""
    with DATA.open(newline="") as file:
        rows = list(csv.DictReader(file))
    paths = sorted(folder.glob("*/*-*/seed_*/metrics.csv"))
    runs = {path.parts[-4:-1] for path in paths}
    rows = [row for row in rows if (row["env"], f"{row['method']}-{row['critic']}", f"seed_{row['seed']}") not in runs]
    for path in paths:
        env, cell, seed = path.parts[-4:-1]
        method, critic = cell.split("-", 1)
        run = {"env": env, "method": method, "critic": critic, "seed": seed.removeprefix("seed_")}
        with path.open(newline="") as metrics:
            for row in csv.DictReader(metrics):
                kept = [name for name in (*COLUMNS, ASYMMETRY) if row.get(name)]
                rows.append(run | {name: f"{float(row[name]):.6g}" for name in kept})
    with DATA.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["env", "method", "critic", "seed", *COLUMNS, ASYMMETRY])
        writer.writeheader()
        writer.writerows(
            sorted(rows, key=lambda row: (row["env"] != COSTED, row["critic"], row["method"], row["seed"]))
        )


def read() -> dict[str, Runs]:
    rows: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    with DATA.open(newline="") as file:
        for row in csv.DictReader(file):
            rows[row["env"], row["critic"], row["method"], row["seed"]].append(row)
    most = max(len(records) for records in rows.values())
    curves: dict[str, Runs] = defaultdict(lambda: defaultdict(dict))
    for (env, critic, method, seed), records in rows.items():
        if len(records) == most:  # finished
            curve = {
                name: np.array([float(record[name] or "nan") for record in records]) for name in (*COLUMNS, ASYMMETRY)
            }
            curves[env][critic, method][seed] = curve
    return curves


def success_table(runs: Runs, minutes: float | None = None) -> str:
    """Success at the last evaluation (%), or at the last one within so many minutes, with a 95% t-interval."""
    lines = ["| critic | " + " | ".join(CELLS.values()) + " |", "|---" * (len(CELLS) + 1) + "|"]
    for critic in dict.fromkeys(critic for critic, _ in runs):
        cells = []
        for method in CELLS:
            within = [_within(seed, critic, method, minutes) for seed in runs.get((critic, method), {}).values()]
            cells.append(str(t_interval([100 * scores[-1] for scores in within])) if within else "")
        lines.append(f"| `{critic}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _within(seed: Curve, critic: str, method: str, minutes: float | None) -> np.ndarray:
    """Return the evaluations within so many minutes of one core; the first where there is none."""
    if minutes is None:
        return seed["success_once"]
    spent = minutes_of(critic, method, seed["updates"])
    return seed["success_once"][: max(int(np.sum(spent <= 1.01 * minutes)), 1)]


def minutes_of(critic: str, method: str, updates: np.ndarray) -> np.ndarray:
    return cost.read(COSTS)[f"{COSTED}/{method}-{critic}"].minutes(updates)


def cost_table(runs: Runs) -> str:
    """What a whole run of each row costs: seconds of one core."""
    lines = ["| critic | " + " | ".join(CELLS.values()) + " |", "|---" * (len(CELLS) + 1) + "|"]
    for critic in dict.fromkeys(critic for critic, _ in runs):
        by_method = [list(runs.get((critic, method), {}).values()) for method in CELLS]
        cells = [
            f"{60 * minutes_of(critic, method, seeds[0]['updates'])[-1]:.1f}" if seeds else ""
            for method, seeds in zip(CELLS, by_method, strict=True)
        ]
        lines.append(f"| `{critic}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


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
                ours, theirs = runs.get((critic, one), {}), runs.get((critic, other), {})
                means = [
                    100 * (ours[seed]["success_once"].mean() - theirs[seed]["success_once"].mean())
                    for seed in sorted(ours.keys() & theirs.keys())
                ]
                gaps.append(str(t_interval(means)) if means else "")
            lines.append(f"| {env} | `{critic}` | " + " | ".join(gaps) + " |")
    return "\n".join(lines)


def asymmetry_table(all_runs: dict[str, Runs]) -> str:
    """|d(x, y) - d(y, x)| over d(x, y) + d(y, x) between goals of a batch, at the end of the runs that logged it."""
    lines = ["| maze | critic | " + " | ".join(CELLS.values()) + " |", "|---" * (len(CELLS) + 2) + "|"]
    for env, runs in all_runs.items():
        for critic in dict.fromkeys(critic for critic, _ in runs):
            seeds = [[seed[ASYMMETRY][-1] for seed in runs.get((critic, method), {}).values()] for method in CELLS]
            known = [[value for value in values if np.isfinite(value)] for values in seeds]
            if any(known):
                cells = [f"{np.mean(values):.3f}" if values else "" for values in known]
                lines.append(f"| {env} | `{critic}` | " + " | ".join(cells) + " |")
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
                    seeds = list(runs.get((critic, method), {}).values())
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
    if arguments[:1] == ["cost"]:
        cost.write(cost.measure(cost.settings_of(RESULTS / "critics.toml", f"env={COSTED}")), COSTS)
        return
    all_runs = read()
    for env, runs in all_runs.items():
        put(f"critics_{env}", success_table(runs))
    if COSTS.is_file():
        runs = all_runs[COSTED]
        whole = minutes_of("contrastive", "crl", runs["contrastive", "crl"]["0"]["updates"])[-1]
        print(cost_table(runs))
        for env, runs in all_runs.items():
            print(f"\n{env}, within {whole:.2f} minutes:\n{success_table(runs, whole)}")
    put("critics_effects", effects_table(all_runs))
    print(f"\nasymmetry:\n{asymmetry_table(all_runs)}")
    save(figure(all_runs), RESULTS / "critics.png")


if __name__ == "__main__":
    main(sys.argv[1:])
