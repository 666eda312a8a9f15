"""A job in this process: what its folder holds decides, and every end has its code and its sentence."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import ClassVar

import pytest

from dcp.config import Settings
from dcp.grid import worker
from dcp.grid.jobs import Job
from dcp.grid.launcher import retriable
from dcp.grid.worker import Beat, Heartbeat, heartbeat, pin, read_beat, run_job
from dcp.runs.display import Progress
from dcp.runs.folder import FolderLock
from dcp.runs.run_status import owner, read_plan
from dcp.runs.training import TrainedRun
from tests.support.small_grids import files
from tests.support.tiny import LONGER, tiny_config


@pytest.fixture
def done(tmp_path: Path, tiny_run: TrainedRun) -> Job:
    """A job whose run is finished."""
    folder = tmp_path / tiny_run.folder.relative_to(tiny_run.folder.parents[2])
    shutil.copytree(tiny_run.folder, folder)
    return Job(replace(Settings(**vars(read_plan(folder)[0])), devices=None), (0,), tmp_path)


def test_a_finished_run_is_left_as_it_is(done: Job):
    before = files(done.folders[0])
    assert run_job(done) == (0, "")
    assert files(done.folders[0]) == before


def test_a_folder_that_another_process_writes_to_is_waited_for(done: Job, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker, "WAIT", 0.02)
    lock, said = FolderLock(done.folders[0]), []
    timer = Timer(0.3, lock.release)
    timer.start()
    assert run_job(done, said.append) == (0, "")
    assert owner(done.folders[0]) is None and len(said) == 1  # it was told once, and ended after the lock did
    assert said[0].startswith("point_u_maze/dcp/seed_0: waiting for process ")


def test_another_run_in_the_folder_is_a_mistake_that_is_not_tried_again(done: Job):
    outcome = run_job(replace(done, settings=replace(done.settings, width=64)))
    assert outcome.code == 2 and "holds another run (width 32 where 64 is asked for)" in outcome.why
    assert not retriable(outcome.code) and not retriable(0)
    assert all(retriable(code) for code in (1, 75, 130, 137, 143, None))


def test_a_damaged_folder_is_reported(done: Job):
    (done.folders[0] / "config.json").write_text("{")
    outcome = run_job(done)
    assert outcome.code == 2 and "is not JSON" in outcome.why


def test_a_bug_is_a_fault_with_its_traceback_in_the_log(done: Job, capsys: pytest.CaptureFixture):
    outcome = run_job(replace(done, seeds=()))
    assert outcome.code == 1 and outcome.why.startswith("IndexError") and "Traceback" in capsys.readouterr().err


def test_code_of_ones_own_is_found_in_the_jobs_folder(done: Job, tmp_path: Path):
    (tmp_path / "lonely_maze.py").write_text("def make():\n    raise SystemExit('no walls')\n")
    own = replace(done, settings=replace(done.settings, env="lonely_maze:make", eval_env=None), code=tmp_path)
    outcome = run_job(own)
    assert outcome.code == 2 and "no walls" in outcome.why
    assert "cannot load environment" in run_job(replace(own, settings=replace(own.settings, env="lost:x"))).why


def test_modules_that_a_job_names_are_imported_first_and_one_that_is_missing_is_a_mistake(done: Job, tmp_path: Path):
    (tmp_path / "registers_things.py").write_text("raise SystemExit('it was imported')\n")
    outcome = run_job(replace(done, code=tmp_path, imports=("registers_things",)))
    assert outcome.code == 2 and "--import registers_things fails (SystemExit: it was imported)" in outcome.why
    assert "--import nowhere_to_be_found fails" in run_job(replace(done, imports=("nowhere_to_be_found",))).why


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="the kernel has no autogroups")
def test_a_niced_worker_is_nice_to_other_sessions_too():
    code = "from dcp.grid.worker import keep_priority; keep_priority(); print(open('/proc/self/autogroup').read())"
    shown = subprocess.run(
        ["nice", "-n", "7", sys.executable, "-c", code], capture_output=True, text=True, start_new_session=True
    )
    assert shown.stdout.split()[-1] == str(min(os.nice(0) + 7, 19)), shown


def test_workers_that_start_together_all_get_their_priority():
    """The kernel tells an ordinary user who changes a second session within 0.1 s to try again."""

    class Busy:
        answers: ClassVar = [BlockingIOError(), None]
        written: ClassVar[list[str]] = []

        def write_text(self, text: str) -> None:
            if error := self.answers.pop(0):
                raise error
            self.written.append(text)

    worker.keep_priority(Busy())  # pyright: ignore[reportArgumentType]
    assert Busy.written == [f"{os.nice(0)}\n"]


def test_a_heartbeat_tells_steps_at_most_once_a_second(tmp_path: Path):
    now = [0.0]
    display = Heartbeat(tiny_config(**LONGER), tmp_path / "beat.json", lambda: now[0])
    for seconds, unrolls, steps in ((0.0, 1, 400), (0.5, 2, 400), (1.0, 3, 1_200)):
        now[0] = seconds
        display.progress(Progress(unrolls, None))
        assert (read_beat(tmp_path / "beat.json") or Beat(0, 0)).env_steps == steps
    beat = read_beat(tmp_path / "beat.json")
    assert beat and beat.total == 12_000 and beat.steps_per_second is None
    heartbeat(tmp_path / "beat.json")  # another process begins: what the last one said is old
    assert read_beat(tmp_path / "beat.json") is None


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": 1}'])
def test_a_damaged_heartbeat_is_none(tmp_path: Path, text: str):
    (tmp_path / "beat.json").write_text(text)
    assert read_beat(tmp_path / "beat.json") is None


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("kind", ["a link", "open to others"])
def test_a_folder_of_cores_that_somebody_else_may_change_is_not_used(tmp_path: Path, monkeypatch, kind: str):
    """Only the claim is lost: the process still keeps to one core."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder, elsewhere = tmp_path / f"dcp-cores-{os.getuid()}", tmp_path / "mine"
    elsewhere.mkdir(mode=0o700)
    if kind == "a link":
        folder.symlink_to(elsewhere)
    else:
        folder.mkdir()
        folder.chmod(0o777)
    chosen = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: chosen.extend(cores))
    pin(1)
    assert len(chosen) == 1 and not list(folder.iterdir())
