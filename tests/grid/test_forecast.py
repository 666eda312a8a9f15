"""What a grid will take: by hand from measured seconds, from finished runs, and measured for real."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dcp.cli.main import main
from dcp.config import Settings
from dcp.errors import UserError
from dcp.grid.forecast import Forecaster, Measured, kind, measure, read_calibrations, save_calibration
from dcp.grid.jobs import Entry, Job, Run, RunStatus
from dcp.grid.resources import Resources, device_memory, require_gpu_memory, run_memory
from dcp.runs.training import TrainedRun
from tests.support.tiny import tiny_config

ONE = Resources(1)
HERE = "this processor"


def job(**changes: object) -> Job:
    settings = Settings(**asdict(tiny_config(**changes).resolve(256)))
    return Job(settings, (settings.seed,), Path("/runs"), "", ONE)


def test_a_runs_time_is_that_of_its_unrolls_iterations_evaluations_and_compiling():
    run = job().settings  # 16 environments x 25 steps: 10 unrolls, of which 2 fill the replay; 2 x 16 episodes of 256
    measured = Measured(compile_seconds=3.0, unroll_seconds=1.0, iteration_seconds=5.0, peak_bytes=0)
    # 2 x 3 + 2 x 1 + 8 x 5 + 2 evaluations of 16 x 256 steps at 400 steps a second
    assert measured.seconds(run) == pytest.approx(6 + 2 + 40 + 2 * 10.24)


def test_kinds_differ_by_sizes_and_cores_and_not_by_seeds_methods_and_budgets():
    base = kind(job().settings, ONE, HERE)
    assert base == kind(job(seed=3, method="crl", steps=9_000, num_evals=3, discount=0.5).settings, ONE, HERE)
    others = [job(width=16), job(env="point_big_maze"), job(num_envs=32)]
    assert all(kind(other.settings, ONE, HERE) != base for other in others)
    assert kind(job().settings, Resources(2), HERE) != base and kind(job().settings, ONE, "another") != base


def test_what_was_measured_is_remembered_and_a_damaged_file_is_none(tmp_path: Path):
    path, one = tmp_path / "cache" / "calibration.json", Measured(1.0, 2.0, 3.0, 4.0, "2026-11-16")
    save_calibration(path, "a", one)
    save_calibration(path, "b", replace(one, unroll_seconds=9.0))
    assert read_calibrations(path)["a"] == one and read_calibrations(path)["b"].unroll_seconds == 9.0
    path.write_text('{"a": {"unknown": 1}}')
    assert read_calibrations(path) == {} == read_calibrations(tmp_path / "none")


def test_a_calibration_prices_what_is_left_and_a_finished_run_of_the_kind_wins(tmp_path: Path, tiny_run: TrainedRun):
    measured = Measured(0.0, 1.0, 1.0, 0.0, "2026-11-16")
    mine = job()
    empty = Forecaster(HERE, tmp_path / "c.json", {}, {})
    assert empty.cost(mine).seconds is None and empty.unknown([mine, job(seed=1)], anew=False) == [mine]
    known = Forecaster(HERE, tmp_path / "c.json", {}, {kind(mine.settings, ONE, HERE): measured})
    whole = known.cost(mine).seconds
    assert whole == measured.seconds(mine.settings) and known.cost(mine, 0.25).seconds == pytest.approx(0.25 * whole)
    assert known.unknown([mine], anew=False) == [] and known.unknown([mine], anew=True) == [mine]

    machine = json.loads((tiny_run.folder / "config.json").read_text())["machine"]
    on = Resources(int(machine["cores"]))
    entry = Entry(Run(mine.settings), tiny_run.folder, RunStatus("finished", 4_000, 4_000))
    seen = Forecaster.of([entry], on, machine["processor"], tmp_path / "c.json")
    cost = seen.cost(replace(mine, resources=on))
    assert cost.seconds == pytest.approx(tiny_run.rows[-1]["wall_seconds"]) and str(tiny_run.folder) in cost.how
    elsewhere = Forecaster.of([entry], Resources(64), machine["processor"], tmp_path / "c.json")
    assert elsewhere.cost(replace(mine, resources=Resources(64))).seconds is None


def test_the_time_of_seeds_that_were_one_program_is_not_counted_for_each(tmp_path: Path, tiny_run: TrainedRun):
    shutil.copytree(tiny_run.folder, tmp_path / "point_u_maze/dcp/seed_0")
    machine = json.loads((tiny_run.folder / "config.json").read_text())["machine"]
    both = replace(job(), seeds=(0, 1), runs_dir=tmp_path, resources=Resources(int(machine["cores"])))
    entry = Entry(Run(both.settings), both.folders[0], RunStatus("finished", 4_000, 4_000))
    both.save()
    seen = Forecaster.of([entry], both.resources, machine["processor"], tmp_path / "c.json")
    assert seen.cost(both).seconds == pytest.approx(tiny_run.rows[-1]["wall_seconds"])


def test_memory_grows_by_the_replay_twice_for_its_checkpoint_and_with_seeds():
    small, large = job().settings, job(replay_rows=100_500).settings
    row = 16 * (2 + 2 + 2 + 1) * 4  # environments x (state, action, goal, episode) x bytes
    assert run_memory(large) - run_memory(small) == 2 * 100_000 * row
    assert run_memory(large, on_gpu=True) - run_memory(small, on_gpu=True) == 100_000 * row
    assert device_memory(small, 3) == 3 * device_memory(small)
    assert (
        run_memory(small, 3) - run_memory(small, 2) == run_memory(small, 2) - run_memory(small) > device_memory(small)
    )


def test_seeds_that_do_not_fit_into_their_share_of_a_gpu_are_refused():
    together = replace(job(), seeds=(0, 1), resources=Resources(gpus=0.5))
    needed = device_memory(together.settings, 2)
    require_gpu_memory([together], [2 * needed])
    require_gpu_memory([together], [])  # a machine without: another sentence says so
    with pytest.raises(UserError, match="raise --gpus-per-run, or use --seeds-as processes"):
        require_gpu_memory([together], [2 * needed, 2 * needed - 2])


def test_a_dry_run_without_calibration_says_what_is_not_measured_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DCP_CACHE_DIR", str(tmp_path / "cache"))
    where = ["--where", "method=dcp", "--runs-dir", str(tmp_path / "runs")]
    assert main(["grid", "--preset", "smoke", *where, "--dry-run", "--no-calibration"]) == 0
    said = capsys.readouterr().out
    assert said.count("not measured") == 5 and "4 runs: 0 finished, 4 to do as 4 jobs" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_dry_run_measures_each_kind_once(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DCP_CACHE_DIR", str(tmp_path / "cache"))
    command = ["grid", "--preset", "smoke", "--runs-dir", str(tmp_path / "runs"), "--dry-run"]
    assert main(command) == 0
    first = capsys.readouterr()
    assert first.err.count("steps/s") == 1 and "calibration 1 of 1: point_u_maze" in first.err
    assert re.search(r"^Time: \d+:\d\d here, on ", first.out, re.MULTILINE)  # compiled anew it is over a minute
    assert first.out.count("calibrated on") == 8
    assert main(command) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="elsewhere the system tells it otherwise")
def test_the_peak_is_the_process_own_whatever_its_parent_held():
    child = "from dcp.grid.forecast import peak_bytes; print(peak_bytes())"
    parent = f"import subprocess, sys; held = b'x' * 1_500_000_000; subprocess.run([sys.executable, '-c', {child!r}])"
    found = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True).stdout
    assert 3e7 < int(found) < 1e9


@pytest.mark.slow
def test_a_measurement_is_of_a_real_training():
    measured = measure(job())
    assert 0 < measured.unroll_seconds < measured.iteration_seconds < 5
    assert 2e8 < measured.peak_bytes < 4e9
