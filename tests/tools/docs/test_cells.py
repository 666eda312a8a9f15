"""Runs of a grid as a CSV, tables of cells, differences by seed; and where the frontier's cells lie in its tables."""

import json
from pathlib import Path

import numpy as np
import pytest

from dcp.files.run_folder import ZOO_FOLDER
from dcp.grid.grid_file import expand, read_grid
from dcp.lab.statistics import t_interval
from tools.docs import critics, frontier, learns
from tools.docs.cells import collect, crossed, differences, differences_table, figure, read

LINES = {"none": "no pool", "pool": "pool"}


def runs(by_column: dict[str, list[float]]) -> dict:
    """One row whose cells have these successes at two evaluations each, a seed per number."""
    return {
        ("dcp", column): {
            seed: {"success_once": np.array([x, x + 0.2]), "updates": np.array([0, 10])} for seed, x in enumerate(xs)
        }
        for column, xs in by_column.items()
    }


BOTH = {
    "u_maze": runs({"none": [0.1, 0.2, 0.3], "pool": [0.299, 0.4, 0.501]}),  # 20 points, all but equal for all seeds
    "big_maze": runs({"none": [0.1, 0.2, 0.3], "pool": [0.1, 0.3, 0.3]}),
}


def mean(curve) -> float:
    return 100 * float(curve["success_once"].mean())


def test_a_cell_has_its_seeds_mean_and_interval():
    """0.1, 0.2, 0.3 at the first evaluation: 20 points, standard deviation 10, t of two degrees of freedom 4.303."""
    table = crossed(
        "method", BOTH, LINES, lambda _, seeds: str(t_interval([100 * s["success_once"][0] for s in seeds.values()]))
    )
    assert table.splitlines() == [
        "| maze | method | no pool | pool |",
        "|---|---|---|---|",
        "| u_maze | `dcp` | 20.0 ± 24.8 | 40.0 ± 25.1 |",
        "| big_maze | `dcp` | 20.0 ± 24.8 | 23.3 ± 28.7 |",
    ]


def test_differences_are_by_seed_and_bold_where_holms_correction_leaves_them():
    """19.9, 20, 20.1: t = 20 / (0.1 / sqrt(3)) = 346, p = 8e-6, twice that of two tests. 0, 10, 0: t = 1."""
    table = differences_table("method", differences(BOTH, {"pool - none": ("pool", "none")}, mean))
    assert table.splitlines()[2:] == ["| u_maze | `dcp` | **20.0 ± 0.2** |", "| big_maze | `dcp` | 3.3 ± 14.3 |"]


def test_a_row_without_either_side_has_no_difference():
    tests = differences(BOTH, {"pool - none": ("pool", "none"), "hard": ("single_goal", "none")}, mean)
    assert tests["u_maze", "dcp"]["hard"] is None
    assert differences_table("method", tests).splitlines()[2].endswith("|  |")


def test_the_figure_has_a_row_per_maze_and_a_line_per_cell():
    drawn = figure(BOTH, ["dcp"], LINES, "success_once", "Success (%)")
    assert [len(axes.lines) for axes in drawn.axes] == [2, 2]
    np.testing.assert_allclose(drawn.axes[0].lines[0].get_ydata(), [20.0, 40.0])


def test_runs_are_collected_by_their_settings_and_unfinished_ones_are_not_read(tmp_path: Path):
    out, data = tmp_path / "runs", tmp_path / "data.csv"
    for seed in (0, 1):
        folder = out / "any" / f"seed_{seed}"
        folder.mkdir(parents=True)
        for name in ("config.json", "metrics.csv"):
            text = (ZOO_FOLDER / "point_big_maze/crl" / name).read_text()
            if name == "config.json":
                stored = json.loads(text)
                stored["config"]["seed"] = seed
                text = json.dumps(stored)
            (folder / name).write_text(text)
    lines = (out / "any/seed_1/metrics.csv").read_text().splitlines(keepends=True)
    (out / "any/seed_1/metrics.csv").write_text("".join(lines[:3]))
    columns = ("updates", "success_once", "a column that none logged")
    for _ in range(2):  # the second time replaces the same rows
        collect(out, data, ("method",), columns, ["point_big_maze"])
    assert len(data.read_text().splitlines()) == 1 + (len(lines) - 1) + 2
    ((env, cells),) = read(data, ("method",), columns).items()
    assert env == "point_big_maze" and set(cells) == {("crl",)} and set(cells["crl",]) == {0}
    assert len(cells["crl",][0]["success_once"]) == len(lines) - 1
    assert np.isnan(cells["crl",][0]["a column that none logged"]).all()


def test_runs_are_finished_by_the_longest_of_their_own_task(tmp_path: Path):
    """By hand: two tasks in one environment, of three and two evaluations. The seed cut off at one is left out."""
    data = tmp_path / "learns.csv"
    lengths = {("tool", "0"): 3, ("tool", "1"): 1, ("joints", "0"): 2}
    lines = [f"push,{how},crl,{seed},{at}" for (how, seed), length in lengths.items() for at in range(length)]
    data.write_text("\n".join(["env,control,method,seed,updates", *lines]))
    finished = read(data, ("control", "method"), ("updates",), same_length=("env", "control"))["push"]
    assert {cell: list(seeds) for cell, seeds in finished.items()} == {("tool", "crl"): [0], ("joints", "crl"): [0]}
    assert list(read(data, ("control", "method"), ("updates",))["push"]) == [("tool", "crl")]


def test_what_learns_names_a_task_by_its_control_and_a_method_by_its_parts():
    cell = ("tool", "all", "sac_direction", "pooled_subgoal", "None")
    assert learns.task("so101_push", cell) == "so101_push, by the tool, randomized"
    assert learns.method(cell) == "`sac_direction`, pooled_subgoal"
    assert learns.task("fetch_push", ("joints", "None", "crl", "None", "None")) == "fetch_push"


def test_what_learns_has_a_row_per_method_with_the_success_at_each_minute():
    """Evaluations after 4 and 8 minutes: 50% and 70% by seed, then 100%. After 30 minutes the run is long over."""
    cell = ("joints", "None", "crl", "None", "None")
    seeds = {
        seed: {
            "success_once": np.array([share, 1.0]),
            "time_near_goal": np.array([0.0, 40.0]),
            "wall_seconds": np.array([240.0, 480.0]),
        }
        for seed, share in enumerate((0.5, 0.7))
    }
    row = learns.success_over_minutes({"fetch_push": {cell: seeds}}).splitlines()[2].split("|")
    assert [part.strip() for part in row[1:-1]] == [
        *("fetch_push", "`crl`", "2", "60.0 ± 127.1", "100.0 ± 0.0", "100.0 ± 0.0", "", ""),
        *("100.0 ± 0.0", "40.0 ± 0.0", "8 min"),
    ]
    assert len(learns.figure({"fetch_push": {cell: seeds}}).axes[0].lines) == 2


def test_the_critics_tables_come_from_their_csv():
    """docs/results_others.md has them; else: python -m tools.docs.critics"""
    page = (critics.RESULTS.parent / "results_others.md").read_text()
    all_runs = read(critics.DATA, critics.KEYS, critics.COLUMNS)
    assert critics.effects_table(all_runs) in page
    assert all(critics.success_table(runs) in page for runs in all_runs.values())


@pytest.mark.parametrize(
    ("settings", "cell"),
    [
        (("crl", "future", "final_goal", "inner_product"), ("crl", "final_goal")),
        (("sgcrl", "future", "single_goal", "inner_product"), ("crl", "single_goal")),
        (("crl", "mixed", "pooled_subgoal", "frontier"), ("crl, mixed", "frontier score")),
        (("crl", "commanded", "final_goal", "inner_product"), ("raw goal", "final_goal")),
        (("ssgc", "commanded", "pooled_subgoal", "inner_product"), ("raw goal", "pooled_subgoal")),
        (("dcp_no_pool", "commanded", "final_goal", "inner_product"), ("direction", "final_goal")),
        (("dcp", "commanded", "frontier", "inner_product"), ("direction", "frontier")),
    ],
)
def test_the_frontiers_settings_have_their_row_and_column(settings: tuple[str, ...], cell: tuple[str, str]):
    assert frontier.place(settings) == cell
    assert cell[1] in frontier.COMMANDS


def test_the_frontiers_grid_has_each_cell_once_in_each_maze():
    runs = [run.settings for run in expand(read_grid(frontier.RESULTS / "frontier.toml"))]
    cells = [
        (run.env, run.seed, *frontier.place(tuple(str(getattr(run, key)) for key in frontier.KEYS))) for run in runs
    ]
    assert len(cells) == len(set(cells)) == 2 * 5 * 14
