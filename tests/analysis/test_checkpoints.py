"""Checkpoint tables from run folders, cell by cell."""

import math
from pathlib import Path

import pytest

from dcp.analysis import paper_values
from dcp.analysis.checkpoints import checkpoint_tables
from dcp.analysis.collection import collect
from dcp.analysis.evaluation_points import nearest
from dcp.analysis.tables import Cell, Table
from tests.analysis.fake_runs import five_seeds, write_run

M = 1_000_000


def cell(table: Table, environment: str, method: str, column: str) -> Cell:
    [row] = [row for row in table.rows if (row.environment, row.method) == (environment, method)]
    return row.cells[table.columns.index(column)]


def success_table(runs: Path, checkpoints: tuple[int, ...] = paper_values.CHECKPOINTS) -> Table:
    return checkpoint_tables(collect([runs]), checkpoints)[0]


def write_seeds(
    runs: Path, method: str, values: list[list[float]], steps: list[int], env: str = "ant_big_maze"
) -> None:
    for seed, success in enumerate(values):
        write_run(runs, env, method, seed, steps[: len(success)], success)


def test_the_papers_five_seeds_are_printed_as_the_paper_prints_them(tmp_path: Path):
    write_seeds(tmp_path, "ssgc", [[0.125], [0.0], [0.0], [0.0], [0.0]], [75 * M], "humanoid_u_maze")
    table = success_table(tmp_path)
    ours, paper = (cell(table, "humanoid_u_maze", "ssgc", column) for column in ("75M", "75M paper"))
    assert ours.text == paper.text == "2.5 ± 6.9"
    assert ours.count == 5
    assert ours.marker == ""


def test_the_nearest_evaluation_stands_for_a_checkpoint_if_it_is_near(tmp_path: Path):
    folder = write_run(tmp_path, "ant_push", "dcp", 0, [5 * M, 9 * M, 12 * M, 15 * M], [0.1, 0.2, 0.3, 0.4])
    [run] = collect([folder]).runs
    assert nearest(run, 10 * M) == 1  # 1M away: a tenth
    assert nearest(run, 10_500_001) is None  # 1.5M away on either side: more than a tenth of 10.5M
    assert nearest(run, 15 * M) == 3
    assert nearest(run, 25 * M) is None


def test_a_run_on_its_way_is_not_quoted_before_it_is_there(tmp_path: Path):
    """92M lies within a tenth of 100M, but four evaluations before it."""
    folder = write_run(tmp_path, "ant_push", "dcp", 0, [at * M for at in range(2, 94, 2)], [0.1] * 46, budget=100 * M)
    [run] = collect([folder]).runs
    assert nearest(run, 92 * M) == 45
    assert nearest(run, 100 * M) is None
    assert nearest(run, 94 * M) == 45  # one interval


def test_the_best_mean_is_bold_and_a_tie_is_not(tmp_path: Path):
    write_seeds(tmp_path, "dcp", [[0.2, 0.5], [0.4, 0.5]], [10 * M, 25 * M])
    write_seeds(tmp_path, "crl", [[0.1, 0.4], [0.1, 0.6]], [10 * M, 25 * M])
    table = success_table(tmp_path)
    assert [cell(table, "ant_big_maze", m, "10M").bold for m in ("dcp", "crl")] == [True, False]
    assert [cell(table, "ant_big_maze", m, "25M").bold for m in ("dcp", "crl")] == [False, False]


def test_a_method_alone_is_not_the_best(tmp_path: Path):
    write_seeds(tmp_path, "dcp", [[0.2], [0.4]], [10 * M])
    assert not cell(success_table(tmp_path), "ant_big_maze", "dcp", "10M").bold


def test_a_marker_shows_where_intervals_do_not_overlap(tmp_path: Path):
    """The paper has 18.4 ± 5.4 and 15.1 ± 3.7: 25 ± 1.1 just touches the one and is apart from the other."""
    for method in ("dcp", "crl"):
        write_seeds(tmp_path, method, [[value / 100] for value in five_seeds(24.8, 1.1)], [10 * M])
    table = success_table(tmp_path)
    assert cell(table, "ant_big_maze", "dcp", "10M").marker == ""  # 23.7 and 23.8
    assert cell(table, "ant_big_maze", "crl", "10M").marker == "†"  # 23.7 and 18.8
    assert any(note.startswith("†") for note in table.notes)


def test_one_seed_has_no_interval_and_no_marker(tmp_path: Path):
    write_seeds(tmp_path, "dcp", [[0.99]], [10 * M])
    found = cell(success_table(tmp_path), "ant_big_maze", "dcp", "10M")
    assert (found.text, found.marker) == ("99.0", "")


def test_a_seed_that_is_not_there_yet_is_left_out_and_told(tmp_path: Path):
    write_seeds(tmp_path, "dcp", [[0.2, 0.4], [0.4, 0.6], [0.6]], [10 * M, 25 * M])
    table = success_table(tmp_path)
    assert cell(table, "ant_big_maze", "dcp", "10M").count == 3
    later = cell(table, "ant_big_maze", "dcp", "25M")
    assert later.text == "50.0 ± 127.1 (n=2)"  # t(0.975, 1) = 12.706, times 14.14 / sqrt(2)
    assert "without seed 2" in later.hover


def test_nan_is_shown_as_nan_and_the_best_is_among_the_others(tmp_path: Path):
    write_seeds(tmp_path, "dcp", [[0.2], [math.nan]], [10 * M])
    write_seeds(tmp_path, "crl", [[0.2], [0.1]], [10 * M])
    write_seeds(tmp_path, "ssgc", [[0.1], [0.1]], [10 * M])
    table = success_table(tmp_path)
    assert cell(table, "ant_big_maze", "dcp", "10M").text == "NaN"
    assert [cell(table, "ant_big_maze", m, "10M").bold for m in ("dcp", "crl", "ssgc")] == [False, True, False]


def test_runs_of_another_length_have_their_end(tmp_path: Path):
    write_seeds(tmp_path, "dcp", [[0.1, 0.3], [0.1, 0.5]], [1 * M, 3 * M], "point_u_maze")
    write_seeds(tmp_path, "crl", [[0.2]], [1 * M], "point_u_maze")
    table = success_table(tmp_path)
    assert table.columns == ("Environment", "Method", "Seeds", "End of the runs")
    assert [row.cells[3].value for row in table.rows] == [10.0, 20.0]  # at 1M, which all have reached
    assert any("(point_u_maze 1M)" in note for note in table.notes)
    assert any("No run has an evaluation near 10M, 25M, 50M, 75M, 100M" in note for note in table.notes)


def test_any_list_of_checkpoints_will_do(tmp_path: Path):
    write_seeds(tmp_path, "dcp", [[0.1, 0.3]], [1 * M, 3 * M], "point_u_maze")
    table = success_table(tmp_path, (3 * M, 1 * M, 3 * M))
    assert table.columns == ("Environment", "Method", "Seeds", "1M", "3M")
    assert [found.text for found in table.rows[0].cells[3:]] == ["10.0", "30.0"]


def test_a_missing_seed_is_told(tmp_path: Path):
    write_seeds(tmp_path, "dcp", [[0.1], [0.3]], [10 * M])
    write_seeds(tmp_path, "crl", [[0.1]], [10 * M])
    assert any(
        note == "ant_big_maze, crl: no run of seed 1, which others have." for note in success_table(tmp_path).notes
    )


@pytest.mark.parametrize(
    ("metric", "environment", "method", "steps", "expected"),
    [
        ("success_once", "humanoid_u_maze", "ssgc", 75 * M, (2.5, 6.9)),
        ("success_once", "pusher_hard_far", "crl", 50 * M, (12.5, 24.0)),
        ("time_near_goal", "ant_push", "dcp", 100 * M, (181.7, 95.6)),
        ("time_near_goal", "ant_big_maze", "dcp", 100 * M, None),
        ("time_near_goal", "ant_big_maze", "dcp_no_pool", 10 * M, None),
        ("time_near_goal", "point_u_maze", "dcp", 10 * M, None),
        ("time_near_goal", "ant_push", "dcp", 11 * M, None),
    ],
)
def test_the_package_has_the_papers_numbers(metric, environment, method, steps, expected):
    assert paper_values.checkpoint(metric, environment, method, steps) == expected
