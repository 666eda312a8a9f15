"""What a grid will take: by hand from measured seconds, and measured for real."""

import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dcp.cli.main import main
from dcp.config import Settings
from dcp.grid.forecast import Measured, kind, measure, total_seconds
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


def test_kinds_differ_by_sizes_and_not_by_seeds_methods_budgets_and_rates():
    base = kind(job().settings)
    assert base == kind(job(seed=3, method="crl", steps=9_000, num_evals=3, discount=0.5).settings)
    others = [job(width=16), job(env="point_big_maze"), job(num_envs=32)]
    assert all(kind(other.settings) != base for other in others)


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
    assert shown.count("not measured") == 4 and "4 runs: 0 finished, 4 to do as 4 jobs" in shown
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
    assert main(["grid", "--preset", "smoke", "--runs-dir", str(tmp_path / "runs"), "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("steps/s") == 1 and "calibration 1 of 1: point_u_maze" in shown.err
    assert re.search(r"^Time: about \d+:\d\d here$", shown.out, re.MULTILINE)
    assert "not measured" not in shown.out


@pytest.mark.slow
def test_a_calibration_is_of_a_real_training():
    measured = measure(job())
    assert 0 < measured.unroll_seconds < measured.iteration_seconds < 5
