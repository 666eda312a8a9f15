"""What a grid will take: by hand from measured seconds, and measured for real."""

import json
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dcp.cli.main import main
from dcp.config import Settings
from dcp.grid.forecast import Measured, calibrate, calibration_file, kind, run_seconds, total_seconds
from dcp.grid.jobs import Job
from dcp.grid.resources import FreeResources, Resources
from tests.support.tiny import tiny_config

ONE = Resources(1)


def job(**changes: object) -> Job:
    settings = Settings(**asdict(tiny_config(**changes).resolve(256)))
    return Job(settings, (settings.seed,), Path("/runs"), "", ONE)


def test_a_runs_time_is_that_of_its_unrolls_iterations_evaluations_and_compiling():
    run = job().settings  # 16 environments x 25 steps: 10 unrolls, of which 2 fill the replay; 2 x 16 episodes of 256
    measured = Measured(compile_seconds=3.0, unroll_seconds=1.0, iteration_seconds=5.0)
    # 2 x 3 + 2 x 1 + 8 x 5 + 2 evaluations of 16 x 256 steps at 400 steps a second
    assert measured.run_seconds(run) == pytest.approx(6 + 2 + 40 + 2 * 10.24)


def test_kinds_differ_by_sizes_and_cores_and_not_by_seeds_methods_budgets_and_rates(monkeypatch):
    base = kind(job().settings, ONE)
    assert base == kind(job(seed=3, method="crl", steps=9_000, num_evals=3, discount=0.5).settings, ONE)
    others = [job(width=16), job(env="point_big_maze"), job(num_envs=32)]
    assert all(kind(other.settings, ONE) != base for other in others)
    assert kind(job().settings, Resources(2)) != base
    monkeypatch.setattr("dcp.grid.forecast.machine", lambda: {"processor": "another"})
    assert kind(job().settings, ONE) != base


def test_what_was_measured_before_tells_a_runs_time_and_a_damaged_file_tells_none(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DCP_CACHE_DIR", "~/cache")
    assert calibration_file() == tmp_path / "cache" / "calibration.json"
    mine = job().settings
    assert run_seconds(mine, ONE) is None
    calibration_file().parent.mkdir()
    seconds = {"compile_seconds": 3.0, "unroll_seconds": 1.0, "iteration_seconds": 5.0}
    calibration_file().write_text(json.dumps({kind(mine, ONE): seconds}))
    assert run_seconds(mine, ONE) == pytest.approx(6 + 2 + 40 + 2 * 10.24)
    assert run_seconds(mine, Resources(2)) is None
    for damage in ({kind(mine, ONE): {"unknown": 1}}, {kind(mine, ONE): seconds | {"unroll_seconds": "1"}}, [1]):
        calibration_file().write_text(json.dumps(damage))
        assert run_seconds(mine, ONE) is None


def test_the_time_of_all_is_shared_by_as_many_as_fit_and_at_least_the_longest():
    jobs = [replace(job(), seeds=(seed,)) for seed in range(4)]
    assert total_seconds(jobs, [10.0, 4.0, 5.0, 3.0], FreeResources(2)) == 11.0
    assert total_seconds(jobs, [20.0, 4.0, 5.0, 3.0], FreeResources(2)) == 20.0
    assert total_seconds(jobs, [10.0, 4.0, 5.0, 3.0], FreeResources(2, jobs=1)) == 22.0


def test_a_dry_run_without_calibration_says_what_is_not_measured_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DCP_CACHE_DIR", str(tmp_path / "cache"))
    where = ["--where", "method=dcp", "--runs-dir", str(tmp_path / "runs")]
    assert main(["grid", "--preset", "smoke", *where, "--dry-run", "--no-calibration"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("not measured") == 5 and "4 runs: 0 finished, 4 to do as 4 jobs" in shown
    assert not list(tmp_path.iterdir())


def test_a_dry_run_whose_output_is_closed_ends_without_a_traceback(tmp_path: Path):
    command = (
        f"{sys.executable} -m dcp.cli.main grid --preset smoke --dry-run --no-calibration --runs-dir {tmp_path} >&-"
    )
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_dry_run_measures_each_kind_once(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DCP_CACHE_DIR", str(tmp_path / "cache"))
    command = ["grid", "--preset", "smoke", "--runs-dir", str(tmp_path / "runs"), "--dry-run"]
    assert main(command) == 0
    first = capsys.readouterr()
    assert first.err.count("steps/s") == 1 and "calibration 1 of 1: point_u_maze" in first.err
    assert re.search(r"^Time: about \d+:\d\d here, on ", first.out, re.MULTILINE)
    assert "not measured" not in first.out
    assert main(command) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_calibration_is_of_a_real_training_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DCP_CACHE_DIR", str(tmp_path))
    measured = calibrate(job())
    assert 0 < measured.unroll_seconds < measured.iteration_seconds < 5
    assert run_seconds(job().settings, ONE) == measured.run_seconds(job().settings)
