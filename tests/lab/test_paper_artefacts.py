"""The paper's tables and figures, made from runs that have its numbers, and from few."""

import json
from pathlib import Path

import pytest

from dcp.lab import paper_values
from dcp.lab.paper_artefacts import ARTEFACTS, PAIR, other_runs, overview, pairs_of_policies, papers_runs
from dcp.lab.result_tables import Table
from dcp.lab.run_collection import Collection, collect
from tests.lab.test_burst_tables import result, write_results
from tests.support.fake_runs import write_paper, write_run

M = 1_000_000


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """The paper's runs, with the evaluations of three seeds: seed 0 gains 1 of 32 episodes, the others none."""
    runs = tmp_path_factory.mktemp("paper")
    write_paper(runs, with_spread=True)
    for env in paper_values.ENVIRONMENTS:
        write_results(runs, *[result(env, m, seed, 8, 8 + (seed == 0)) for m in PAIR for seed in range(3)])
    return papers_runs(collect([runs]))


@pytest.mark.parametrize("name", ["table1", "table2", "table3", "table4", "table5"])
def test_the_papers_own_runs_have_every_printed_value_beside_them(paper: Collection, name: str):
    pairs = ARTEFACTS[name].beside(paper)
    assert len(pairs) == ARTEFACTS[name].num_values
    if name in ("table1", "table4", "table5"):  # runs that have the paper's numbers
        assert [pair.ours for pair in pairs] == [pair.papers for pair in pairs]


def table_of(collection: Collection, name: str) -> Table:
    make = ARTEFACTS[name].sections
    assert make is not None
    [section] = make(collection)
    [table] = section.tables
    return table


def texts(table: Table, environment: str) -> dict[str, str]:
    [row] = [row for row in table.rows if row.cells[0].text == environment]
    return {column: cell.text for column, cell in zip(table.columns, row.cells, strict=True)}


def test_table_1_has_its_task_column(paper: Collection):
    table = table_of(paper, "table1")
    assert table.columns[:2] == ("Environment", "Task")
    tasks = {row.cells[0].text: row.cells[1].text for row in table.rows}
    assert (tasks["ant_push"], tasks["ant_soccer"], tasks["humanoid_u_maze"]) == (
        "Nav + Manip",
        "Manipulation",
        "Navigation",
    )


def test_table_2_has_both_methods_in_a_row(paper: Collection):
    table = table_of(paper, "table2")
    row = texts(table, "pusher_easy")
    assert (row["dcp gain"], row["dcp gain, paper"], row["dcp W/T/L"]) == ("+1.0 ± 1.5", "+20.8 ± 3.9", "1/2/0")
    assert (row["crl reach, paper"], row["dcp minus crl"], row["dcp minus crl, paper"]) == ("1.0 ± 1.5", "0.0", "+20.8")
    overall = texts(table, "all")
    assert (overall["dcp W/T/L"], overall["dcp W/T/L, paper"]) == ("9/18/0", "18/5/4")
    assert overall["crl W/T/L, paper"] == "8/9/10"


def test_the_grid_needs_135_runs_and_the_list_counts_those_that_are_there(tmp_path: Path):
    write_run(tmp_path, "ant_u_maze", "dcp", 0, [10 * M, 50 * M], [0.4, 0.5])
    write_run(tmp_path, "ant_u_maze", "crl", 0, [10 * M], [0.3], budget=50 * M)
    write_run(tmp_path / "others", "ant_u_maze", "dcp", 1, [10 * M], [0.3], width=64)
    write_run(tmp_path, "point_u_maze", "dcp", 0, [10 * M], [0.3])
    table = overview(collect([tmp_path]), lambda config, at: (config.steps - at) / M, str(tmp_path))
    rows = {row.cells[0].text.split(",")[0]: [cell.text for cell in row.cells] for row in table.rows}
    assert rows["figure2"][2:4] == ["135", "1 finished, 1 begun, to 50M steps"]
    assert rows["table4"][4] == (
        "ant_u_maze dcp 10M 40.0; ant_u_maze crl 10M 30.0 (3 of 99 values)"  # and 50.0 at 50M
    )
    assert rows["table4"][5:7] == ["40.4 ± 9.5; 26.8 ± 4.5", "the paper's; 1 with others"]
    assert rows["table1"][4] == "\u2013"  # at 10M, and the paper's at 50M
    assert rows["figure3a"][7] == "100"
    # six environments of 50M and three of 100M, three methods of five seeds, less 50M and 10M
    assert rows["figure2"][7] == "8,900"  # 15 * 600 - 60 = 8,940
    assert any("ant_u_maze, dcp (width 64): not beside" in n or "width 64 instead of 256" in n for n in table.notes)


def test_runs_of_other_settings_are_none_of_the_papers(tmp_path: Path):
    write_run(tmp_path, "ant_u_maze", "dcp", 0, [10 * M], [0.4], discount=0.9)
    write_run(tmp_path, "humanoid_u_maze", "dcp", 0, [10 * M], [0.4])
    found = collect([tmp_path])
    assert [run.env for run in papers_runs(found).runs] == ["humanoid_u_maze"]
    assert papers_runs(found).runs[0].label == "dcp"  # its 128 environments are the paper's
    assert [run.env for run in other_runs(found).runs] == ["ant_u_maze"]


def test_a_landscape_falls_back_to_another_maze_and_says_so(tmp_path: Path):
    for method in PAIR:
        folder = write_run(tmp_path, "ant_u_maze", method, 2, [10 * M], [0.4])
        (folder / "policy.safetensors").touch()
    found = papers_runs(collect([tmp_path]))
    assert [[run.seed for run in pair] for pair in pairs_of_policies(found, "ant_u_maze")] == [[2, 2]]
    first, second = (ARTEFACTS[name].sections for name in ("figure3a", "figure4"))
    assert first is not None and second is not None
    [section] = first(found)
    assert section.text == "No pair of ant_big_maze is at hand, so this is ant_u_maze."
    assert second(found) == []  # there is no other seed


def test_a_damaged_config_is_no_run(tmp_path: Path):
    folder = write_run(tmp_path, "ant_u_maze", "dcp", 0, [10 * M], [0.4])
    (folder / "config.json").write_text(json.dumps({"schema_version": 2}))
    assert papers_runs(collect([tmp_path])).runs == other_runs(collect([tmp_path])).runs == ()
