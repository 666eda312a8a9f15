"""Make the tables of docs/results_others.md on what the pool is for, from frontier.csv.

python -m tools.docs.frontier collect RUNS_DIR   # the runs of frontier.toml -> docs/results/frontier.csv
python -m tools.docs.frontier                    # the tables and the picture of coverage over time
"""

import sys
from pathlib import Path

from dcp.lab.statistics import t_interval
from dcp.lab.style import save
from tools.docs.cells import Cell, Curve, Runs, Seeds, collect, crossed, differences, differences_table, figure, read
from tools.docs.pages import RESULTS, put

DATA = RESULTS / "frontier.csv"
MAZES = ("point_big_maze", "point_hardest_maze", "ant_big_maze")
KEYS = ("method", "actor_goal", "command", "score")
MEASURES = {"coverage": "cells_visited", "success": "success_once"}
COLUMNS = ("env_steps", "updates", *MEASURES.values(), "pool_spread", "share_reached", "reach", "goal_weight")
ACTORS = {"future": "crl", "mixed": "crl, mixed", "commanded": "raw goal"}  # of a raw goal, by what its loss aims at
COMMANDS = {
    "final_goal": "g itself",
    "pooled_subgoal": "pool",
    "frontier score": "pool, frontier score",
    "frontier": "frontier command",
    "single_goal": "one hard goal",
}
PAIRS = {
    "pool - g": ("pooled_subgoal", "final_goal"),
    "frontier score - pool": ("frontier score", "pooled_subgoal"),
    "frontier command - pool": ("frontier", "pooled_subgoal"),
    "frontier command - g": ("frontier", "final_goal"),
    "one hard goal - g": ("single_goal", "final_goal"),
}


def place(cell: Cell) -> Cell:
    """Return the actor and the command of a run's settings: its row and its column."""
    method, actor_goal, command, score = cell
    actor = "direction" if method.startswith("dcp") else ACTORS[actor_goal]
    return actor, "frontier score" if score == "frontier" else command


def read_runs() -> dict[str, Runs]:
    """-> maze -> (actor, command) -> seed -> its curve"""
    order = [*ACTORS.values(), "direction"]
    placed = {
        env: {place(cell): seeds for cell, seeds in runs.items()} for env, runs in read(DATA, KEYS, COLUMNS).items()
    }
    return {env: dict(sorted(runs.items(), key=lambda one: order.index(one[0][0]))) for env, runs in placed.items()}


def mean_of(measure: str, curve: Curve) -> float:
    """Return the mean over a run's evaluations, in percent."""
    return 100 * float(curve[MEASURES[measure]].mean())


def whole_run(all_runs: dict[str, Runs]) -> str:
    """Return each cell's coverage and success, means over a run, with 95% t-intervals over seeds."""

    def text(cell: Cell, seeds: Seeds) -> str:
        return ", ".join(str(t_interval([mean_of(one, curve) for curve in seeds.values()])) for one in MEASURES)

    return crossed("actor", all_runs, COMMANDS, text)


def effects(measure: str, all_runs: dict[str, Runs]) -> str:
    return differences_table("actor", differences(all_runs, PAIRS, lambda curve: mean_of(measure, curve)))


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["collect"]:
        collect(Path(arguments[1]), DATA, KEYS, COLUMNS, MAZES)
        return
    all_runs = read_runs()
    put("frontier", whole_run(all_runs))
    for measure in MEASURES:
        put(f"frontier_{measure}", effects(measure, all_runs))
    points = {env: runs for env, runs in all_runs.items() if env.startswith("point_")}
    actors = dict.fromkeys(actor for runs in points.values() for actor, _ in runs)
    drawn = figure(points, list(actors), COMMANDS, MEASURES["coverage"], "Cells visited (%)")
    save(drawn, RESULTS / "frontier.png")


if __name__ == "__main__":
    main(sys.argv[1:])
