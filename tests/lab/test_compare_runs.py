import json
import math
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.config import SCHEMA_VERSION, Config
from dcp.errors import UserError
from dcp.lab.compare_runs import (
    compare,
    comparison_figure,
    comparison_tables,
)
from dcp.lab.statistics import success_difference_error

HEAD = "env_steps,success_once,time_near_goal\n"


def write_run(folder, metrics="1000,0.5,7\n2000,0.75,9\n", versions=None, **settings):
    folder.mkdir(parents=True)
    config = json.loads(Config(**{"steps": 2000, "eval_episodes": 98, **settings}).to_json())
    stored = {"schema_version": SCHEMA_VERSION, "config": config, "versions": versions or {}, "earlier_budgets": []}
    (folder / "config.json").write_text(json.dumps(stored))
    if metrics is not None:
        (folder / "metrics.csv").write_text(HEAD + metrics)
    return folder


def texts(table):
    return [[cell.text for cell in row.cells] for row in table.rows]


def tables_of(found):
    return {table.name: table for table in comparison_tables(found)}


def test_only_the_settings_and_versions_that_differ_are_named(tmp_path):
    a = write_run(tmp_path / "a", versions={"jax": "0.10", "numpy": "2.0"}, method="dcp", num_envs=512)
    b = write_run(tmp_path / "b", versions={"jax": "0.11", "numpy": "2.0", "new": "1"}, method="crl", num_envs=1024)
    found = compare(a, b)
    assert found.settings == [("method", "dcp", "crl"), ("num_envs", "512", "1,024")]
    assert found.versions == [("jax", "0.10", "0.11"), ("new", "–", "1")]  # noqa: RUF001
    assert found.names == ("A: dcp", "B: crl")


def test_last_best_and_mean_by_hand(tmp_path):
    a = write_run(tmp_path / "a", "1000,0.5,7\n2000,0.75,9\n")
    b = write_run(tmp_path / "b", "1000,0.5,1\n2000,0.25,2\n3000,0.125,3\n", seed=1, steps=3000)
    results = texts(tables_of(compare(a, b))["compare_results"])
    last, best, mean = results[:3]
    assert last[1:4] == ["75.0 at 2,000", "12.5 at 3,000", "–"]  # noqa: RUF001  other steps: no difference
    assert best[1:4] == ["75.0 at 2,000", "50.0 at 1,000", "+25.0"]
    assert mean[1:4] == ["62.5", "37.5", "+25.0"]  # (50 + 75) / 2, (50 + 25) / 2: at the two common steps
    assert mean[0].endswith("mean of the 2 common evaluations")
    points = texts(tables_of(compare(a, b))["compare_points"])
    assert points == [
        ["1,000", "50.0", "50.0", "0.0", "7.0", "1.0", "+6.0"],
        ["2,000", "75.0", "25.0", "+50.0", "9.0", "2.0", "+7.0"],
    ]


def test_the_interval_of_a_difference_by_hand():
    # (49 + 1) / 100 and (98 * 0 + 1) / 100: sqrt(0.5 * 0.5 / 100 + 0.01 * 0.99 / 100) * 1.96
    assert_allclose(success_difference_error(0.5, 0.0, 98, 98), 1.96 * math.sqrt(0.0025 + 0.000099))


def test_a_difference_at_the_same_step_has_its_interval(tmp_path):
    a, b = write_run(tmp_path / "a", "2000,0.5,7\n"), write_run(tmp_path / "b", "2000,0.0,7\n", method="crl")
    last = texts(tables_of(compare(a, b))["compare_results"])[0]
    assert last[3:] == ["+50.0", "10.0"]


def test_gaps_stay_gaps(tmp_path):
    a = write_run(tmp_path / "a", "1000,nan,7\n2000,nan,9\n")
    b = write_run(tmp_path / "b", "1000,0.0,7\n2000,1.0,9\n", method="crl")
    found = compare(a, b)
    last, best, *_ = texts(tables_of(found)["compare_results"])
    assert last[1:] == ["NaN at 2,000", "100.0 at 2,000", "NaN", ""]
    assert best[1] == "NaN"
    assert comparison_figure(found)


def test_the_best_evaluation_is_the_best_of_those_that_are_known(tmp_path):
    a, b = write_run(tmp_path / "a", "1000,0.5,7\n2000,nan,9\n"), write_run(tmp_path / "b", method="crl")
    assert texts(tables_of(compare(a, b))["compare_results"])[1][1] == "50.0 at 1,000"


def test_runs_without_a_common_evaluation_are_drawn_and_have_no_difference(tmp_path):
    a, b = write_run(tmp_path / "a", "1000,0.5,7\n"), write_run(tmp_path / "b", "1500,0.5,7\n", method="crl")
    found = compare(a, b)
    assert "compare_points" not in tables_of(found)
    above, below = comparison_figure(found).axes[0], comparison_figure(found).axes[2]
    assert_allclose([line.get_xydata() for line in above.lines], [[[1000, 50]], [[1500, 50]]])
    assert below.texts[0].get_text() == "no common evaluation"


def test_the_figure_shows_both_curves_and_a_less_b(tmp_path):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", "1000,0.25,7\n2000,1.0,8\n", method="crl")
    figure = comparison_figure(compare(a, b))
    success, _, difference, _ = figure.axes
    assert_allclose([line.get_ydata() for line in success.lines], [[50, 75], [25, 100]])
    (bars,) = difference.collections
    assert_allclose([bar[:, 1] for bar in bars.get_segments()], [[0, 25], [0, -25]])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["A: dcp", "B: crl"]


def test_a_run_without_an_evaluation_is_compared_by_its_settings(tmp_path):
    found = compare(write_run(tmp_path / "a"), write_run(tmp_path / "b", None, method="crl"))
    assert list(tables_of(found)) == ["compare_settings"]
    with pytest.raises(UserError, match="no evaluation yet"):
        comparison_figure(found)


def write_eval(run, fingerprint, rows, **about):
    (run / "evals").mkdir()
    content = {"seeds": [{"seed": 0, "goal_set_sha256": fingerprint}], **about}
    (run / "evals" / "u_4.json").write_text(json.dumps(content))
    (run / "evals" / "u_4.csv").write_text("success,time_near_goal\n" + "".join(f"{s},{t}\n" for s, t in rows))


def test_results_of_dcp_eval_on_the_same_episodes_are_paired(tmp_path):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", method="crl")
    write_eval(a, "f00d", [(1, 10), (1, 20), (0, 0), (0, 0)])
    write_eval(b, "f00d", [(1, 4), (0, 0), (0, 0), (1, 2)])
    (pair,) = compare(a, b).paired_evals
    gain = pair.gain
    assert (pair.name, pair.success, gain.wins, gain.ties, gain.losses) == ("u_4", (50.0, 50.0), 1, 2, 1)
    assert gain.success_once.mean == 0.0
    # one won, one lost of 4, half an episode added to each outcome: 1.96 sqrt(1.5 + 1.5) / 6
    assert_allclose(gain.success_once.high, 1.96 * math.sqrt(3) / 6, rtol=1e-6)
    assert_allclose(gain.time_near_goal.mean, (6 + 20 + 0 - 2) / 4)
    assert "compare_evals" in tables_of(compare(a, b))


def test_other_episodes_are_not_paired(tmp_path):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", method="crl")
    write_eval(a, "f00d", [(1, 10)])
    write_eval(b, "beef", [(1, 4)])
    assert compare(a, b).paired_evals == []
    shutil.rmtree(b / "evals")
    write_eval(b, "f00d", [(1, 4)])
    (b / "evals" / "u_4.csv").write_text("torn")
    assert compare(a, b).paired_evals == []


def test_the_same_episodes_by_two_engines_are_not_paired(tmp_path):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", method="crl")
    write_eval(a, "f00d", [(1, 10)])
    write_eval(b, "f00d", [(1, 4)], physics="mujoco")
    assert compare(a, b).paired_evals == []


@pytest.mark.parametrize("other", [{"episode_length": 500}, {"randomize": ["friction"]}])
def test_episodes_of_another_length_or_of_a_randomized_body_are_not_paired(tmp_path, other):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", method="crl")
    write_eval(a, "f00d", [(1, 10)], episode_length=250)
    write_eval(b, "f00d", [(1, 4)], **{"episode_length": 250, **other})
    assert compare(a, b).paired_evals == []


def test_runs_on_randomized_bodies_are_not_compared(tmp_path):
    a = write_run(tmp_path / "a", env="so101_reach")
    b = write_run(tmp_path / "b", env="so101_reach", randomize="all")
    assert compare(a, b).evaluated_apart == [("randomize", "None", "all")]


def test_configs_without_an_evaluation_environment_are_compared_by_their_own(tmp_path):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", env="point_big_maze")
    assert compare(a, b).evaluated_apart[0][0] == "eval_env"


def test_a_damaged_result_is_not_paired(tmp_path):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", method="crl")
    for run in (a, b):
        write_eval(run, "f00d", [(1, 10)])
        (run / "evals" / "u_4.json").write_text('{"seeds": [3]}')
    assert compare(a, b).paired_evals == []


def test_numbers_of_different_environments_and_episodes_are_told(tmp_path):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", env="point_big_maze", eval_env="point_big_maze")
    assert (
        "A was evaluated with eval_env point_u_maze and B with point_big_maze"
        in tables_of(compare(a, b))["compare_results"].notes[1]
    )
    c = write_run(tmp_path / "c", episode_length=77)
    assert [each[0::2] for each in compare(a, c).evaluated_apart] == [("episode_length", "77")]
    assert compare(a, write_run(tmp_path / "d", method="crl")).evaluated_apart == []


def test_no_two_columns_of_a_table_are_called_alike(tmp_path):
    for table in comparison_tables(compare(write_run(tmp_path / "a"), write_run(tmp_path / "b", method="crl"))):
        assert len(set(table.columns)) == len(table.columns), table.name


def test_mistakes_are_one_sentence(tmp_path):
    a = write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", seed=1)
    for one, other, words in (
        (a, a, "are the same run"),
        (a, tmp_path / "nothing", "there is no folder"),
        (a, tmp_path / "runs", "holds 2 runs: name one of"),
    ):
        with pytest.raises(UserError, match=words):
            compare(one, other)
    (a / "metrics.csv").write_text("env_steps\n1000\n1000\n")
    with pytest.raises(UserError, match="damaged"):
        compare(a, tmp_path / "runs" / "b")


def test_long_runs_show_a_dozen_points_and_always_the_last(tmp_path):
    rows = "".join(f"{step},0.5,1\n" for step in np.arange(1, 51) * 1000)
    a, b = (
        write_run(tmp_path / name, rows, steps=50_000, method=method) for name, method in (("a", "dcp"), ("b", "crl"))
    )
    table = tables_of(compare(a, b))["compare_points"]
    assert len(table.rows) == 12
    assert (table.rows[0].cells[0].text, table.rows[-1].cells[0].text) == ("1,000", "50,000")
    assert table.notes == ("12 of 50 common evaluations are shown.",)
