"""Run folders are found, read and grouped as they are."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from dcp.errors import UserError
from dcp.lab.run_collection import collect
from tests.support.fake_runs import write_run

STEPS = [1_000_000, 2_000_000]


def test_runs_are_found_at_any_depth_and_counted_once(tmp_path: Path):
    one = write_run(tmp_path / "a", "ant_push", "dcp", 0, STEPS, [0.1, 0.2])
    write_run(tmp_path / "a" / "b" / "c", "ant_push", "dcp", 1, STEPS, [0.3, 0.4])
    found = collect([tmp_path, one, str(one)])
    assert [run.seed for run in found.of("ant_push", "dcp")] == [0, 1]
    assert len(found.runs) == 2
    assert found.remarks == []
    assert found.of("ant_push", "dcp")[1].metrics["success_once"].tolist() == [0.3, 0.4]


def test_a_folder_whose_name_cannot_be_shown_is_left_out_and_told(tmp_path: Path):
    write_run(tmp_path / "runs", "ant_push", "dcp", 0, STEPS, [0.1, 0.2])
    for name in (os.fsdecode(b"r\xff"), "\x1b[2J"):
        write_run(tmp_path / "runs" / name, "ant_push", "dcp", 1, STEPS, [0.3, 0.4])
    found = collect([tmp_path / "runs"])
    assert len(found.runs) == 1
    left_out = [remark for remark in found.remarks if "is left out: its name has signs that cannot be shown" in remark]
    assert len(left_out) == 2 and all(remark.isprintable() for remark in left_out)
    with pytest.raises(UserError, match="is left out"):
        collect([tmp_path / "runs" / "\x1b[2J"])


def test_the_papers_order_goes_first(tmp_path: Path):
    for env in ("point_u_maze", "ant_soccer", "ant_big_maze"):
        for method in ("dcp_no_pool", "crl", "ssgc", "dcp"):
            write_run(tmp_path, env, method, 0, STEPS, [0.1, 0.2])
    found = collect([tmp_path])
    assert found.environments == ["ant_big_maze", "ant_soccer", "point_u_maze"]
    assert found.methods == ["dcp", "crl", "ssgc", "dcp_no_pool"]
    assert list(found.groups)[:2] == [("ant_big_maze", "dcp"), ("ant_big_maze", "crl")]


def test_every_state_is_told(tmp_path: Path):
    write_run(tmp_path, "ant_push", "dcp", 0, STEPS, [0.1, 0.2])
    write_run(tmp_path, "ant_push", "dcp", 1, STEPS, [0.1, 0.2], budget=4_000_000)
    write_run(tmp_path, "ant_push", "dcp", 2, [], [])
    gone = write_run(tmp_path, "ant_push", "dcp", 3, STEPS, [0.1, 0.2])
    (gone / "metrics.csv").unlink()
    damaged = write_run(tmp_path, "ant_push", "dcp", 4, STEPS, [0.1, 0.2])
    (damaged / "metrics.csv").write_text("evaluation,env_steps\n1,x\n2,5\n")
    broken = write_run(tmp_path, "ant_push", "dcp", 5, STEPS, [0.1, 0.2])
    (broken / "config.json").write_text("{")
    states = {run.folder.name: run.state for run in collect([tmp_path]).runs}
    assert states["seed_0"] == "finished"
    assert states["seed_1"] == "running or stopped at 2,000,000 of 4,000,000 steps"
    assert states["seed_2"] == states["seed_3"] == "no evaluation"
    assert states["seed_4"].startswith("damaged: metrics.csv has a line that is not a row of numbers")
    assert states["seed_5"].startswith("damaged: ") and "is not JSON" in states["seed_5"]
    assert [run.seed for run in collect([tmp_path]).of("ant_push", "dcp")] == [0, 1]
    assert len(collect([tmp_path]).remarks) == 5


def test_a_torn_last_line_is_left_out_and_told(tmp_path: Path):
    folder = write_run(tmp_path, "ant_push", "dcp", 0, STEPS, [0.1, 0.2])
    with (folder / "metrics.csv").open("a") as file:
        file.write("3,3000000,0.")
    [run] = collect([tmp_path]).runs
    assert run.metrics["env_steps"].tolist() == STEPS
    assert "incomplete" in run.remark


def test_nan_stays_nan_and_is_told(tmp_path: Path):
    write_run(tmp_path, "ant_push", "dcp", 0, STEPS, [0.1, float("nan")])
    [run] = collect([tmp_path]).runs
    assert np.isnan(run.metrics["success_once"][1])
    assert "success_once is not finite in 1 of 2 evaluations" in run.remark
    assert run.state == "finished"


def test_a_config_of_few_fields_has_the_defaults(tmp_path: Path):
    folder = write_run(tmp_path, "ant_push", "dcp", 0, STEPS, [0.1, 0.2])
    (folder / "config.json").write_text('{"schema_version": 1, "config": {"env": "ant_push", "steps": 2000000}}')
    [run] = collect([tmp_path]).of("ant_push", "dcp")
    assert (run.seed, run.method, run.state) == (0, "dcp", "finished")


def test_steps_that_go_back_are_damage(tmp_path: Path):
    write_run(tmp_path, "ant_push", "dcp", 0, [2_000_000, 1_000_000], [0.1, 0.2])
    assert "do not increase" in collect([tmp_path]).runs[0].state


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("env_steps,success_once,time_near_goal\nnan,0.5,3\n", "a row without a number of steps"),
        ("env_steps,success_once,time_near_goal\n1,0.5,3\ninf,0.5,3\n", "a row without a number of steps"),
        ("env_steps,success_once,time_near_goal\n-5,0.5,3\n", "a row without a number of steps"),
        ("env_steps,success_once,success_once,time_near_goal\n5,0.5,0.7,3\n", "has two columns success_once"),
    ],
)
def test_steps_that_are_no_number_and_a_column_twice_are_damage(tmp_path: Path, lines: str, why: str):
    (write_run(tmp_path, "ant_push", "dcp", 0, [1e6], [0.5]) / "metrics.csv").write_text(lines)
    [run] = collect([tmp_path]).runs
    assert run.is_damaged and why in run.state


def test_a_missing_seed_is_named(tmp_path: Path):
    for seed in (0, 1):
        write_run(tmp_path, "ant_push", "dcp", seed, STEPS, [0.1, 0.2])
    write_run(tmp_path, "ant_push", "crl", 0, STEPS, [0.1, 0.2])
    found = collect([tmp_path])
    assert found.missing_seeds("ant_push", "crl") == [1]
    assert found.remarks == ["ant_push, crl: no run of seed 1, which other methods have."]


def test_variants_of_a_method_are_never_averaged_together(tmp_path: Path):
    write_run(tmp_path / "a", "ant_push", "dcp", 0, STEPS, [0.1, 0.2])
    write_run(tmp_path / "b", "ant_push", "dcp", 0, STEPS, [0.3, 0.4], final_goal_share=0.5)
    write_run(tmp_path / "b", "ant_push", "dcp", 1, STEPS, [0.3, 0.4], final_goal_share=0.5, budget=9_000_000)
    found = collect([tmp_path])
    assert found.methods == ["dcp", "dcp (final_goal_share 0.5)"]
    assert [len(runs) for runs in found.groups.values()] == [1, 2]


def test_another_physics_is_named_though_every_run_has_it_but_for_ant_push_whose_own_it_is(tmp_path: Path):
    for env in ("pusher_easy", "ant_push"):
        write_run(tmp_path, env, "dcp", 0, STEPS, [0.1, 0.2], physics="mujoco")
    assert list(collect([tmp_path]).groups) == [("ant_push", "dcp"), ("pusher_easy", "dcp (physics mujoco)")]


def test_another_evaluation_environment_is_another_environment(tmp_path: Path):
    write_run(tmp_path / "a", "ant_u_maze", "dcp", 0, STEPS, [0.1, 0.2], eval_env="ant_u_maze_eval")
    write_run(tmp_path / "b", "ant_u_maze", "dcp", 0, STEPS, [0.1, 0.2], eval_env="ant_u_maze")
    assert collect([tmp_path]).environments == ["ant_u_maze", "ant_u_maze on ant_u_maze_eval"]


def test_a_seed_counts_once_and_the_longer_run_stands_for_it(tmp_path: Path):
    short = write_run(tmp_path / "a", "ant_push", "dcp", 0, STEPS[:1], [0.9])
    write_run(tmp_path / "b", "ant_push", "dcp", 0, STEPS, [0.1, 0.2])
    found = collect([tmp_path])
    [run] = found.of("ant_push", "dcp")
    assert run.num_evaluations == 2
    assert found.remarks == [f"{short}: left out, another run of dcp has seed 0."]


def test_the_run_with_more_steps_stands_for_a_seed_though_it_has_fewer_evaluations(tmp_path: Path):
    write_run(tmp_path / "a", "ant_push", "dcp", 0, [1e5 * i for i in range(1, 11)], [0.1] * 10)
    write_run(tmp_path / "b", "ant_push", "dcp", 0, [25e6, 50e6], [0.5, 0.6])
    [run] = collect([tmp_path]).of("ant_push", "dcp")
    assert run.env_steps == 50e6


def test_settings_in_which_methods_differ_are_told(tmp_path: Path):
    write_run(tmp_path, "ant_push", "dcp", 0, STEPS, [0.1, 0.2])
    write_run(tmp_path, "ant_push", "crl", 0, STEPS, [0.1, 0.2], num_envs=64, batch_size=64)
    write_run(tmp_path, "ant_soccer", "dcp", 0, STEPS, [0.1, 0.2])
    write_run(tmp_path, "ant_soccer", "crl", 0, STEPS, [0.1, 0.2], critic="chronosrl")  # a part: that is a method's own
    found = collect([tmp_path])
    assert found.remarks == [
        "ant_push: the methods also differ in num_envs, batch_size, so a difference may be due to that."
    ]


def test_settings_that_a_label_names_are_not_told_again(tmp_path: Path):
    write_run(tmp_path / "a", "ant_push", "dcp", 0, STEPS, [0.1, 0.2])
    write_run(tmp_path / "b", "ant_push", "dcp", 0, STEPS, [0.1, 0.2], num_envs=64)
    assert collect([tmp_path]).remarks == []


def test_results_videos_and_plots_come_along(tmp_path: Path):
    folder = write_run(tmp_path, "ant_push", "dcp", 0, STEPS, [0.1, 0.2])
    for name, content in {
        "evals/one.json": json.dumps({"seeds": [], "about": {"env": "ant_push"}}),
        "evals/two.json": "[]",
        "evals/one.csv": "",
        "videos/x.mp4": "",
        "videos/x.txt": "",
        "plots/learning_curve.png": "",
        "checkpoints/1/config.json": "",  # inside a run: no run
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    [run] = collect([tmp_path]).runs
    assert [record.about for record in run.evals] == [{"env": "ant_push"}]
    assert [path.name for path in (*run.videos, *run.plots)] == ["x.mp4", "learning_curve.png"]
    assert "evals/two.json cannot be read (it holds no result of dcp eval)" in run.remark


@pytest.mark.parametrize("paths", [[], ["nowhere"], ["empty"]])
def test_nothing_to_read_is_one_sentence(tmp_path: Path, paths: list[str]):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="folder") as error:
        collect([tmp_path / path for path in paths])
    assert "\n" not in str(error.value)
