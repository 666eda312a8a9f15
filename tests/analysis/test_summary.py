"""Who is better, from run folders that hold the paper's own numbers, and from ones that lack some."""

import math
from pathlib import Path

import pytest

from dcp.analysis import paper_values
from dcp.analysis.collection import Collection, collect
from dcp.analysis.overall import aggregate_table, final_scores, improvement_table
from dcp.analysis.overall_figures import aggregate_figure, profile_figure
from dcp.analysis.statistics_sections import sections
from dcp.analysis.summary import compare_methods, comparison_table, summary_table
from dcp.analysis.tables import to_latex
from tests.analysis.fake_runs import five_seeds, write_run

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


def write_paper(runs: Path, with_spread: bool) -> None:
    """Five seeds of three methods on nine environments: the published means, with the published intervals or none."""
    for environment in paper_values.environments():
        for method in ("dcp", "crl", "ssgc"):
            steps = [
                at
                for at in paper_values.CHECKPOINTS
                if paper_values.checkpoint("success_once", environment, method, at)
            ]
            columns = {}
            for metric in ("success_once", "time_near_goal"):
                published = [paper_values.checkpoint(metric, environment, method, at) for at in steps]
                columns[metric] = [five_seeds(mean, spread if with_spread else 0.0) for mean, spread in published]
            for seed in range(5):
                success = [values[seed] / 100 for values in columns["success_once"]]
                near = [values[seed] for values in columns["time_near_goal"]]
                write_run(runs, environment, method, seed, steps, success, near, episode_length=1000)


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
    table = summary_table(write_pair(tmp_path, [[0.1], [0.11]], [[0.3], [0.31]], each=50e6))
    assert table is not None
    assert [cell.text for cell in table.rows[0].cells[2:]] == ["↓ crl", "↑ dcp", "↓ crl", "↑ dcp"]
    assert [cell.marker for cell in table.rows[0].cells[2:]] == ["≠", "", "≠", ""]


def test_the_papers_sign_at_other_steps_is_named_and_not_held_against_ours(tmp_path: Path):
    """The paper's runs of ant_big_maze end at 50M: 45M is near, 44M is not."""
    early = summary_table(write_pair(tmp_path / "early", [[0.1], [0.11]], [[0.3], [0.31]], each=44e6))
    near = summary_table(write_pair(tmp_path / "near", [[0.1], [0.11]], [[0.3], [0.31]], each=45e6))
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


def test_what_cannot_be_known_is_a_dash(tmp_path: Path):
    found = write_pair(tmp_path, [[math.nan]], [[0.2]])
    table = comparison_table(found, "success_once", "dcp", "crl")
    texts = dict(zip(table.columns, (cell.text for cell in table.rows[0].cells), strict=True))
    assert (texts["dcp"], texts["crl"]) == ("NaN", "20.0")
    assert texts["p"] == texts["Effect size d"] == texts["Probability of improvement"] == "\u2013"
    summary = summary_table(found)
    assert summary is not None and summary.rows[0].cells[2].text == "\u2013"
    assert any("one seed" in note for note in summary.notes)


def test_methods_that_share_no_environment_are_not_compared(tmp_path: Path):
    write_run(tmp_path, "ant_push", "dcp", 0, [M], [0.1])
    write_run(tmp_path, "ant_soccer", "crl", 0, [M], [0.1])
    assert summary_table(collect([tmp_path])) is None


def test_scores_are_shares_and_the_aggregate_is_their_interquartile_mean(tmp_path: Path):
    write_pair(tmp_path, [[0.0], [0.2]], [[0.1], [0.1]], "ant_push")
    found = write_pair(tmp_path, [[0.4], [1.0]], [[0.2], [0.3]], "ant_soccer")
    assert [scores.tolist() for scores in final_scores(found, "time_near_goal")["dcp"]] == [[0.0, 0.2], [0.4, 1.0]]
    table = aggregate_table(found, "success_once")
    first = dict(zip(table.columns, table.rows[0].cells, strict=True))
    assert first["Interquartile mean"].value == pytest.approx(0.3)  # of 0.2 and 0.4
    assert first["Interquartile mean"].text.startswith("0.300 [")
    assert (first["Environments"].text, first["Runs"].text) == ("2", "4")
    better = improvement_table(found, "success_once")
    assert better.rows[0].cells[2].value == 0.75  # a half on the one, all on the other


def test_an_environment_that_a_method_lacks_is_left_out_of_the_aggregate_and_told(tmp_path: Path):
    write_pair(tmp_path, [[0.1], [0.2]], [[0.1], [0.1]], "ant_push")
    write_pair(tmp_path, [[0.1], [0.2]], [[0.1], [0.1]], "ant_u_maze")
    write_run(tmp_path, "ant_push", "ssgc", 0, [M], [0.5], episode_length=1000)
    found = write_pair(tmp_path, [[0.4], [1.0]], [], "ant_soccer")
    notes = aggregate_table(found, "success_once").notes
    assert any("no run there: ant_soccer." in note for note in notes)
    assert any("fewer than half of the environments: ssgc." in note for note in notes)


def test_an_unknown_score_makes_the_aggregate_unknown(tmp_path: Path):
    found = write_pair(tmp_path, [[0.1], [math.nan]], [[0.1], [0.1]])
    texts = [row.cells[3].text for row in aggregate_table(found, "success_once").rows]
    assert texts[0] == "NaN" and texts[1].startswith("0.100")


def test_the_sections_hold_every_table_in_the_order_of_a_reader(paper: Collection):
    found = sections(paper)
    assert [section.anchor for section in found] == ["summary", "overall", "checkpoints"]
    names = [table.name for section in found for table in section.tables]
    assert names[:3] == ["summary_dcp_against_crl", "comparison_time_near_goal_dcp_against_crl", names[2]]
    assert len(set(names)) == len(names) == 12
    assert all(to_latex(table).isascii() for section in found for table in section.tables)
    assert [figure.name for figure in found[1].figures] == [
        "aggregate",
        "profile_success_once",
        "profile_time_near_goal",
    ]


def test_a_profile_has_a_line_for_each_method(paper: Collection):
    [axes] = profile_figure(paper, "success_once").axes
    assert [line.get_label() for line in axes.lines] == ["dcp", "crl", "ssgc"]
    assert axes.lines[0].get_ydata()[0] > axes.lines[0].get_ydata()[-1]


def test_a_profile_ends_at_the_first_tenth_above_all_scores(tmp_path: Path):
    found = write_pair(tmp_path, [[0.21], [0.35]], [[0.1], [math.nan]])
    [axes] = profile_figure(found, "success_once").axes
    assert axes.get_xlim() == pytest.approx((0.0, 0.4))
    assert axes.lines[0].get_ydata()[[0, 60, -1]].tolist() == [1.0, 0.5, 0.0]  # at 0, 0.24 and 0.4
    assert all(math.isnan(value) for value in axes.lines[1].get_ydata())


def test_the_aggregates_figure_has_a_bar_for_an_interval_and_a_line_for_the_estimate(tmp_path: Path):
    found = write_pair(tmp_path, [[0.2], [0.4]], [[0.3]])
    axes = aggregate_figure(found).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["dcp", "crl"]
    assert [float(line.get_xdata()[0]) for line in axes.lines] == pytest.approx([0.3, 0.3])
    [bar] = axes.patches  # one seed has no interval
    assert (bar.get_x(), bar.get_width()) == pytest.approx((0.2, 0.2))


def test_runs_without_an_evaluation_make_no_section(tmp_path: Path):
    write_run(tmp_path, "ant_push", "dcp", 0, [], [])
    assert sections(collect([tmp_path])) == []
