"""Pausing, with real processes that sleep: none is missed, everybody says so, and a paused grid can be stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from dcp.cli.main import main
from dcp.grid import pausing, worker
from dcp.grid.grid_display import lines_from_folders
from dcp.grid.jobs import Job
from dcp.grid.local_launcher import LocalLauncher
from dcp.grid.pausing import UNPAUSE, is_paused, is_stopped, pause, unpause
from dcp.grid.resources import FreeResources
from tests.support.small_grids import EACH, as_toml, planned

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
RUNS = ["point_u_maze/dcp/seed_0", "point_u_maze/dcp/seed_1"]
SLEEP = "import time; time.sleep(600)"
HOLD = """
import sys, time
from pathlib import Path
from dcp.runs.folder import FolderLock
Path(sys.argv[1]).mkdir(parents=True)
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def holding(folder: Path) -> Iterator[int]:
    """A process that holds the lock of a folder."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == "held\n"
            yield child.pid
        finally:
            child.kill()


def stopped(process: int) -> bool:
    """After the moment that a signal takes."""
    time.sleep(0.2)
    return is_stopped(process)


@pytest.fixture
def sleepers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalLauncher]:
    """A launcher with room for one of two jobs, whose workers sleep before they lock a folder."""

    def command(job: Job) -> list[str]:
        return [sys.executable, "-c", SLEEP, "dcp.grid.worker", str(job.file), str(os.getpid())]

    monkeypatch.setattr(Job, "command", command)
    _, jobs = planned(tmp_path, seed=[0, 1])
    launcher = LocalLauncher(FreeResources(EACH.cores), jobs)
    launcher.submit(jobs)
    yield launcher
    for child in list(launcher._children.values()):
        child.process.kill()
        child.process.wait()


def process_of(launcher: LocalLauncher, run: str) -> int:
    process = int(launcher.poll()[run].where.split()[-1])
    while b"dcp.grid.worker" not in Path(f"/proc/{process}/cmdline").read_bytes():
        time.sleep(0.01)  # a real worker that is this young reads the list of paused runs when it starts
    return process


def states(launcher: LocalLauncher) -> list[str]:
    statuses = launcher.poll()
    return [statuses[run].state for run in RUNS]


def test_a_worker_without_a_lock_is_paused_and_no_other_is_started(sleepers: LocalLauncher, tmp_path: Path):
    process = process_of(sleepers, RUNS[0])
    assert pause(tmp_path, RUNS) == ([RUNS[0]], [])
    assert stopped(process) and states(sleepers) == ["paused", "paused"]
    assert sleepers.poll()[RUNS[1]].why == UNPAUSE
    os.kill(process, signal.SIGKILL)
    time.sleep(0.2)
    assert states(sleepers) == ["failed", "paused"]  # there is room for the second, which is paused
    assert unpause(tmp_path, RUNS) == ([], [])
    assert states(sleepers) == ["failed", "running"]
    assert not list((tmp_path / "grid/paused").iterdir())


def test_a_run_that_was_not_named_is_not_paused(sleepers: LocalLauncher, tmp_path: Path):
    process = process_of(sleepers, RUNS[0])
    assert pause(tmp_path, RUNS[1:]) == ([], [])
    assert not stopped(process) and states(sleepers) == ["running", "paused"]
    pause(tmp_path, RUNS[:1])
    assert unpause(tmp_path, RUNS[:1]) == ([RUNS[0]], [])
    assert not stopped(process) and states(sleepers) == ["running", "paused"]


def test_a_paused_grid_stops_when_it_is_told_to(sleepers: LocalLauncher, tmp_path: Path):
    process = process_of(sleepers, RUNS[0])
    pause(tmp_path, RUNS)
    assert stopped(process)
    stopping = Thread(target=sleepers.stop, daemon=True)
    stopping.start()
    stopping.join(10)
    assert not stopping.is_alive(), "it waits for a process that cannot hear it"
    assert states(sleepers) == ["stopped", "stopped"]


def test_a_grid_does_not_wait_in_silence_for_a_paused_process_of_an_earlier_one(tmp_path: Path, monkeypatch):
    """Nothing lists the run as paused: its grid was killed, or somebody stopped it by hand."""
    _, jobs = planned(tmp_path, seed=[0])
    launcher = LocalLauncher(FreeResources(EACH.cores), jobs)
    launcher.submit(jobs)
    with holding(tmp_path / RUNS[0]) as process:
        os.kill(process, signal.SIGSTOP)
        assert stopped(process)
        status = launcher.poll()[RUNS[0]]
        assert (status.state, status.why) == ("paused", UNPAUSE) and not launcher._children
        assert worker._reason_to_wait(jobs[0]).endswith(f"which writes to its folder and is {UNPAUSE}")
        unpause(tmp_path, RUNS)
        assert not stopped(process)
        assert worker._reason_to_wait(jobs[0]).endswith("which writes to its folder")


def test_a_worker_that_starts_while_its_run_is_paused_waits_and_says_so(tmp_path: Path, monkeypatch):
    (job,) = planned(tmp_path, seed=[0])[1]
    said: list[str] = []
    waited: list[bool] = []
    monkeypatch.setattr(worker, "_train", lambda job: waited.append(is_paused(job)))
    monkeypatch.setattr(worker.time, "sleep", lambda seconds: unpause(tmp_path, RUNS))
    pause(tmp_path, RUNS)
    assert worker.run_job(job, said.append) == (0, "")
    assert said == [f"{RUNS[0]}: {UNPAUSE}"] and waited == [False]


def test_another_terminal_sees_who_runs_and_can_pause_them(tmp_path: Path, capsys: pytest.CaptureFixture):
    grid = as_toml(tmp_path / "grid.toml", seed=[0, 1])
    command = ["grid", str(grid), "--runs-dir", str(tmp_path / "runs")]
    with holding(tmp_path / "runs" / RUNS[1]) as process:
        assert main([*command, "--status"]) == 0
        shown = capsys.readouterr().out
        assert "seed_0: waiting" in shown and f"seed_1: running, process {process} on" in shown
        assert "1 running, 1 waiting" in shown
        assert main([*command, "--pause"]) == 0
        assert stopped(process) and f"paused {RUNS[1]}\n" in capsys.readouterr().out
        assert main([*command, "--status"]) == 0
        shown = capsys.readouterr().out
        assert f"seed_1: paused, process {process} on" in shown and "2 paused" in shown and "--unpause" in shown
        assert "steps/s" not in shown
        assert main([*command, "--unpause"]) == 0
        assert not stopped(process) and f"continued {RUNS[1]}\n" in capsys.readouterr().out
    assert main([*command, "--pause"]) == 0
    shown = capsys.readouterr().out
    assert "no process of this grid" in shown and "none of its runs starts on this machine until --unpause" in shown
    assert main([*command, "--pause", "--status"]) == 2


def test_a_process_of_another_user_is_named(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch):
    def refuse(process: int, number: int) -> None:
        raise PermissionError

    grid = as_toml(tmp_path / "grid.toml", seed=[0, 1])
    with holding(tmp_path / "runs" / RUNS[1]) as process, monkeypatch.context() as patched:
        patched.setattr(pausing.os, "kill", refuse)
        code = main(["grid", str(grid), "--runs-dir", str(tmp_path / "runs"), "--pause"])
    said = capsys.readouterr()
    assert code == 1 and f"process {process} ({RUNS[1]}) is another user's" in said.err
    assert "no process" not in said.out


def test_a_speed_of_before_the_pause_is_not_shown(tmp_path: Path):
    entries, (job,) = planned(tmp_path, seed=[0])
    beat = {"env_steps": 400, "total": 12_000, "steps_per_second": 90.0, "seconds_left": 60.0, "at": time.time()}
    job.progress.parent.mkdir(parents=True)
    job.progress.write_text(json.dumps(beat))
    with holding(tmp_path / RUNS[0]):
        (line,) = lines_from_folders(entries, [job])
        assert (line.state, line.done, line.speed) == ("running", 400, 90.0)
        pause(tmp_path, RUNS)
        time.sleep(0.2)
        (line,) = lines_from_folders(entries, [job])
        assert (line.state, line.done, line.speed, line.left) == ("paused", 400, None, None)


def test_the_status_of_a_diverged_run_says_what_was_not_finite(tmp_path: Path):
    entries, (job,) = planned(tmp_path, seed=[0])
    folder = tmp_path / RUNS[0]
    folder.mkdir(parents=True)
    fault = {"env_steps": 2_800, "metrics": {"alpha": 0.1, "critic_loss": "nan"}, "arrays_not_finite": {}}
    (folder / "fault.json").write_text(json.dumps(fault))
    (line,) = lines_from_folders(entries, [job])
    assert line.state == "failed" and line.why.startswith("critic_loss is nan at 2,800 environment steps: see ")
    (folder / "fault.json").write_text('{"env_steps": "many", "metrics": 3}')
    (line,) = lines_from_folders(entries, [job])
    assert line.state == "failed" and line.why == f"a parameter is not finite: see {folder / 'fault.json'}"
