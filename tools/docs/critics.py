"""Make the tables of docs/results_others.md, every critic with and without a direction and a pool, from critics.csv.

python -m tools.docs.critics collect RUNS_DIR   # the runs of critics.toml -> docs/results/critics.csv
python -m tools.docs.critics cost               # what an iteration of each row costs -> docs/results/critics_cost.csv
python -m tools.docs.critics                    # the tables and the figure, from these two
"""

import sys
from pathlib import Path

import numpy as np

from dcp.lab.statistics import t_interval
from dcp.lab.style import save
from tools.docs import iteration_cost as cost
from tools.docs.cells import Cell, Curve, Runs, Seeds, collect, crossed, differences, differences_table, figure, read
from tools.docs.pages import RESULTS, put

DATA, COSTS = RESULTS / "critics.csv", RESULTS / "critics_cost.csv"
MAZES = ("point_u_maze", "point_big_maze")
KEYS = ("critic", "method")
CELLS = {
    "crl": "raw goal, no pool",
    "ssgc": "raw goal, pool",
    "dcp_no_pool": "direction, no pool",
    "dcp": "direction, pool",
}
PAIRS = {
    "direction, no pool": ("dcp_no_pool", "crl"),
    "direction, pool": ("dcp", "ssgc"),
    "pool, raw goal": ("ssgc", "crl"),
    "pool, direction": ("dcp", "dcp_no_pool"),
}
COSTED = "point_u_maze"  # an iteration costs the same on both: the maze is a small part of it
ASYMMETRY = "asymmetry"  # of a quasimetric critic alone
COLUMNS = ("env_steps", "updates", "time_near_goal", "success_once", "wall_seconds", ASYMMETRY)


def success_table(runs: Runs, minutes: float | None = None) -> str:
    """Success at the last evaluation (%), or at the last one within so many minutes, with a 95% t-interval."""

    def text(cell: Cell, seeds: Seeds) -> str:
        return str(t_interval([100 * _within(seed, cell, minutes)[-1] for seed in seeds.values()]))

    return crossed("critic", {"": runs}, CELLS, text)


def _within(seed: Curve, cell: Cell, minutes: float | None) -> np.ndarray:
    """Return the evaluations within so many minutes of one core; the first where there is none."""
    if minutes is None:
        return seed["success_once"]
    spent = minutes_of(cell, seed["updates"])
    return seed["success_once"][: max(int(np.sum(spent <= 1.01 * minutes)), 1)]


def minutes_of(cell: Cell, updates: np.ndarray) -> np.ndarray:
    critic, method = cell
    return cost.read(COSTS)[f"{COSTED}/{method}-{critic}"].minutes(updates)


def cost_table(runs: Runs) -> str:
    """What a whole run of each row costs: seconds of one core."""

    def text(cell: Cell, seeds: Seeds) -> str:
        return f"{60 * minutes_of(cell, next(iter(seeds.values()))['updates'])[-1]:.1f}"

    return crossed("critic", {"": runs}, CELLS, text)


def effects_table(all_runs: dict[str, Runs]) -> str:
    """What the direction and the pool add at the same critic and seed, in points of success averaged over the run."""
    tests = differences(all_runs, PAIRS, lambda curve: 100 * float(curve["success_once"].mean()))
    return differences_table("critic", tests)


def asymmetry_table(all_runs: dict[str, Runs]) -> str:
    """|d(x, y) - d(y, x)| over d(x, y) + d(y, x) between goals of a batch, at the end of the runs that logged it."""

    def text(cell: Cell, seeds: Seeds) -> str:
        last = [value for seed in seeds.values() if np.isfinite(value := seed[ASYMMETRY][-1])]
        return f"{np.mean(last):.3f}" if last else ""

    return crossed("critic", all_runs, CELLS, text)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["collect"]:
        collect(Path(arguments[1]), DATA, KEYS, COLUMNS, MAZES)
        return
    if arguments[:1] == ["cost"]:
        cost.write(cost.measure(cost.settings_of(RESULTS / "critics.toml", f"env={COSTED}")), COSTS)
        return
    all_runs = read(DATA, KEYS, COLUMNS)
    for env, runs in all_runs.items():
        put(f"critics_{env}", success_table(runs))
    if COSTS.is_file():
        runs = all_runs[COSTED]
        whole = minutes_of(("contrastive", "crl"), runs["contrastive", "crl"][0]["updates"])[-1]
        print(cost_table(runs))
        for env, runs in all_runs.items():
            print(f"\n{env}, within {whole:.2f} minutes:\n{success_table(runs, whole)}")
    put("critics_effects", effects_table(all_runs))
    print(f"\nasymmetry:\n{asymmetry_table(all_runs)}")
    embedding = dict.fromkeys(
        critic for runs in all_runs.values() for critic, method in runs if method == "dcp_no_pool"
    )
    save(figure(all_runs, list(embedding), CELLS, "success_once", "Success (%)"), RESULTS / "critics.png")


if __name__ == "__main__":
    main(sys.argv[1:])
