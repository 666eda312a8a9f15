"""Seeds that train as one program are the runs that they would be alone."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import pytest
from numpy.testing import assert_allclose

from dcp.errors import UserError
from dcp.machine.seed_programs import SeedPrograms
from dcp.runs import checkpoint as files
from dcp.runs.checkpoint import Cadence
from dcp.runs.resuming import resume
from dcp.runs.seeds import SeedRun, SeedsFaultError, SeedsInterrupted, train_seeds
from dcp.runs.training import TrainedRun, train
from tests.support.same_run import TIMING, assert_same_run, final_arrays, metrics
from tests.support.tiny import tiny_config

SEEDS = (3, 0)  # an order of one's own


class Trained(NamedTuple):
    runs: dict[int, SeedRun]
    said: str


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The tiny run of two seeds, never interrupted."""
    with redirect_stdout(io.StringIO()) as said:
        runs = train_seeds(tiny_config(), SEEDS, runs_dir=tmp_path_factory.mktemp("together"), display="plain")
    return Trained(runs, said.getvalue())


@pytest.fixture(scope="module")
def alone(tiny_run: TrainedRun, tmp_path_factory: pytest.TempPathFactory) -> dict[int, TrainedRun]:
    other = train(tiny_config(seed=3), runs_dir=tmp_path_factory.mktemp("alone"), display="none")
    return {0: tiny_run, 3: other}


@pytest.fixture(scope="module")
def stopped(together: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same seeds, stopped by SIGTERM after their first evaluation. For tests that copy it."""
    runs = tmp_path_factory.mktemp("stopped")

    def stop(seed: int, row: dict[str, float]) -> None:
        if seed == SEEDS[-1] and row["evaluation"] == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SeedsInterrupted) as stopping:
        train_seeds(tiny_config(), SEEDS, stop, runs_dir=runs, display="none", cadence=Cadence(0, 0))
    assert 2_400 <= (stopping.value.env_steps or 0) < 4_000
    return runs


@pytest.fixture
def folders(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "runs"))


def folder(runs: Path, seed: int) -> Path:
    return runs / tiny_config(seed=seed).run_path


def assert_close(rows: list[dict[str, float]], others: list[dict[str, float]]) -> None:
    assert [list(row) for row in rows] == [list(row) for row in others]
    for row, other in zip(rows, others, strict=True):
        for name in row.keys() - TIMING:
            assert_allclose(row[name], other[name], atol=1e-4, err_msg=name)


def test_every_row_is_that_of_the_single_run(together: Trained, alone: dict[int, TrainedRun]):
    for seed in SEEDS:
        assert_close(together.runs[seed].rows, alone[seed].rows)
    assert together.runs[0].rows != together.runs[3].rows


def test_a_folder_is_like_that_of_a_single_run(together: Trained, alone: dict[int, TrainedRun]):
    for seed in SEEDS:
        ours, theirs = together.runs[seed].folder, alone[seed].folder
        assert {path.name for path in ours.iterdir()} == {path.name for path in theirs.iterdir()}
        stored = [json.loads((folder / "config.json").read_text()) for folder in (ours, theirs)]
        assert stored[0].pop("machine") == stored[1].pop("machine")
        assert stored[0] == stored[1]
        assert [row.keys() for row in metrics(ours)] == [row.keys() for row in metrics(theirs)]
        shapes = [{name: array.shape for name, array in final_arrays(run).items()} for run in (ours, theirs)]
        assert shapes[0] == shapes[1]


def test_seconds_are_shared_and_steps_are_a_seeds_own(together: Trained):
    first, second = (together.runs[seed].rows[-1] for seed in SEEDS)
    assert first["steps_per_second"] == second["steps_per_second"]
    assert first["wall_seconds"] == pytest.approx(second["wall_seconds"], rel=0.1)


def test_one_display_tells_of_all_seeds(together: Trained):
    first, *lines = together.said.splitlines()
    assert first.startswith("Training dcp on point_u_maze, seeds 3 and 0 as one program, each: 4,000 environment steps")
    assert first.endswith("dcp/seed_<n>")
    assert len(lines) == 2
    assert "2,400 / 4,000 steps  success" in lines[0] and "(seed 3 0.0%, seed 0 0.0%)" in lines[0]


class TestGoingOn:
    def test_together_to_the_same_bits(self, folders: Path, together: Trained):
        for seed in SEEDS:
            assert len(files.checkpoints(folder(folders, seed) / "checkpoints")) == 1
        seen = []
        runs = train_seeds(
            tiny_config(),
            SEEDS,
            lambda seed, row: seen.append((seed, row["evaluation"])),
            runs_dir=folders,
            resume=True,
            display="none",
        )
        assert seen == [(3, 2), (0, 2)]  # the first evaluation is not done again
        for seed in SEEDS:
            assert_same_run(runs[seed].folder, together.runs[seed].folder)

    def test_each_alone(self, folders: Path, alone: dict[int, TrainedRun]):
        for seed in SEEDS:
            assert_close(resume(folder(folders, seed), display="none").rows, alone[seed].rows)

    @pytest.mark.slow
    def test_seeds_at_different_points_train_one_after_another_and_finished_ones_rest(
        self, folders: Path, together: Trained, capsys
    ):
        shutil.rmtree(folder(folders, 3))
        runs = train_seeds(tiny_config(), (0, 3), runs_dir=folders, resume=True, display="plain")
        lines = capsys.readouterr().out.splitlines()
        assert "seed 3, each: 4,000 environment steps" in lines[0]
        assert any("seed 0: continuing from here" in line for line in lines[2:])
        for seed in SEEDS:
            assert_close(runs[seed].rows, together.runs[seed].rows)
        before = [path.stat().st_mtime_ns for path in sorted(folders.rglob("*"))]
        assert train_seeds(tiny_config(), SEEDS, runs_dir=folders, resume=True, display="none") == {}
        assert [path.stat().st_mtime_ns for path in sorted(folders.rglob("*"))] == before

    def test_other_settings_make_other_runs(self, folders: Path):
        with pytest.raises(UserError, match=r"--discount 0\.9 is not the run's 0\.99"):
            train_seeds(tiny_config(discount=0.9), SEEDS, runs_dir=folders, resume=True, display="none")
        with pytest.raises(UserError, match=r"seed_3 holds a run at .* of 4,000 steps: resume it"):
            train_seeds(tiny_config(), SEEDS, runs_dir=folders, display="none")


def poison(monkeypatch: pytest.MonkeyPatch, place: int | slice) -> None:
    """The temperature of these seeds is no number after the third iteration of two seeds."""
    iteration = SeedPrograms.iteration

    def poisoned(self, run):
        run, metrics = iteration(self, run)
        if int(run.unrolls) == 5 and run.key.shape == (2,):
            params = run.learner.params
            params = params._replace(log_alpha=params.log_alpha.at[place].set(jnp.nan))
            run = run._replace(learner=run.learner._replace(params=params))
        return run, metrics

    monkeypatch.setattr(SeedPrograms, "iteration", poisoned)


def test_seeds_whose_loss_is_not_finite_leave_a_fault_each(tmp_path: Path, monkeypatch, capsys):
    poison(monkeypatch, slice(None))
    with pytest.raises(SeedsFaultError, match=r"^2 seeds dropped out: seed 3: .*; seed 0: ") as fault:
        train_seeds(tiny_config(), SEEDS, runs_dir=tmp_path, display="none")
    assert "params/log_alpha has 1 of 1 numbers not finite at 2,000 environment steps" in str(fault.value)
    assert fault.value.trained == {}
    assert capsys.readouterr().err.count("\n") == 2
    for seed in SEEDS:
        assert json.loads((folder(tmp_path, seed) / "fault.json").read_text())["env_steps"] == 2_000
        assert not (folder(tmp_path, seed) / ".lock").exists()


@pytest.mark.slow
def test_when_one_seed_drops_out_the_other_goes_on(together: Trained, tmp_path: Path, monkeypatch, capsys):
    poison(monkeypatch, 0)
    with pytest.raises(SeedsFaultError, match=r"^1 seed dropped out, the others are trained: seed 3: ") as fault:
        train_seeds(tiny_config(), SEEDS, runs_dir=tmp_path, display="none")
    assert "The others continue." in capsys.readouterr().err
    assert (folder(tmp_path, 3) / "fault.json").exists()
    assert list(fault.value.trained) == [0]
    assert_close(fault.value.trained[0].rows, together.runs[0].rows)
    assert not (folder(tmp_path, 0) / "fault.json").exists()


ON_TWO_DEVICES = """
import json, sys
from dcp.machine.seed_programs import How, SeedPrograms
from dcp.runs.seeds import train_seeds
from tests.support.tiny import tiny_config

layouts, iteration = [], SeedPrograms.iteration
def noted(self, run):
    layouts.append(str(run.replay.rows.state.sharding.spec))
    return iteration(self, run)
SeedPrograms.iteration = noted
runs = train_seeds(tiny_config(), (3, 0), runs_dir=sys.argv[1], display="none")
print(json.dumps([layouts[0], {seed: run.rows for seed, run in runs.items()}]))
"""


@pytest.mark.slow
def test_two_devices_share_two_seeds_out_and_nothing_changes(together: Trained, tmp_path: Path):
    env = {**os.environ, "JAX_NUM_CPU_DEVICES": "2"}
    command = [sys.executable, "-c", ON_TWO_DEVICES, str(tmp_path)]
    done = subprocess.run(command, env=env, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    layout, rows = json.loads(done.stdout.splitlines()[-1])
    assert layout == "P('seeds',)"
    for seed in SEEDS:
        assert_close(rows[str(seed)], together.runs[seed].rows)
        assert resume(folder(tmp_path, seed), steps=4_400, display="none").rows[-1]["env_steps"] == 4_400
