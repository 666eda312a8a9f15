"""Published numbers stand beside ours where the protocols agree, and a sentence stands where they do not."""

from pathlib import Path
from typing import Any

import pytest

from dcp.lab.method_tables import published_sections
from dcp.lab.run_collection import collect
from dcp.presets import preset_overrides
from tests.support.fake_runs import write_run

STEPS = [96e6, 97e6, 98e6, 99e6, 100e6]
LOOP = {k: v for k, v in preset_overrides("scaled_crl", "humanoid").items() if k not in ("method", "steps")}


def rows_of(
    runs: Path, env: str = "ant_u4_maze", steps: list[float] = STEPS, method: str = "crl", **settings: Any
) -> list[list[str]]:
    near = [300.0, 320.0, 340.0, 360.0, 380.0][-len(steps) :]
    write_run(runs, env, method, 0, steps, [0.5] * len(steps), near, **{**LOOP, **settings})
    sections = published_sections(collect([runs]))
    return [[cell.text for cell in row.cells] for section in sections for row in section.tables[0].rows]


def test_on_the_training_layout_chronosrls_values_stand_beside_ours_and_scaled_crls_do_not(tmp_path: Path):
    """ChronoSRL's CRL at depth 4: 383.1 ± 45. Ours: the mean of 300, 320, 340, 360 and 380."""
    rows = rows_of(tmp_path)
    by_source = {(row[4], row[5]): row for row in rows}
    assert {key[0] for key in by_source} == {"Scaled CRL", "ChronoSRL"}
    crl = by_source[("ChronoSRL", "CRL, depth 4")]
    assert crl[3] == "340.0" and crl[6].startswith("383.") and crl[7] == "yes"
    assert ("ChronoSRL", "ChronoSRL, depth 4") not in by_source  # another method
    (scaled,) = [row for row in rows if row[4] == "Scaled CRL"]
    assert scaled[6] == "\u2013"
    assert scaled[7] == "no: evaluated on ant_u4_maze instead of ant_u4_maze_eval"


def test_on_far_goals_it_is_the_other_way_round(tmp_path: Path):
    rows = rows_of(tmp_path, eval_env="ant_u4_maze_eval")
    shown = {(row[4], row[5]): row[6] for row in rows if row[7] == "yes"}
    assert shown == {("Scaled CRL", "CRL, depth 4"): "11.4 ± 4.1"}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"steps": [6e6, 7e6, 8e6, 9e6, 10e6]}, "10M steps instead of 100M"),
        ({"steps": [99e6, 100e6]}, "a mean of 2 evaluations instead of the last 5"),
        ({"network": "mlp"}, "network mlp instead of residual"),
        ({"depth": 12}, "depth 12 instead of 1, 2, 4, 8, 16, 32, 64"),
        ({"fidelity": "fixed"}, "fidelity fixed instead of paper"),
        ({"physics": "mujoco"}, "physics mujoco instead of brax"),
        ({"discount": 0.95}, "discount 0.95 instead of 0.99"),
        ({"contrastive_loss": "backward"}, "contrastive_loss backward instead of forward"),
        ({"updates_per_iteration": 100}, "updates_per_iteration 100 instead of 800"),
        ({"method": "dcp"}, "no dcp there whose settings are known here"),
    ],
)
def test_each_difference_is_said_and_hides_the_value(changed: dict[str, Any], reason: str, tmp_path: Path):
    (row,) = [row for row in rows_of(tmp_path, **changed) if row[4] == "ChronoSRL"]
    assert row[6] == "\u2013"
    assert row[7] == f"no: {reason}"


def test_scaled_crls_big_maze_lacks_a_goal_that_ours_has(tmp_path: Path):
    rows = rows_of(tmp_path, "ant_big_maze", eval_env="ant_big_maze_eval")
    assert not [row for row in rows if row[7] == "yes"]
    (scaled,) = [row for row in rows if row[4] == "Scaled CRL"]
    assert "evaluated on ant_big_maze_eval instead of ant_big_maze_eval without the goal (2, 5)" in scaled[7]


def test_an_environment_that_nobody_published_has_no_section(tmp_path: Path):
    assert rows_of(tmp_path, "point_u_maze") == []


def test_two_seeds_have_a_range_and_no_interval(tmp_path: Path):
    write_run(tmp_path, "ant_u4_maze", "crl", 1, STEPS, [0.5] * 5, [400.0] * 5, **LOOP)
    assert rows_of(tmp_path)[0][3] == "340.0 to 400.0"


def test_chronosrls_own_value_stands_beside_a_run_of_its_preset(tmp_path: Path):
    own = preset_overrides("chronosrl", "ant_u4_maze")
    rows = rows_of(tmp_path, **own | {"steps": STEPS})
    assert [row[6] for row in rows if row[7] == "yes"] == ["860.5 ± 7.6"]
