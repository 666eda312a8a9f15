"""Checkpoints and summaries, by hand and against the paper's own numbers."""

import hashlib
import json
import math
from importlib.resources import files
from pathlib import Path

import pytest

from dcp.lab import paper_values
from dcp.lab.build_report import statistics_sections
from dcp.lab.method_tables import checkpoint_table, compare_methods, comparison_table, summary_table
from dcp.lab.result_tables import Cell, Table, to_latex
from dcp.lab.run_collection import Collection, collect, nearest
from tests.support.fake_runs import five_seeds, write_paper, write_run

M = 1_000_000


def cell(table: Table, environment: str, method: str, column: str) -> Cell:
    [row] = [row for row in table.rows if (row.environment, row.method) == (environment, method)]
    return row.cells[table.columns.index(column)]


def success_table(runs: Path, checkpoints: tuple[int, ...] = paper_values.CHECKPOINTS) -> Table:
    return checkpoint_table(collect([runs]), "success_once", checkpoints)


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
    write_seeds(tmp_path, "dcp", [[0.2, 0.5], [0.4, 0.5], [0.3, 0.5]], [10 * M, 25 * M])
    write_seeds(tmp_path, "crl", [[0.1, 0.25], [0.1, 0.75], [0.1, 0.5]], [10 * M, 25 * M])
    table = success_table(tmp_path)
    assert [cell(table, "ant_big_maze", m, "10M").bold for m in ("dcp", "crl")] == [True, False]
    assert [cell(table, "ant_big_maze", m, "25M").bold for m in ("dcp", "crl")] == [False, False]


def test_below_three_seeds_there_are_ranges_and_no_winner(tmp_path: Path):
    """Two seeds would have an interval of 12.7 standard errors: 51.2 ± 228.3 for 33.2 and 69.1."""
    found = write_pair(tmp_path, [[0.332], [0.691]], [[0.1], [0.2], [0.3]])
    table = checkpoint_table(found, "success_once", [M])
    dcp, crl = (cell(table, "ant_big_maze", method, "1M") for method in ("dcp", "crl"))
    assert (dcp.text, dcp.bounds, dcp.spread) == ("33.2 to 69.1", (33.2, 69.1), None)
    assert crl.text == "20.0 ± 24.8" and not dcp.bold and not crl.bold
    summary, pair = summary_table(found), comparison_table(found, "success_once", "dcp", "crl")
    assert summary is not None
    assert summary.rows[0].cells[summary.columns.index("Success at least once")] == Cell(
        "undecided", hover="dcp 33.2 to 69.1, crl 20.0 ± 24.8"
    )
    assert any("fewer than 3 seeds" in note for note in summary.notes)
    texts = dict(zip(pair.columns, (cell.text for cell in pair.rows[0].cells), strict=True))
    assert texts["dcp"] == "33.2 to 69.1"
    assert {texts[name] for name in ("p", "Effect size d", "Probability of improvement")} == {"\u2013"}
    assert any("Two seeds: their range" in note for note in pair.notes)


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


def test_a_residual_crl_with_forward_infonce_and_a_narrow_dcp_have_no_value_of_the_paper_beside_them(tmp_path: Path):
    """The audit's case: three `scaled_crl` runs and three of dcp with other settings, called crl and dcp."""
    scaled = {"network": "residual", "depth": 4, "contrastive_loss": "forward", "batch_size": 512}
    scaled["updates_per_iteration"] = 800
    narrow = {"fidelity": "fixed", "width": 64, "discount": 0.95, "final_goal_share": 0.5}
    for seed in range(3):
        write_run(tmp_path, "ant_hardest_maze", "crl", seed, [10 * M, 50 * M], [0.5, 0.9], **scaled)
        write_run(tmp_path, "ant_hardest_maze", "dcp", seed, [10 * M, 50 * M], [0.5, 0.2], **narrow)
    found = collect([tmp_path])
    table, summary = success_table(tmp_path), summary_table(found)
    assert summary is not None
    crl = (
        "ant_hardest_maze, crl: not beside the paper's values, because of batch_size 512 instead of 256; "
        "updates_per_iteration 800 instead of the method's own; contrastive_loss forward instead of backward; "
        "network residual instead of mlp; depth 4 instead of 2."
    )
    dcp = (
        "ant_hardest_maze, dcp: not beside the paper's values, because of fidelity fixed instead of paper; "
        "final_goal_share 0.5 instead of 0.0; discount 0.95 instead of 0.99; width 64 instead of 256."
    )
    for each in (table, summary):
        assert not any("paper" in column for column in each.columns)
        assert not any(cell.marker for row in each.rows for cell in row.cells)
        assert crl in each.notes and dcp in each.notes


def test_only_the_group_of_other_settings_loses_its_value(tmp_path: Path):
    write_run(tmp_path, "ant_u_maze", "dcp", 0, [10 * M], [0.5])
    write_run(tmp_path, "ant_u_maze", "crl", 0, [10 * M], [0.5], eval_env="ant_u_maze_eval")
    write_run(tmp_path, "ant_big_maze", "crl", 0, [10 * M], [0.5], batch_size=512)
    write_run(tmp_path, "ant_big_maze", "dcp_no_pool", 0, [10 * M], [0.5])
    table = success_table(tmp_path)
    shown = {(row.environment, row.method): row.cells[table.columns.index("10M paper")] for row in table.rows}
    assert shown["ant_u_maze", "dcp"].text == "40.4 ± 9.5"
    assert [cell.text for key, cell in shown.items() if key != ("ant_u_maze", "dcp")] == ["\u2013"] * 3
    assert shown["ant_big_maze", "crl"].hover == "batch_size 512 instead of 256"
    told = [note for note in table.notes if "not beside" in note]
    assert [note.partition(":")[0] for note in told] == ["ant_big_maze, crl", "ant_u_maze on ant_u_maze_eval, crl"]
    assert told[1].endswith("because of evaluated on ant_u_maze_eval instead of ant_u_maze.")


def test_one_seed_has_no_interval_and_no_marker(tmp_path: Path):
    write_seeds(tmp_path, "dcp", [[0.99]], [10 * M])
    found = cell(success_table(tmp_path), "ant_big_maze", "dcp", "10M")
    assert (found.text, found.marker) == ("99.0", "")


def test_a_seed_that_is_not_there_yet_is_left_out_and_told(tmp_path: Path):
    write_seeds(tmp_path, "dcp", [[0.2, 0.4], [0.4, 0.6], [0.5, 0.5], [0.6]], [10 * M, 25 * M])
    table = success_table(tmp_path)
    assert cell(table, "ant_big_maze", "dcp", "10M").count == 4
    later = cell(table, "ant_big_maze", "dcp", "25M")
    assert later.text == "50.0 ± 24.8 (n=3)"  # t(0.975, 2) = 4.303, times 10 / sqrt(3)
    assert "without seed 3" in later.hover


def test_nan_is_shown_as_nan_and_the_best_is_among_the_others(tmp_path: Path):
    write_seeds(tmp_path, "dcp", [[0.2], [math.nan], [0.2]], [10 * M])
    write_seeds(tmp_path, "crl", [[0.2], [0.1], [0.1]], [10 * M])
    write_seeds(tmp_path, "ssgc", [[0.1], [0.1], [0.1]], [10 * M])
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


def test_no_printed_number_has_changed_since_all_were_compared_with_the_papers_source():
    """333 numbers, compared with the LaTeX one by one (0 wrong). After a wanted change, compare again."""
    content = json.loads(files("dcp.lab").joinpath("paper.json").read_text())
    numbers = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    assert hashlib.sha256(numbers).hexdigest() == "fba52f39133be1408d97425034a974b5f08a4848b587e44da053d11eb1621833"


M = 1_000_000
# Written down from the paper's table, not read from our data: environment -> time near goal, success at least once.
PAPER_ARROWS = {
    "ant_big_maze": ("↑ dcp", "↑ dcp"),
    "ant_hardest_maze": ("↑ dcp", "↑ dcp"),
    "ant_u_maze": ("↓ crl", "↑ dcp"),
    "humanoid_u_maze": ("↑ dcp", "↑ dcp"),
    "ant_push": ("↑ dcp", "≈"),
    "pusher_easy": ("↑ dcp", "↑ dcp"),
    "pusher_hard": ("↑ dcp", "↑ dcp"),
    "pusher_hard_far": ("↑ dcp", "↑ dcp"),
    "ant_soccer": ("↓ crl", "↓ crl"),
}


@pytest.fixture(scope="module", params=[True, False], ids=["means and intervals", "means alone"])
def paper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Collection:
    runs = tmp_path_factory.mktemp("paper")
    write_paper(runs, request.param)
    return collect([runs])


def test_the_papers_means_give_the_papers_arrows_cell_by_cell(paper: Collection):
    table = summary_table(paper)
    assert table is not None
    columns = [table.columns.index(name) for name in ("Time near goal", "Success at least once")]
    ours = {row.environment: tuple(row.cells[at].text for at in columns) for row in table.rows}
    assert ours == PAPER_ARROWS
    beside = {row.environment: tuple(row.cells[at + 1].text for at in columns) for row in table.rows}
    assert beside == PAPER_ARROWS
    assert not any(cell.marker for row in table.rows for cell in row.cells)


def test_the_summary_speaks_of_the_last_common_evaluation(paper: Collection):
    table = summary_table(paper)
    assert table is not None
    assert {row.environment: row.cells[1].text for row in table.rows}["ant_push"] == "100M"
    assert {row.environment: row.cells[1].text for row in table.rows}["ant_soccer"] == "50M"


def write_pair(
    runs: Path, dcp: list[list[float]], crl: list[list[float]], env: str = "ant_big_maze", each: float = M
) -> Collection:
    for method, seeds in (("dcp", dcp), ("crl", crl)):
        for seed, success in enumerate(seeds):
            steps = [(at + 1) * each for at in range(len(success))]
            write_run(runs, env, method, seed, steps, success, episode_length=1000)
    return collect([runs])


def test_a_sign_that_is_not_the_papers_is_marked(tmp_path: Path):
    table = summary_table(write_pair(tmp_path, [[0.1], [0.11], [0.1]], [[0.3], [0.31], [0.3]], each=50e6))
    assert table is not None
    assert [cell.text for cell in table.rows[0].cells[2:]] == ["↓ crl", "↑ dcp", "↓ crl", "↑ dcp"]
    assert [cell.marker for cell in table.rows[0].cells[2:]] == ["≠", "", "≠", ""]


def test_the_papers_sign_at_other_steps_is_named_and_not_held_against_ours(tmp_path: Path):
    """The paper's runs of ant_big_maze end at 50M: 45M is near, 44M is not."""
    seeds = [[0.1], [0.11], [0.1]], [[0.3], [0.31], [0.3]]
    early = summary_table(write_pair(tmp_path / "early", *seeds, each=44e6))
    near = summary_table(write_pair(tmp_path / "near", *seeds, each=45e6))
    assert early is not None and near is not None
    assert [cell.text for cell in early.rows[0].cells[2:4]] == ["↓ crl", "↑ dcp at 50M"]
    assert [cell.marker for cell in early.rows[0].cells[2:4]] == ["", ""]
    assert [cell.text + cell.marker for cell in near.rows[0].cells[2:4]] == ["↓ crl≠", "↑ dcp"]


def test_runs_of_unequal_length_are_compared_where_all_have_been(tmp_path: Path):
    found = write_pair(tmp_path, [[0.1, 0.9, 0.9], [0.2, 0.9]], [[0.3], [0.4, 0.0]])
    [part] = compare_methods(found, "success_once", "dcp", "crl")
    assert part.steps == M
    assert part.ours == {0: 10.0, 1: 20.0}
    assert part.theirs == {0: 30.0, 1: 40.0}
    table = summary_table(found)
    assert table is not None
    assert table.rows[0].cells[1].marker == "‡"
    assert any(note.startswith("‡") for note in table.notes)


def test_the_comparison_has_every_number(tmp_path: Path):
    """dcp 10, 30, 50 and crl 10, 20, 30: differences 0, 10, 20: mean 10, s 10, t = 1.732, p = 0.225 at two degrees.

    d = 10 / sqrt((800 + 200) / 4) = 0.63. Of nine pairs dcp wins 30 > 10, 20 and 50 > 10, 20, 30, ties two: 6 of 9.
    """
    found = write_pair(tmp_path, [[0.1], [0.3], [0.5]], [[0.1], [0.2], [0.3]])
    table = comparison_table(found, "success_once", "dcp", "crl")
    texts = dict(zip(table.columns, (cell.text for cell in table.rows[0].cells), strict=True))
    assert texts == {
        "Environment": "ant_big_maze",
        "Steps": "1M",
        "dcp": "30.0 ± 49.7",
        "crl": "20.0 ± 24.8",
        "Effect size d": "+0.63",
        "Pairs": "3",
        "Paired difference": "+10.0 ± 24.8",
        "p": "0.225",
        "p (Holm)": "0.225",
        "Probability of improvement": "0.67",
    }


def test_two_common_seeds_are_two_pairs_although_they_are_too_few_for_a_test(tmp_path: Path):
    found = write_pair(tmp_path, [[0.1], [0.3]], [[0.1], [0.2]])
    (row,) = comparison_table(found, "success_once", "dcp", "crl").rows
    assert row.cells[5].value == 2
    assert [cell.hover for cell in row.cells[6:9]] == ["fewer than 3 seeds"] * 3
    assert row.cells[9].text == "\u2013"


def test_what_cannot_be_known_is_a_dash(tmp_path: Path):
    found = write_pair(tmp_path, [[math.nan]], [[0.2]])
    table = comparison_table(found, "success_once", "dcp", "crl")
    texts = dict(zip(table.columns, (cell.text for cell in table.rows[0].cells), strict=True))
    assert (texts["dcp"], texts["crl"]) == ("NaN", "20.0")
    assert texts["p"] == texts["Effect size d"] == texts["Probability of improvement"] == "\u2013"
    summary = summary_table(found)
    assert summary is not None and summary.rows[0].cells[2].text == "\u2013"
    assert any("fewer than 3 seeds" in note for note in summary.notes)


def test_methods_that_share_no_environment_are_not_compared(tmp_path: Path):
    write_run(tmp_path, "ant_push", "dcp", 0, [M], [0.1])
    write_run(tmp_path, "ant_soccer", "crl", 0, [M], [0.1])
    assert summary_table(collect([tmp_path])) is None


def test_the_sections_hold_every_table_in_the_order_of_a_reader(paper: Collection):
    found = statistics_sections(paper)
    assert [section.anchor for section in found] == ["summary", "checkpoints"]
    names = [table.name for section in found for table in section.tables]
    assert names[:3] == ["summary_dcp_against_crl", "comparison_time_near_goal_dcp_against_crl", names[2]]
    assert len(set(names)) == len(names) == 8
    assert all(to_latex(table).isascii() for section in found for table in section.tables)


def test_runs_without_an_evaluation_make_no_section(tmp_path: Path):
    write_run(tmp_path, "ant_push", "dcp", 0, [], [])
    assert statistics_sections(collect([tmp_path])) == []
