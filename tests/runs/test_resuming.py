"""A run that is stopped and continued ends as the one that was never stopped, to the last bit."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from dcp.cli.main import main
from dcp.config import Config
from dcp.errors import RunError, UserError
from dcp.loop import Evaluation, evaluation_points
from dcp.methods.table import PAPER
from dcp.presets import preset_config
from dcp.runs import checkpoint as files
from dcp.runs import run_status
from dcp.runs.checkpoint import Cadence
from dcp.runs.resuming import raised, resume
from dcp.runs.training import TrainedRun, train
from tests.support.same_run import assert_same_run, final_arrays, metrics
from tests.support.tiny import FLAGS, LONGER, LONGER_FLAGS, tiny_config

ROOT = Path(__file__).parents[2]


class DiedError(Exception):
    pass


def dies_after(evaluations: int) -> Callable[[Evaluation], None]:
    def on_eval(evaluation: Evaluation) -> None:
        if evaluation.row["evaluation"] > evaluations:
            raise DiedError

    return on_eval


def stopped(config: Config, runs_dir: Path, evaluations: int, cadence: Cadence = Cadence()) -> Path:  # noqa: B008
    """The folder of a run that died at the evaluation after these, before its checkpoint."""
    with pytest.raises(DiedError):
        train(config, dies_after(evaluations), runs_dir=runs_dir, display="none", cadence=cadence)
    return runs_dir / config.run_path


@pytest.mark.parametrize("method", PAPER)
def test_four_evaluations_are_two_a_stop_and_two(method: str, tmp_path: Path):
    config = tiny_config(method=method, steps=4_000, num_evals=4)
    whole = train(config, runs_dir=tmp_path / "whole", display="none").folder
    folder = stopped(config, tmp_path / "stopped", 2)
    assert len(metrics(folder)) == 3  # the third row is ahead of the checkpoint
    run = resume(folder, display="none")
    assert [row["evaluation"] for row in run.rows] == [1, 2, 3, 4]
    assert_same_run(folder, whole)


def test_a_pair_with_a_pool_that_shows_direction_and_goal_resumes_with_its_scale_and_its_mean_of_weights(
    tmp_path: Path,
):
    parts = {"method": "sac_direction", "command": "pooled_subgoal", "condition": "direction_and_goal"}
    settings = {"normalize": "running", "average_weights": 3, "hindsight": "her", "noise_hold": 4}
    config = tiny_config(**parts, **settings, final_goal_share=0.5, steps=4_000, num_evals=4)
    whole = train(config, runs_dir=tmp_path / "whole", display="none").folder
    folder = stopped(config, tmp_path / "stopped", 2)
    resume(folder, display="none")
    assert_same_run(folder, whole)


def test_the_frontiers_cutoff_weight_and_explorers_are_in_the_checkpoint(tmp_path: Path):
    settings = {"command.explore_after": 5, "command.memory": 0.5}
    config = tiny_config(command="frontier", component_settings=settings, steps=4_000, num_evals=4)
    whole = train(config, runs_dir=tmp_path / "whole", display="none").folder
    folder = stopped(config, tmp_path / "stopped", 2)
    run = resume(folder, display="none")
    assert len({row["reach"] for row in run.rows}) > 1  # it adapts within this run
    assert_same_run(folder, whole)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["ant_u_maze", "pusher_easy"])
def test_a_run_under_brax_continues_bit_by_bit(env: str, tmp_path: Path):
    config = tiny_config(env=env, steps=4_000, num_evals=4, eval_episodes=4)
    whole = train(config, runs_dir=tmp_path / "whole", display="none").folder
    folder = stopped(config, tmp_path / "stopped", 2)
    resume(folder, display="none")
    assert_same_run(folder, whole)


def lives(runs_dir: Path, kills: int, seed: int, **settings: Any) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.support.lives", str(runs_dir), str(kills), str(seed), json.dumps(settings)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("kills", "in_writing"), [(5, 1), pytest.param(30, 5, marks=pytest.mark.slow)])
def test_killed_at_any_moment_a_run_ends_as_if_it_had_not_been(
    kills: int, in_writing: int, longer_run: TrainedRun, tmp_path: Path
):
    seen = lives(tmp_path, kills, seed=kills)
    assert seen["killed"] == kills
    assert seen["in_writing"] >= in_writing  # so many kills hit a checkpoint that was being written
    folders = [tmp_path / str(i) / tiny_config().run_path for i in range(seen["finished"])]
    for folder in folders:
        assert_same_run(folder, longer_run.folder)
        assert {path.name for path in folder.iterdir() if path.name != ".lock"} == {
            *("config.json", "metrics.csv", "policy.safetensors", "plots", "checkpoints")
        }
        assert len(list((folder / "checkpoints").iterdir())) == files.KEPT  # no draft is left


@pytest.fixture(scope="session")
def halfway(longer_run: TrainedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The longer run's folder as it was after ten of its evaluations; for tests that copy it."""
    return stopped(tiny_config(**LONGER), tmp_path_factory.mktemp("halfway"), 10)


@pytest.fixture
def folder(halfway: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(halfway, tmp_path / "run"))


class TestDamage:
    def test_the_checkpoint_before_a_damaged_one_is_used_and_that_is_said(
        self, folder: Path, longer_run: TrainedRun, capsys
    ):
        newest, before = files.checkpoints(folder / "checkpoints")
        victim = newest / "state.npz"
        content = bytearray(victim.read_bytes())
        content[5_000] ^= 1
        victim.write_bytes(content)
        resume(folder, display="none")
        said = capsys.readouterr().err
        assert f"{newest} is damaged (the checksum of state.npz" in said
        assert said.count("\n") == 1
        assert_same_run(folder, longer_run.folder)
        assert before.name == "000000020_00009"

    def test_a_truncated_checkpoint_is_passed_over(self, folder: Path, longer_run: TrainedRun, capsys):
        newest = files.checkpoints(folder / "checkpoints")[0]
        record = newest / "checkpoint.json"
        record.write_bytes(record.read_bytes()[:-20])
        resume(folder, display="none")
        assert "the checksum of checkpoint.json does not fit" in capsys.readouterr().err
        assert_same_run(folder, longer_run.folder)

    def test_with_every_checkpoint_damaged_nothing_is_overwritten(self, folder: Path):
        for path in files.checkpoints(folder / "checkpoints"):
            (path / "state.npz").unlink()
        rows = (folder / "metrics.csv").read_bytes()
        with pytest.raises(UserError, match=r"every checkpoint of .* is damaged: restore one"):
            resume(folder, display="none")
        assert (folder / "metrics.csv").read_bytes() == rows
        assert len(files.checkpoints(folder / "checkpoints")) == 2

    def test_a_lost_or_torn_metrics_file_is_written_again(self, folder: Path, longer_run: TrainedRun):
        (folder / "metrics.csv").write_text("evaluation,env_st")
        resume(folder, display="none")
        assert_same_run(folder, longer_run.folder)

    def test_a_run_without_a_checkpoint_begins_again(self, folder: Path, longer_run: TrainedRun, capsys):
        shutil.rmtree(folder / "checkpoints")
        resume(folder, display="none")
        assert "has no checkpoint yet: beginning again" in capsys.readouterr().err
        assert_same_run(folder, longer_run.folder)


class TestTheLastEvaluation:
    @pytest.fixture(scope="class")
    def before_it(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Of a run that died in its last evaluation; its newest checkpoint holds every unroll and misses a row."""
        config = tiny_config(num_evals=1)
        folder = stopped(config, tmp_path_factory.mktemp("last"), 0, Cadence(evals=0, minutes=1e-9))
        assert files.checkpoints(folder / "checkpoints")[0].name == "000000010_00000"
        return folder

    def test_a_run_that_misses_it_is_not_finished(self, before_it: Path, tiny_run, tmp_path: Path):
        folder = Path(shutil.copytree(before_it, tmp_path / "run"))
        for name in ("metrics.csv", "policy.safetensors"):
            (folder / name).unlink()  # as if it had died a moment sooner
        assert main(["train", "--resume", str(folder), "--no-plots"]) == 0
        assert len(metrics(folder)) == 1
        assert (folder / "policy.safetensors").read_bytes() == (tiny_run.folder / "policy.safetensors").read_bytes()

    def test_damage_makes_no_run_look_finished(self, longer_run: TrainedRun, tmp_path: Path, capsys):
        folder = Path(shutil.copytree(longer_run.folder, tmp_path / "run"))
        newest, before = files.checkpoints(folder / "checkpoints")
        (newest / "checkpoint.json").write_text((newest / "checkpoint.json").read_text().replace("12000", "99999"))
        assert main(["train", "--resume", str(folder), "--no-plots"]) == 0
        assert "is finished" not in capsys.readouterr().out
        assert_same_run(folder, longer_run.folder)
        assert before.exists()


def test_an_evaluation_that_is_due_at_once_has_a_speed_and_a_checkpoint(tmp_path: Path):
    """Evaluations after 6 and 10 unrolls; the run died in the first, with a checkpoint of the unroll before it."""
    folder = stopped(tiny_config(), tmp_path, 0, Cadence(evals=0, minutes=1e-9))
    assert files.checkpoints(folder / "checkpoints")[0].name == "000000006_00000"
    first, last = resume(folder, display="none", cadence=Cadence(evals=1, minutes=0.0)).rows
    assert first["steps_per_second"] == 2_400 / first["wall_seconds"]  # of the whole run: no iteration was timed
    assert last["steps_per_second"] > 0
    kept = [path.name for path in files.checkpoints(folder / "checkpoints")]
    assert kept == ["000000010_00002", "000000006_00001"]


class TestStrangers:
    def test_a_folder_that_names_code_does_not_run_it_unasked(self, tmp_path: Path, monkeypatch, capsys):
        (tmp_path / "payload.py").write_text("raise SystemExit('it ran')")
        config = {**json.loads(tiny_config().to_json()), "env": "payload:make"}
        (tmp_path / "config.json").write_text(json.dumps({"schema_version": 2, "config": config}))
        monkeypatch.chdir(tmp_path)
        for argv in (["--resume", "."], ["--config", "."]):
            assert main(["train", *argv]) == 2
            assert "if you trust it, name it too: --env payload:make" in capsys.readouterr().err
        with pytest.raises(UserError, match="name it too: --env payload:make"):
            resume(tmp_path, display="none")
        assert main(["train", "--resume", ".", "--env", "payload:make"]) == 2  # now it is asked for
        assert "it ran" in capsys.readouterr().err

    def test_a_lock_that_points_elsewhere_is_not_followed(self, folder: Path, tmp_path: Path):
        (tmp_path / "mine.txt").write_text("mine")
        (folder / ".lock").symlink_to(tmp_path / "mine.txt")
        with pytest.raises(UserError, match="lock is a link that leads out of the run folder"):
            resume(folder, display="none")
        assert (tmp_path / "mine.txt").read_text() == "mine"

    def test_what_a_user_keeps_beside_the_checkpoints_is_left_alone(self, folder: Path, longer_run: TrainedRun):
        newest = files.checkpoints(folder / "checkpoints")[0]
        shutil.copytree(newest, folder / "checkpoints" / "best")
        resume(folder, display="none")
        run_status.verify(folder / "checkpoints" / "best")
        assert_same_run(folder, longer_run.folder)


def test_a_folder_that_is_moved_away_stops_its_run(folder: Path, longer_run: TrainedRun, tmp_path: Path):
    def move(evaluation: Evaluation) -> None:
        if evaluation.row["evaluation"] == 12:
            folder.rename(tmp_path / "elsewhere")

    with pytest.raises(RunError, match="was moved or removed in the middle of its run"):
        resume(folder, move, display="none")
    resume(tmp_path / "elsewhere", display="none")
    assert_same_run(tmp_path / "elsewhere", longer_run.folder)


@pytest.mark.slow
def test_a_reader_that_goes_away_does_not_end_the_run(longer_run: TrainedRun, tmp_path: Path):
    dcp = f"{sys.executable} -m dcp.cli.main train {' '.join(LONGER_FLAGS)} --runs-dir {tmp_path} --display plain"
    subprocess.run(["bash", "-c", f"set -o pipefail; {dcp} | head -n 1"], cwd=ROOT, check=True, timeout=300)
    assert_same_run(tmp_path / tiny_config().run_path, longer_run.folder)


class TestTrainingLonger:
    def test_a_raised_budget_gives_the_parameters_of_the_longer_run(self, tiny_run, longer_run, tmp_path: Path):
        """4,000 steps with evaluations after 4 and 8 iterations, raised to 12,000: five more, after every 4."""
        folder = Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))
        run = resume(folder, steps=12_000, display="none")
        assert [row["env_steps"] for row in run.rows] == [2400, 4000, 5600, 7200, 8800, 10400, 12000]
        same = jax.tree.map(np.array_equal, run.state.learner, longer_run.state.learner)
        assert all(jax.tree.leaves(same))
        stored = json.loads((folder / "config.json").read_text())
        assert (stored["config"]["steps"], stored["config"]["num_evals"]) == (12_000, 7)
        assert stored["earlier_budgets"] == [{"steps": 4_000, "num_evals": 2}]

    def test_after_a_raise_and_a_stop_the_old_and_the_new_command_go_on(self, tiny_run, longer_run, tmp_path: Path):
        runs = tmp_path / "runs"
        shutil.copytree(tiny_run.folder.parents[2], runs)
        folder = runs / tiny_config().run_path
        with pytest.raises(DiedError):
            resume(folder, dies_after(4), steps=12_000, display="none")
        command = ["train", *FLAGS, "--runs-dir", str(runs), "--resume", "auto"]
        assert main([*command, "--steps", "12000"]) == 0
        alpha = final_arrays(folder)["learner/params/log_alpha"]
        assert np.array_equal(alpha, longer_run.state.learner.params.log_alpha)
        assert len(metrics(folder)) == 7
        assert main(command) == 0  # as it was begun: finished

    def test_more_evaluations_than_the_old_budget_had_iterations_are_no_reason_to_refuse(
        self, tiny_run, tmp_path: Path
    ):
        """4,000 steps are 8 iterations with 2 evaluations; 16,000 are 38 iterations, so 2 + 8 evaluations."""
        folder = Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))
        assert main(["train", "--resume", str(folder), "--steps", "16000", "--no-plots"]) == 0
        assert len(metrics(folder)) == 10
        assert metrics(folder)[-1]["env_steps"] == "16000"

    def test_the_demos_evaluations_stay_as_far_apart_when_it_is_raised_to_40m(self):
        """95 unrolls, 3 of them to fill the replay; 40M make 1,261: 1,166 more, and 10 / 92 evaluations for each."""
        demo = preset_config("demo").resolve(200)
        config, earlier = raised(demo, (), 40_000_000)
        points = evaluation_points(config, earlier)
        assert len(points) == config.num_evals == 10 + 127
        assert points[:10] == evaluation_points(demo) and points[-1] == 1_258

    def test_steps_cannot_be_lowered(self, tiny_run):
        with pytest.raises(UserError, match="can only be raised"):
            resume(tiny_run.folder, steps=3_000, display="none")


class TestCommandLine:
    @pytest.mark.parametrize("signal_sent", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
    def test_a_signal_stops_with_a_checkpoint_and_the_code_to_requeue_on(
        self, signal_sent: signal.Signals, longer_run: TrainedRun, tmp_path: Path, capsys
    ):
        """In the background some shells have SIGINT ignored; the command undoes that as a terminal would."""
        code = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
            "from dcp.cli.main import main; sys.exit(main(sys.argv[1:]))"
        )
        flags = [*LONGER_FLAGS, "--checkpoint-evals", "0", "--runs-dir", str(tmp_path)]
        command = [sys.executable, "-c", code, "train", *flags]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
        folder = tmp_path / tiny_config().run_path
        try:
            deadline = time.monotonic() + 300
            while not (folder / "metrics.csv").exists() or len((folder / "metrics.csv").read_text().splitlines()) < 3:
                assert process.poll() is None and time.monotonic() < deadline, process.communicate()[1]
                time.sleep(0.005)
            process.send_signal(signal_sent)
            out, err = process.communicate(timeout=300)
        finally:
            process.kill()
        assert process.returncode == 75, err
        assert err == ""
        assert f"{signal_sent.name}: stopping after this iteration" in out
        assert f"continue with `dcp train --resume {folder}`" in out
        assert 2 <= len(metrics(folder)) < 14
        assert len(files.checkpoints(folder / "checkpoints")) == 1
        assert main(["train", "--resume", str(folder), "--no-plots"]) == 0
        assert "continuing from here" in capsys.readouterr().out
        assert_same_run(folder, longer_run.folder)

    def test_flags_that_agree_are_accepted_beside_resume(self, folder: Path, longer_run: TrainedRun):
        assert main(["train", "--resume", str(folder), *LONGER_FLAGS, "--env", "point_u_maze", "--seed", "0"]) == 0
        assert_same_run(folder, longer_run.folder)

    @pytest.mark.parametrize(
        ("flags", "sentence"),
        [
            (
                "--seed 3",
                "--seed 3 is not the run's 0: leave --seed out, give the run's --preset, or start another run",
            ),
            ("--method crl", "--method crl is not the run's dcp"),
            ("--preset demo", "is not the run's"),
            ("--steps 400", "--steps 400 is below the run's 12000: steps can only be raised"),
            ("--overwrite", "--resume resumes what --overwrite would replace"),
            ("--checkpoint-evals -1", "checkpoint-evals"),
        ],
    )
    def test_others_are_refused_by_name(self, flags: str, sentence: str, folder: Path, capsys):
        before = (folder / "metrics.csv").read_bytes()
        assert main(["train", "--resume", str(folder), *flags.split()]) == 2
        assert sentence in capsys.readouterr().err
        assert (folder / "metrics.csv").read_bytes() == before

    def test_what_is_no_run_cannot_be_resumed(self, tmp_path: Path, capsys):
        assert main(["train", "--resume", str(tmp_path)]) == 2
        assert "is not a run folder" in capsys.readouterr().err

    def test_a_finished_run_is_left_alone(self, longer_run: TrainedRun, capsys):
        assert main(["train", "--resume", str(longer_run.folder)]) == 0
        assert "is finished at 12,000 environment steps: raise --steps" in capsys.readouterr().out

    def test_without_a_person_at_the_terminal_a_taken_folder_names_the_command(
        self, halfway: Path, tmp_path: Path, capsys
    ):
        runs = tmp_path / "runs"
        shutil.copytree(halfway.parents[2], runs)
        assert main(["train", *LONGER_FLAGS, "--runs-dir", str(runs)]) == 2
        folder = runs / tiny_config().run_path
        said = capsys.readouterr().err
        assert f"holds a run at 8,800 of 12,000 steps: resume it with `dcp train --resume {folder}`" in said

    def test_auto_starts_or_continues_with_one_and_the_same_command(self, halfway: Path, longer_run, tmp_path: Path):
        runs = tmp_path / "runs"
        shutil.copytree(halfway.parents[2], runs)
        command = ["train", *LONGER_FLAGS, "--runs-dir", str(runs), "--resume", "auto"]
        assert main(command) == 0
        assert_same_run(runs / tiny_config().run_path, longer_run.folder)
        assert main(command) == 0  # finished: nothing to do
