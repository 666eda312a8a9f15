"""What a run writes, and that it writes the same twice."""

import csv
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from dcp.algorithm import Algorithm, RunState, make_algorithm
from dcp.config import Config
from dcp.errors import UserError
from dcp.evaluation import Deployment
from dcp.files.run_folder import kept_policies, load_run
from dcp.learner import LearnerParams
from dcp.loop import Evaluation
from dcp.machine.programs import Programs
from dcp.machine.signals import Interrupted
from dcp.policies.policy_file import load_policy, policy_about
from dcp.runs.checkpoint import machine
from dcp.runs.replaced_run import run_files
from dcp.runs.run_status import read_pool
from dcp.runs.training import TrainedRun, train
from tests.support.tiny import tiny_config

TIMING = {"steps_per_second", "wall_seconds"}
COLUMNS = {
    *("evaluation", "env_steps", "updates", "steps_per_second", "wall_seconds"),
    *("diverged_episodes", "eval_diverged_episodes"),
    *("time_near_goal", "success_once", "final_distance", "train_near_goal", "cells_visited"),
    *("critic_loss", "infonce_accuracy", "actor_loss", "alpha", "entropy"),
    *("pool_spread", "state_to_subgoal", "subgoal_to_goal", "time_at_subgoal"),
}


def read_rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_folder_is_named_after_the_run(tiny_run: TrainedRun):
    assert tiny_run.folder.parts[-3:] == ("point_u_maze", "dcp", "seed_0")
    assert {path.name for path in tiny_run.folder.iterdir()} == {
        *("config.json", "metrics.csv", "policy.safetensors", "plots", "checkpoints")
    }


def test_config_json_round_trips_and_names_the_versions(tiny_run: TrainedRun):
    stored = json.loads((tiny_run.folder / "config.json").read_text())
    assert Config.from_dict(stored["config"]) == tiny_config(devices=1, split_batches="off").resolve(250)
    assert stored["schema_version"] == 2
    assert stored["earlier_budgets"] == []
    assert {"dcp", "jax", "flax", "optax", "mujoco", "numpy", "python"} <= stored["versions"].keys()
    assert stored["versions"]["jax"] == jax.__version__
    assert stored["machine"] == machine()


def test_metrics_csv_has_the_declared_columns_and_exact_numbers(tiny_run: TrainedRun):
    rows = read_rows(tiny_run.folder)
    assert set(rows[0]) == COLUMNS
    assert [{name: float(value) for name, value in row.items()} for row in rows] == tiny_run.rows


def test_the_budget_is_accounted_for_exactly(tiny_run: TrainedRun):
    """16 environments x 25 steps = 400 an unroll: 4,000 steps are 10 unrolls, 2 of them fill 50 rows; 8 x 8 updates."""
    assert [row["env_steps"] for row in tiny_run.rows] == [2400, 4000]
    assert [row["updates"] for row in tiny_run.rows] == [32, 64]
    assert int(tiny_run.state.unrolls) == 10


def test_the_policy_on_disk_is_the_one_that_was_trained(tiny_run: TrainedRun):
    state, goal = np.array([[1.0, 1.0], [3.0, 2.5]]), np.array([[1.0, 3.0], [3.0, 1.0]])
    np.testing.assert_array_equal(load_policy(tiny_run.folder)(state, goal), tiny_run.policy(state, goal))
    about = policy_about(tiny_run.folder)
    assert about == {
        **{"env": "point_u_maze", "eval_env": "point_u_maze", "fidelity": "paper", "physics": "brax"},
        **{"method": "dcp", "seed": 0, "env_steps": 4000},
    }


def test_averaged_weights_are_evaluated_and_saved_and_change_nothing_of_the_training(
    tiny_run: TrainedRun, tmp_path: Path, monkeypatch
):
    evaluated, evaluate = [], Programs.evaluate

    def seen(self: Programs, params: LearnerParams, key: Any) -> dict[str, float]:
        evaluated.append(params.actor)
        return evaluate(self, params, key)

    monkeypatch.setattr(Programs, "evaluate", seen)
    run = train(tiny_config(average_weights=3), runs_dir=tmp_path, display="none")
    learner = run.state.learner
    assert same(learner.params, tiny_run.state.learner.params)
    assert int(learner.average.iterations) == 8
    assert not same(learner.average.actor, learner.params.actor)
    for actor in (evaluated[-1], run.policy.actor, load_policy(run.folder).actor):
        assert same(actor, learner.average.actor)


def same(one: Any, other: Any) -> bool:
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, one, other)))


def test_load_run_reads_what_was_written(tiny_run: TrainedRun):
    run = load_run(tiny_run.folder)
    assert run.config["num_envs"] == 16
    np.testing.assert_array_equal(run.metrics["env_steps"], [2400, 4000])
    assert run.policy_path.is_file()


traces: list[str] = []


class CountingDeployment(Deployment):
    def episodes(self, policy, key):
        traces.append("evaluate")
        return super().episodes(policy, key)


class Counting(Algorithm):
    """Python runs a stage only when it is traced."""

    def collect(self, params, acting, replay, key):
        traces.append("collect")
        return super().collect(params, acting, replay, key)

    def learn(self, learner, windows, *keys):
        traces.append("learn")
        return super().learn(learner, windows, *keys)

    @property
    def deployment(self):
        return CountingDeployment(**vars(super().deployment))


def counted_run(seed: int) -> tuple[list[dict[str, float]], RunState]:
    """The tiny run once more: its rows and final state; `traces` tells what was traced."""
    trainer = make_algorithm(tiny_config(seed=seed))
    counting = Counting(**{field.name: getattr(trainer, field.name) for field in dataclasses.fields(trainer)})
    traces.clear()
    run = train(counting, runs_dir=None, display="none")
    return run.rows, run.state


def without_timing(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{name: value for name, value in row.items() if name not in TIMING} for row in rows]


def test_the_same_seed_gives_the_same_bits_and_nothing_is_traced_twice(tiny_run: TrainedRun):
    rows, state = counted_run(seed=0)
    assert without_timing(rows) == without_timing(tiny_run.rows)
    same = jax.tree.map(np.array_equal, state.learner.params, tiny_run.state.learner.params)
    assert all(jax.tree.leaves(same))
    assert sorted(traces) == ["collect", "evaluate", "learn"]  # of 2 evaluations, 8 iterations, 2 prefills


def test_another_seed_gives_other_numbers(tiny_run: TrainedRun):
    rows, _ = counted_run(seed=1)
    for name in ("critic_loss", "actor_loss", "pool_spread", "final_distance"):
        assert rows[-1][name] != tiny_run.rows[-1][name]


def test_a_run_that_ends_before_its_first_evaluation_leaves_no_folder(tmp_path: Path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("dcp.runs.training.train_loop", interrupted)
    with pytest.raises(Interrupted) as stop:
        train(tiny_config(), runs_dir=tmp_path, display="none")
    assert stop.value.evaluations == 0
    assert not any(tmp_path.iterdir())


def test_the_console_tensorboard_and_callback_see_every_evaluation(tiny_run: TrainedRun, tmp_path: Path, capsys):
    seen: list[Evaluation] = []
    run = train(tiny_config(), seen.append, runs_dir=tmp_path, tensorboard=True, keep_policies=True)
    require_kept_policies(run)
    assert without_timing([evaluation.row for evaluation in seen]) == without_timing(tiny_run.rows)
    assert list((run.folder / "tensorboard").glob("events.out.tfevents.*"))
    assert not list(run.folder.glob(".*"))  # neither draft nor lock is left
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert str(tmp_path) in lines[0]
    assert "2,400 / 4,000 steps" in lines[1]
    assert "diverged" not in lines[1]


def require_kept_policies(run: TrainedRun) -> None:
    """One per evaluation, without psi_sa; the last is the run's own, and another run that replaces it replaces them."""
    kept = kept_policies(run.folder)
    assert [policy_about(path)["env_steps"] for path in kept] == [row["env_steps"] for row in run.rows]
    last, state, goal = load_policy(kept[-1]), np.ones(2), np.array([3.0, 1.0])
    assert "psi_sa" not in last.critic_params
    np.testing.assert_array_equal(last(state, goal), run.policy(state, goal))
    assert np.any(load_policy(kept[0])(state, goal) != run.policy(state, goal))
    np.testing.assert_array_equal(read_pool(run.folder), run.state.acting.command.pool)
    assert set(kept) <= set(run_files(run.folder))


def test_a_missing_package_is_named_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"'\.\[wandb\]'"):
        train(tiny_config(), runs_dir=tmp_path, wandb=True, display="none")
    assert not any(tmp_path.iterdir())
