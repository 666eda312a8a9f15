"""Burst and saturation tables from the files of `dcp eval`, by hand and with the paper's numbers."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from dcp.lab import paper_values
from dcp.lab.build_report import statistics_sections
from dcp.lab.burst_tables import burst_tables, saturation_table
from dcp.lab.result_tables import Cell, Table
from dcp.lab.run_collection import collect
from tests.support.fake_runs import write_run

EPISODES = 32


def result(
    env: str,
    method: str,
    seed: int,
    base: float,
    burst: float | None = None,
    saturation: float | None = 0.25,
    episodes: int = EPISODES,
    setting: tuple[int, int] = (100, 10),
    **more: Any,
) -> dict[str, Any]:
    """As `dcp eval` writes it: reached episodes out of `episodes`, without and, if given, with a burst."""
    about = {"env": env, "method": method, "seed": seed, "env_steps": paper_values.end(env) or 50_000_000}

    def part(reached: float) -> dict[str, Any]:
        seeds = [{"seed": 0, "success_once": reached / episodes, "saturation": saturation}]
        return {"about": about, "env": env, "episodes": episodes, "seeds": seeds, "stochastic": False, "burst": None}

    if burst is None:
        return part(base) | more
    return part(burst) | {"burst": list(setting), "without_burst": part(base)} | more


def write_results(runs: Path, *results: dict[str, Any]) -> None:
    for at, content in enumerate(results):
        about = content["about"]
        folder = runs / about["env"] / about["method"] / f"seed_{about['seed']}"
        if not folder.exists():
            write_run(runs, about["env"], about["method"], about["seed"], [50_000_000], [0.1])
        (folder / "evals").mkdir(exist_ok=True)
        (folder / "evals" / f"{at}.json").write_text(json.dumps(content))


def cell(table: Table, environment: str, method: str, column: str) -> Cell:
    [row] = [row for row in table.rows if (row.cells[0].text, row.cells[1].text) == (environment, method)]
    return row.cells[table.columns.index(column)]


def test_three_seeds_give_the_papers_mean_and_population_std(tmp_path: Path):
    """The humanoid's 6.2 ± 8.8 and CRL's 1.0 ± 1.5 on pusher_easy: 6 or 1 of 32 episodes in one seed of three."""
    write_results(tmp_path, *[result("humanoid_u_maze", "dcp", seed, 6 * (seed == 1), 6) for seed in range(3)])
    write_results(tmp_path, *[result("pusher_easy", "crl", seed, seed == 2, seed == 2) for seed in range(3)])
    [table] = burst_tables(collect([tmp_path]))
    for environment, method, expected in (("humanoid_u_maze", "dcp", "6.2 ± 8.8"), ("pusher_easy", "crl", "1.0 ± 1.5")):
        assert cell(table, environment, method, "Reach (%)").text == expected
        assert cell(table, environment, method, "Reach, paper").text == expected


def test_gains_are_paired_within_a_seed_and_bold_beyond_their_std(tmp_path: Path):
    """Reached 16, 8, 8 of 32, with a burst 20, 12, 11: gains 12.5, 12.5, 9.375: 11.46 ± 1.47, as in the paper."""
    pairs = [(16, 20), (8, 12), (8, 11)]
    write_results(tmp_path, *[result("ant_big_maze", "dcp", seed, *pair) for seed, pair in enumerate(pairs)])
    write_results(tmp_path, *[result("ant_big_maze", "crl", seed, 8, after) for seed, after in enumerate((8, 8, 11))])
    [table] = burst_tables(collect([tmp_path]))
    gain = cell(table, "ant_big_maze", "dcp", "Gain by the burst")
    assert (gain.text, gain.bold, gain.count) == ("+11.5 ± 1.5", True, 3)
    assert cell(table, "ant_big_maze", "dcp", "Gain, paper").text == "+11.5 ± 1.5"
    rival = cell(table, "ant_big_maze", "crl", "Gain by the burst")
    assert (rival.text, rival.bold) == ("+3.1 ± 4.4", False)  # 0, 0, 9.375
    assert cell(table, "ant_big_maze", "dcp", "Gain minus crl's").text == "+8.3"
    assert cell(table, "ant_big_maze", "dcp", "Minus crl's, paper").text == "+6.2"


def test_wins_ties_and_losses_are_over_all_environments_and_seeds(tmp_path: Path):
    write_results(tmp_path, *[result("ant_push", "dcp", s, 8, after) for s, after in enumerate((9, 8, 7))])
    write_results(tmp_path, *[result("ant_soccer", "dcp", s, 8, after) for s, after in enumerate((9, 10, 8))])
    [table] = burst_tables(collect([tmp_path]))
    assert cell(table, "ant_push", "dcp", "Wins/ties/losses").text == "1/1/1"
    assert cell(table, "all", "dcp", "Wins/ties/losses").text == "3/2/1"
    assert cell(table, "all", "dcp", "W/T/L, paper").text == "\u2013"  # over nine environments
    overall = cell(table, "all", "dcp", "Gain by the burst")
    assert overall.text == "+1.6 ± 3.0"  # 3.125 times 1, 0, -1, 1, 2, 0: mean 1/2, population std sqrt(11/12) = 0.957
    assert cell(table, "all", "dcp", "Gain, paper").text == "\u2013"


def test_the_papers_row_over_all_stands_beside_its_nine_environments(tmp_path: Path):
    write_results(tmp_path, *[result(env, "dcp", 0, 8, 9) for env in paper_values.ENVIRONMENTS])
    [table] = burst_tables(collect([tmp_path]))
    assert cell(table, "all", "dcp", "W/T/L, paper").text == "18/5/4"
    assert cell(table, "all", "dcp", "Gain, paper").text == "+9.1 ± 10.6"


@pytest.mark.parametrize(
    ("steps", "settings", "reason"),
    [
        (1_000_000, {}, "1,000,000 steps instead of 50,000,000"),
        (50_000_000, {"network": "residual", "depth": 4}, "network residual instead of mlp; depth 4 instead of 2"),
        (50_000_000, {"fidelity": "fixed"}, "fidelity fixed instead of paper"),
    ],
)
def test_a_policy_of_other_settings_or_steps_has_no_value_of_the_paper_beside_it(tmp_path, steps, settings, reason):
    folder = write_run(tmp_path, "ant_u_maze", "dcp", 0, [steps], [0.1], **settings)
    own = {"env_steps": steps}
    content = result("ant_u_maze", "dcp", 0, 8, 16)
    content["about"] |= own
    content["without_burst"]["about"] |= own
    (folder / "evals").mkdir()
    (folder / "evals" / "one.json").write_text(json.dumps(content))
    [table], saturation = burst_tables(collect([tmp_path])), saturation_table(collect([tmp_path]))
    assert saturation is not None
    sentence = f"ant_u_maze, dcp: not beside the paper's values, because of {reason}."
    for each in (table, saturation):
        assert not any("aper" in column for column in each.columns)
        assert sentence in each.notes


def test_the_overall_gain_over_crl_is_of_the_environments_that_both_have(tmp_path: Path):
    """DCP gains 0 and 16 of 32 episodes, CRL 1 of 32 on the first alone: 0 - 3.1, not (0 + 50) / 2 - 3.1."""
    write_results(tmp_path, result("ant_push", "dcp", 0, 8, 8), result("ant_soccer", "dcp", 0, 8, 24))
    write_results(tmp_path, result("ant_push", "crl", 0, 8, 9))
    [table] = burst_tables(collect([tmp_path]))
    assert cell(table, "all", "dcp", "Gain minus crl's").text == "\N{MINUS SIGN}3.1"


def test_the_papers_overall_row_follows_from_its_rows():
    """The mean of the means; the variance over 27 pairs is the mean variance plus the variance of the means."""
    for method in ("dcp", "crl"):
        rows = [paper_values.burst(environment, method, "delta") for environment in paper_values.ENVIRONMENTS]
        mean = sum(row.mean for row in rows) / 9
        std = math.sqrt(sum(row.spread**2 + row.mean**2 for row in rows) / 9 - mean**2)
        overall = paper_values.burst("all", method, "delta")
        assert overall == pytest.approx((mean, std), abs=0.06)  # of rounded numbers


def test_one_seed_has_no_std_and_no_bold(tmp_path: Path):
    write_results(tmp_path, result("ant_push", "dcp", 0, 8, 16))
    [table] = burst_tables(collect([tmp_path]))
    gain = cell(table, "ant_push", "dcp", "Gain by the burst")
    assert (gain.text, gain.bold) == ("+25.0", False)
    assert "Gain minus crl's" not in table.columns
    assert len(table.rows) == 1  # all is that one


def test_each_burst_has_its_table_and_the_paper_stands_beside_its_own(tmp_path: Path):
    first, second = result("ant_push", "dcp", 0, 8, 16), result("ant_push", "dcp", 0, 8, 12, setting=(50, 5))
    write_results(tmp_path, first, second)
    tables = burst_tables(collect([tmp_path]))
    assert [table.name for table in tables] == ["burst_50_5", "burst_100_10"]
    assert ["Gain, paper" in table.columns for table in tables] == [False, True]


def test_one_result_counts_for_a_policy_and_the_rest_is_told(tmp_path: Path):
    few, many = result("ant_push", "dcp", 0, 0, 8), result("ant_push", "dcp", 0, 32, 64, episodes=64)
    drawn, elsewhere = {**few, "stochastic": True}, {**many, "physics": "mujoco"}
    write_results(tmp_path, few, many, drawn, elsewhere)
    [table] = burst_tables(collect([tmp_path]))
    assert cell(table, "ant_push", "dcp", "Gain by the burst").text == "+50.0"
    assert sum("left out" in note for note in table.notes) == 1
    assert any("drawn at random" in note for note in table.notes)
    assert any("stepped by 'mujoco', unlike the run itself" in note for note in table.notes)


def test_other_episodes_within_an_environment_are_told(tmp_path: Path):
    write_results(tmp_path, result("ant_push", "dcp", 0, 8, 16), result("ant_push", "crl", 0, 8, 16, episodes=16))
    [table] = burst_tables(collect([tmp_path]))
    assert any("ant_push: not all policies had the same episodes" in note for note in table.notes)


def test_an_intervention_has_its_own_table_beside_the_bursts(tmp_path: Path):
    """Reached 8 of 32 alone, 16 with a burst, 24 with the intervention: +25 and +50 points."""
    burst = result("ant_push", "dcp", 0, 8, 16)
    other = {**burst, **result("ant_push", "dcp", 0, 24), "without_intervention": burst["without_burst"]}
    del other["without_burst"]
    other["intervention"] = {"name": "untried", "patience": 25, "length": 10}
    write_results(tmp_path, burst, other)
    tables = burst_tables(collect([tmp_path]))
    assert [table.name for table in tables] == ["burst_100_10", "untried_25_10"]
    assert cell(tables[0], "ant_push", "dcp", "Gain by the burst").text == "+25.0"
    assert cell(tables[1], "ant_push", "dcp", "Gain by the intervention").text == "+50.0"
    saturation = saturation_table(collect([tmp_path]))
    assert saturation is not None and not any("left out" in note for note in saturation.notes)


def test_saturation_is_that_without_a_burst(tmp_path: Path):
    """0.10, 0.12 and 0.17: 13.0 ± 2.9 percent. The file with a burst holds both."""
    write_results(tmp_path, *[result("ant_u_maze", "dcp", s, 8, saturation=x) for s, x in enumerate((0.1, 0.12))])
    with_burst = result("ant_u_maze", "dcp", 2, 8, 9, saturation=0.17)
    with_burst["seeds"][0]["saturation"] = 0.9
    write_results(tmp_path, with_burst)
    table = saturation_table(collect([tmp_path]))
    assert table is not None
    assert cell(table, "ant_u_maze", "dcp", "Saturation (%)").text == "13.0 ± 2.9"
    assert cell(table, "ant_u_maze", "dcp", "Paper").text == "12.9 ± 1.6"


def test_the_two_files_of_a_pair_are_one_result_and_nothing_is_told(tmp_path: Path):
    """As `dcp eval --burst` writes them: with the burst and its other half inside, and the other half alone."""
    both = result("ant_push", "dcp", 0, 8, 16)
    write_results(tmp_path, both, both["without_burst"])
    table = saturation_table(collect([tmp_path]))
    assert table is not None
    assert len(table.rows) == 1
    assert not any("left out" in note for note in table.notes)


def test_a_saturation_that_is_null_is_nan(tmp_path: Path):
    write_results(tmp_path, result("ant_u_maze", "dcp", 0, 8, saturation=None))
    table = saturation_table(collect([tmp_path]))
    assert table is not None
    assert cell(table, "ant_u_maze", "dcp", "Saturation (%)").text == "NaN"


def test_a_file_that_lacks_something_is_told_and_takes_nothing_with_it(tmp_path: Path):
    broken = result("ant_u_maze", "dcp", 0, 8)
    del broken["episodes"]
    write_results(tmp_path, broken, result("ant_u_maze", "dcp", 1, 8))
    table = saturation_table(collect([tmp_path]))
    assert table is not None
    assert cell(table, "ant_u_maze", "dcp", "Seeds").text == "1"
    assert any("not a result that this version can read (KeyError('episodes'))" in note for note in table.notes)


@pytest.mark.parametrize(
    "damage",
    [
        {"schema_version": 2},
        {"burst": [5], "without_burst": {"seeds": []}},
        {"seeds": []},
        {"seeds": [3]},
        {"env": ["ant_push"]},
        {"about": {"env": "ant_push", "method": "dcp", "seed": math.inf}},
        {"about": {"env": {}, "method": "dcp", "seed": 0}},
    ],
)
def test_a_damaged_result_is_told_also_where_it_is_the_only_one(tmp_path: Path, damage: dict[str, Any]):
    folder = write_run(tmp_path, "ant_push", "dcp", 0, [50_000_000], [0.1]) / "evals"
    folder.mkdir()
    (folder / "bad.json").write_text(json.dumps({**result("ant_push", "dcp", 0, 8), **damage}))
    assert burst_tables(collect([tmp_path])) == []
    [section] = [section for section in statistics_sections(collect([tmp_path])) if section.anchor == "saturation"]
    assert not section.tables
    assert "bad.json: " in section.text


def test_the_latest_policy_of_a_run_counts_not_the_one_with_most_episodes(tmp_path: Path):
    late, early = result("ant_push", "dcp", 0, 8, 16), result("ant_push", "dcp", 0, 0, 0, episodes=256)
    early["about"] = {**early["about"], "env_steps": 10_000_000}
    rival = result("ant_push", "crl", 0, 8, 8)
    rival["about"] = early["about"] | {"method": "crl"}
    write_results(tmp_path, early, late, rival)
    [table] = burst_tables(collect([tmp_path]))
    assert cell(table, "ant_push", "dcp", "Gain by the burst").text == "+25.0"
    assert "ant_push: the policies were trained for 10,000,000 to 100,000,000 steps." in table.notes


def test_without_results_there_is_no_table(tmp_path: Path):
    write_run(tmp_path, "ant_push", "dcp", 0, [50_000_000], [0.1])
    found = collect([tmp_path])
    assert burst_tables(found) == []
    assert saturation_table(found) is None
    assert [section.anchor for section in statistics_sections(found)] == ["checkpoints"]
