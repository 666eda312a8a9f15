"""The policies that come with the package: small, whole, and as good as they say."""

import json
from pathlib import Path

import pytest

from dcp.errors import UserError
from dcp.files import run_folder
from dcp.files.run_folder import load_run
from dcp.lab.trial import evaluate
from dcp.methods.table import PAPER
from dcp.policies.policy_file import load_policy, policy_about

MEGABYTE = 1_000_000


def test_the_zoo_has_the_four_methods_on_the_point_mazes_and_an_ant():
    mazes = [f"zoo/point_{maze}_maze/{method}" for maze in ("u", "big", "hardest") for method in PAPER]
    assert {*mazes, "zoo/ant_u_maze/dcp"} <= set(run_folder.zoo_names())


@pytest.mark.parametrize("name", run_folder.zoo_names())
def test_a_policy_of_the_zoo_is_small_and_says_what_it_is(name: str):
    folder = run_folder.located(name)
    assert all(file.stat().st_size < MEGABYTE for file in folder.iterdir())
    env, method = name.split("/")[1:]
    about, run = policy_about(name), load_run(name)
    assert (about["env"], about["method"]) == (env, method) == (run.config["env"], run.config["method"])
    assert about["env_steps"] == run.metrics["env_steps"][-1]
    assert load_policy(name).spec.name == env
    score = json.loads((folder / "score.json").read_text())
    assert score["env"] == (run.config["eval_env"] or env)
    assert 0.0 <= score["summary"]["success_once"]["low"] <= score["summary"]["success_once"]["mean"]


def test_a_point_mazes_policy_scores_as_it_says():
    """Its own episodes once more. Another machine rounds otherwise, so a goal or two may change sides."""
    score = json.loads((run_folder.located("zoo/point_u_maze/dcp") / "score.json").read_text())
    trial = evaluate("zoo/point_u_maze/dcp", episodes=score["episodes"], seeds=(0,))
    assert trial.all.success.mean() == pytest.approx(score["summary"]["success_once"]["mean"], abs=0.05)


def test_what_lies_in_the_present_folder_goes_before_the_zoo(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_folder.located("zoo/point_u_maze/dcp") == run_folder.ZOO_FOLDER / "point_u_maze" / "dcp"
    (tmp_path / "zoo" / "point_u_maze" / "dcp").mkdir(parents=True)
    assert run_folder.located("zoo/point_u_maze/dcp") == Path("zoo/point_u_maze/dcp")


def test_a_name_that_the_zoo_lacks_is_answered_with_the_nearest_or_with_those_it_has():
    with pytest.raises(UserError, match=r"^the zoo has no ant_u_maze/dpc: did you mean zoo/ant_u_maze/dcp\?$"):
        load_policy("zoo/ant_u_maze/dpc")
    with pytest.raises(UserError, match=r"^the zoo has no ant_u_maze/crl: of this environment it has zoo/ant_u_m"):
        load_policy("zoo/ant_u_maze/crl")
    with pytest.raises(UserError, match="choose one of zoo/ant_u_maze/dcp, zoo/"):
        load_policy("zoo/7")
