"""Real grids on this machine: processes that are killed, stopped, started again, and end as if nothing had happened."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dcp.cli.main import main
from dcp.config import cores
from dcp.grid.jobs import run_status
from dcp.grid.launcher import Driver, LocalLauncher
from dcp.grid.resources import FreeResources
from dcp.runs.training import TrainedRun
from tests.support.same_run import assert_same_run, metrics
from tests.support.small_grids import Killer, as_toml, files, planned


def drive(runs_dir: Path, shown: Killer, at_once: int = 2, seeds_as: str = "processes", retries: int = 2, **product):
    entries, jobs = planned(runs_dir, seeds_as, **product)
    driver = Driver(LocalLauncher(FreeResources(cores() * at_once), jobs), entries, jobs, shown, retries, poll=0.1)
    return driver.run()


def test_a_killed_run_ends_bit_identical_and_a_restart_runs_nothing_again(
    tmp_path: Path, longer_run: TrainedRun, capsys: pytest.CaptureFixture
):
    killer = Killer("point_u_maze/dcp/seed_0")
    lines = drive(tmp_path, killer, seed=[0, 1])
    assert [(line.name, line.state, line.attempt) for line in lines] == [
        ("point_u_maze/dcp/seed_0", "finished", 2),
        ("point_u_maze/dcp/seed_1", "finished", 1),
    ]
    assert killer.name is None and killer.notes == ["point_u_maze/dcp/seed_0: trying again (ended by SIGKILL)"]
    assert lines[0].done == lines[0].total == 12_000 and lines[0].row and lines[0].row["evaluation"] == 14
    assert_same_run(tmp_path / "point_u_maze/dcp/seed_0", longer_run.folder)
    assert metrics(tmp_path / "point_u_maze/dcp/seed_1") != metrics(longer_run.folder)  # it is another seed

    before = files(tmp_path)
    grid = as_toml(tmp_path.with_suffix(".toml"), seed=[0, 1])
    assert main(["grid", str(grid), "--runs-dir", str(tmp_path), "--no-report"]) == 0
    assert files(tmp_path) == before
    assert "2 of 2 runs were finished before" in capsys.readouterr().out


@pytest.mark.slow
def test_eight_runs_finish_though_one_is_killed_and_the_report_is_written(tmp_path: Path):
    killer = Killer("point_u_maze/dcp/seed_2", after=2)
    lines = drive(tmp_path / "runs", killer, method=["crl", "dcp"], seed=[0, 1, 2, 3])
    assert len(lines) == 8 and {line.state for line in lines} == {"finished"}
    drive(tmp_path / "alone", Killer(), method=["dcp"], seed=[2])
    assert_same_run(*(tmp_path / name / "point_u_maze/dcp/seed_2" for name in ("runs", "alone")))
    before = files(tmp_path / "runs/point_u_maze")
    grid = as_toml(tmp_path / "grid.toml", method=["crl", "dcp"], seed=[0, 1, 2, 3])
    assert main(["grid", str(grid), "--runs-dir", str(tmp_path / "runs")]) == 0
    assert files(tmp_path / "runs/point_u_maze") == before
    assert (tmp_path / "runs/report/report.html").is_file()


@pytest.mark.slow
def test_a_run_that_is_killed_too_often_fails_and_the_rest_goes_on(tmp_path: Path):
    lines = drive(tmp_path, Killer("point_u_maze/dcp/seed_0"), retries=0, seed=[0, 1])
    assert [(line.state, line.why) for line in lines] == [("failed", "ended by SIGKILL"), ("finished", "")]


@pytest.mark.slow
def test_seeds_as_one_program_are_one_job_and_go_on_together(tmp_path: Path):
    killer = Killer("point_u_maze/dcp/seeds_0-1")
    (line,) = drive(tmp_path, killer, seeds_as="vmapped", seed=[0, 1])
    assert (line.name, line.state, line.seeds, line.attempt) == ("point_u_maze/dcp/seeds_0-1", "finished", 2, 2)
    drive(tmp_path / "undisturbed", Killer(), seeds_as="vmapped", seed=[0, 1])
    for seed in ("seed_0", "seed_1"):
        assert_same_run(*(root / "point_u_maze/dcp" / seed for root in (tmp_path, tmp_path / "undisturbed")))


# A shell has what it starts in the background ignore Ctrl-C, and whoever is started from there too.
LISTENING = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
LISTENING += "from dcp.cli.main import main; sys.exit(main())"


def start(grid: Path, runs_dir: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", LISTENING, "grid", str(grid), "--runs-dir", str(runs_dir), "--no-report"]
    command += ["--cores-per-run", str(cores())]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def until(condition, seconds: float = 400.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.02)


def rows(folder: Path) -> int:
    try:
        return len((folder / "metrics.csv").read_text().splitlines()) - 1
    except FileNotFoundError:
        return 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_grid_that_ends_takes_its_runs_with_it_and_the_same_command_goes_on(
    tmp_path: Path, longer_run: TrainedRun, number: int
):
    grid, folder = as_toml(tmp_path / "grid.toml", seed=[0, 1]), tmp_path / "runs/point_u_maze/dcp/seed_0"
    process = start(grid, tmp_path / "runs")
    until(lambda: rows(folder) >= 2)
    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=400)
    if number != signal.SIGKILL:
        assert process.returncode == 75 and "The same command resumes the runs" in out
    again = start(grid, tmp_path / "runs")  # a child of the killed one may still be at its checkpoint: it is waited for
    out, _ = again.communicate(timeout=600)
    assert again.returncode == 0, out
    assert_same_run(folder, longer_run.folder)
    (settings,) = {job.settings for job in planned(tmp_path / "elsewhere", seed=[0])[1]}
    assert run_status(folder, settings).kind == "finished"
