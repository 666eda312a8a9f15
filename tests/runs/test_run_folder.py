"""What a run writes, and that it writes the same twice."""

import csv
import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from dcp.algorithm import Algorithm, RunState, make_algorithm
from dcp.config import Config
from dcp.errors import UserError
from dcp.evaluation import Deployment
from dcp.files.run_folder import kept_policies, load_run
from dcp.loop import Evaluation
from dcp.machine import compiling
from dcp.machine.programs import Programs
from dcp.policies.policy_file import load_policy, policy_about
from dcp.runs.checkpoint import machine
from dcp.runs.display import Pace, Plain, Progress, clock, headline
from dcp.runs.folder import claim, run_files
from dcp.runs.run_status import read_pool
from dcp.runs.stopping import Interrupted
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
    assert {"dcp", "jax", "flax", "optax", "brax", "mujoco", "numpy", "python"} <= stored["versions"].keys()
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


def test_runs_that_differ_only_in_seed_or_budget_share_their_programs():
    one, other = (Programs(make_algorithm(tiny_config(**settings))) for settings in ({"seed": 3}, {"steps": 12_000}))
    assert one.jitted is other.jitted
    assert one.jitted is not Programs(make_algorithm(tiny_config(discount=0.9))).jitted
    assert one.jitted is not Programs(make_algorithm(tiny_config()), donate=False).jitted


def test_another_seed_gives_other_numbers(tiny_run: TrainedRun):
    rows, _ = counted_run(seed=1)
    for name in ("critic_loss", "actor_loss", "pool_spread", "final_distance"):
        assert rows[-1][name] != tiny_run.rows[-1][name]


def test_a_taken_folder_is_refused_and_overwriting_spares_what_no_run_writes(tmp_path: Path):
    config = tiny_config().resolve(250)
    folder = claim(tmp_path, config)
    folder.lock.release()
    (folder.path / "notes.txt").write_text("mine")
    (folder.path / "plots" / "mine.png").write_text("mine")
    (folder.path / "metrics.csv").write_text("old")
    with pytest.raises(UserError, match="--overwrite"):
        claim(tmp_path, config)
    assert (folder.path / "metrics.csv").read_text() == "old"
    claim(tmp_path, config, overwrite=True).lock.release()
    assert not (folder.path / "metrics.csv").exists()
    assert (folder.path / "notes.txt").read_text() == (folder.path / "plots" / "mine.png").read_text() == "mine"


def test_the_run_that_is_overwritten_stays_until_the_new_one_has_a_result(tmp_path: Path):
    config = tiny_config().resolve(250)
    old = claim(tmp_path, config)
    old.lock.release()
    (old.path / "metrics.csv").write_text("old")
    (old.path / "plots" / "landscape.png").write_text("old")
    claim(tmp_path, config, overwrite=True).discard()
    assert (old.path / "metrics.csv").read_text() == (old.path / "plots" / "landscape.png").read_text() == "old"
    new = claim(tmp_path, config, overwrite=True)
    new.keep()
    new.lock.release()
    assert {path.name for path in old.path.iterdir()} == {"config.json", "plots"}
    assert not any((old.path / "plots").iterdir())


def test_a_run_that_ends_before_its_first_evaluation_leaves_no_folder(tmp_path: Path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("dcp.runs.training.run_loop", interrupted)
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


def test_a_missing_package_is_named_before_anything_is_written(tmp_path: Path):
    with pytest.raises(UserError, match=r"dcp-rl\[wandb\]"):
        train(tiny_config(), runs_dir=tmp_path, wandb=True, display="none")
    assert not any(tmp_path.iterdir())


def test_a_row_with_other_columns_is_refused(tmp_path: Path):
    sink = CsvSink(tmp_path / "metrics.csv")
    sink.write({"env_steps": 1, "success_once": 0.1})
    with pytest.raises(ValueError, match="extra, success_once"):
        sink.write({"env_steps": 2, "extra": 0.1})
    assert (tmp_path / "metrics.csv").read_text().splitlines() == ["env_steps,success_once", "1,0.1"]  # on disk at once


def test_the_headline_says_that_the_budget_is_rounded_up():
    config = tiny_config(steps=3_900).resolve(250)
    assert "4,000 environment steps (3,900 rounded up to whole unrolls), 64 updates" in headline(config, Path("runs"))


def test_time_left_counts_neither_compilation_nor_the_first_evaluation(monkeypatch):
    """Iterations end at 100, 102, 104 s (the first compiled), so 2 s each; 10 - 5 unrolls are left."""
    times = iter([100.0, 102.0, 104.0, 150.0])
    monkeypatch.setattr("dcp.runs.display.time.perf_counter", lambda: next(times))
    pace = Pace(tiny_config().resolve(250))
    for unrolls in (3, 4, 5):
        pace.update(Progress(unrolls, []))
    pace.evaluated()
    assert pace.text() == "200 steps/s  0:10 left"
    assert (pace.steps, pace.total) == (2000, 4000)


def test_the_clock_reads_hours_only_when_there_are_some():
    assert [clock(seconds) for seconds in (5, 125, 3725)] == ["0:05", "2:05", "1:02:05"]


def test_divergence_is_reported_if_there_is_any(tiny_run: TrainedRun, tmp_path: Path, capsys):
    shown = Plain(tiny_config().resolve(250), tmp_path)
    shown.evaluated([{**tiny_run.rows[0], "diverged_episodes": 3}])
    assert capsys.readouterr().out.splitlines()[-1].endswith("  3 episodes diverged")


class TestCompilationCache:
    @pytest.fixture(autouse=True)
    def restore(self):
        before = jax.config.values["jax_compilation_cache_dir"]
        yield
        jax.config.update("jax_compilation_cache_dir", before)

    def test_a_cache_that_jax_has_already_is_kept(self, tmp_path: Path):
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        assert compiling.enable_cache() == tmp_path

    def test_the_default_lies_in_the_users_cache(self, tmp_path: Path, monkeypatch):
        jax.config.update("jax_compilation_cache_dir", None)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert compiling.enable_cache() == tmp_path / "dcp" / "xla"
        assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path / "dcp" / "xla")

    def test_off_turns_it_off(self, tmp_path: Path, monkeypatch):
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        assert compiling.enable_cache("off") is None
        assert jax.config.values["jax_compilation_cache_dir"] is None
        monkeypatch.setenv("DCP_CACHE_DIR", "off")
        assert compiling.enable_cache() is None
        assert jax.config.values["jax_compilation_cache_dir"] is None

    def test_a_folder_that_cannot_be_written_is_done_without(self, tmp_path: Path):
        (tmp_path / "file").write_text("in the way")
        assert compiling.enable_cache(tmp_path / "file" / "cache") is None
