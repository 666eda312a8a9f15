"""When a job is tried again, how its process is judged, and where its output goes.

A launcher that follows a script stands for processes here; real ones are in test_local_grid.py.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from dcp.errors import UserError
from dcp.grid.grid_display import Line
from dcp.grid.jobs import Job, JobStatus, open_log, survey
from dcp.grid.launcher import NOT_STARTED, STOPPING, Driver, LocalLauncher, _Child, ended, last_line
from dcp.grid.resources import FreeResources, gpu_variables
from tests.support.small_grids import Killer, planned

RUNNING, DONE = JobStatus("running"), JobStatus("finished", code=0)
A, B = "point_u_maze/dcp/seed_0", "point_u_maze/dcp/seed_1"


class Script:
    """Each attempt of a job goes through its statuses, one a poll, and stays at the last."""

    def __init__(self, script: dict[str, list[list[JobStatus]]]):
        self.script, self.now, self.ends = script, dict[str, list[JobStatus]](), []

    def require(self) -> None: ...

    def submit(self, jobs: Sequence[Job]) -> None:
        self.now |= {job.name: self.script[job.name].pop(0) for job in jobs}

    def poll(self) -> dict[str, JobStatus]:
        if any(statuses[0] is None for statuses in self.now.values()):
            raise KeyboardInterrupt
        return {name: s.pop(0) if len(s) > 1 else s[0] for name, s in self.now.items()}

    def stop(self) -> None:
        self.ends.append("stop")
        self.now = {name: [JobStatus("stopped", code=75)] for name in self.now}

    def close(self) -> None:
        self.ends.append("close")


def drive(tmp_path: Path, script: dict, retries: int = 2) -> tuple[Driver, list[Line], Killer]:
    entries, jobs = planned(tmp_path, seed=[0, 1])
    driver = Driver(Script(script), entries, jobs, Killer(), retries, poll=0.0)
    lines = driver.run()
    assert isinstance(driver.display, Killer)
    return driver, lines, driver.display


@pytest.mark.parametrize("code", [1, 75, 130, 137, 143])
def test_a_job_that_failed_or_was_stopped_is_tried_again_so_often_and_no_more(tmp_path: Path, code: int):
    bad = JobStatus("failed", "no luck", code=code)
    _, lines, shown = drive(tmp_path, {A: [[RUNNING, bad], [bad], [RUNNING, bad]], B: [[RUNNING, DONE]]})
    assert [(line.state, line.attempt) for line in lines] == [("failed", 3), ("finished", 1)]
    assert shown.notes == [f"{A}: trying again (no luck)"] * 2


def test_a_mistake_is_not_tried_again(tmp_path: Path):
    _, lines, _ = drive(tmp_path, {A: [[JobStatus("failed", "unknown method", code=2)]], B: [[DONE]]})
    assert [(line.state, line.attempt, line.why) for line in lines] == [
        ("failed", 1, "unknown method"),
        ("finished", 1, ""),
    ]


def test_a_second_attempt_may_finish(tmp_path: Path):
    stopped = JobStatus("stopped", code=75)
    _, lines, _ = drive(tmp_path, {A: [[stopped], [RUNNING, DONE]], B: [[DONE]]}, retries=1)
    assert [(line.state, line.attempt) for line in lines] == [("finished", 2), ("finished", 1)]


def test_a_signal_stops_every_job_and_none_is_tried_again(tmp_path: Path):
    driver, lines, shown = drive(tmp_path, {A: [[RUNNING, None]], B: [[RUNNING, RUNNING]]})
    assert driver.stopped and {line.state for line in lines} == {"stopped"}
    assert shown.notes == [STOPPING] and driver.launcher.ends == ["stop", "close"]  # pyright: ignore


def test_a_signal_while_jobs_are_handed_over_stops_them_too(tmp_path: Path):
    entries, jobs = planned(tmp_path, seed=[0, 1])
    launcher = Script({A: [[RUNNING]]})

    def submit(jobs: Sequence[Job]) -> None:
        Script.submit(launcher, jobs[:1])
        raise KeyboardInterrupt

    launcher.submit = submit
    driver = Driver(launcher, entries, jobs, Killer(), poll=0.0)
    assert {line.state for line in driver.run()} == {"stopped"} and driver.stopped
    assert launcher.ends == ["stop", "close"]


def test_a_job_that_cannot_be_started_has_failed_and_gives_its_resources_back(tmp_path: Path):
    (job,) = planned(tmp_path, seed=[0])[1]
    (tmp_path / "grid").write_text("")  # where its log should go
    free = FreeResources(cores=9, memory_bytes=9)
    launcher = LocalLauncher(free, [job])
    launcher.submit([job])
    status = launcher.poll()[A]
    assert status.state == "failed" and status.code == 1 and "cannot be started ([Errno 20] Not a dir" in status.why
    assert free == FreeResources(cores=9, memory_bytes=9)


def test_some_jobs_are_ended_and_the_others_continue(tmp_path: Path):
    running, waiting = planned(tmp_path, seed=[0, 1])[1]
    running.log.parent.mkdir(parents=True)
    launcher = LocalLauncher(FreeResources(cores=0))
    launcher.submit([running, waiting])
    launcher._waiting.remove(running)
    process = subprocess.Popen(["sleep", "60"])
    launcher._children[running.name] = _Child(running, process, ())
    launcher.end({waiting.name})
    assert launcher.poll()[waiting.name] == NOT_STARTED and process.poll() is None
    launcher.end({running.name, "another"})
    process.wait(timeout=60)
    assert launcher.poll()[running.name].code == 143


def test_a_process_sees_its_own_gpus_and_one_without_sees_none():
    assert gpu_variables(("1", "3"), any_gpu=True) == {"CUDA_VISIBLE_DEVICES": "1,3"}
    assert gpu_variables((), any_gpu=True) == {"JAX_PLATFORMS": "cpu"}
    assert gpu_variables((), any_gpu=False) == {}  # it may have another accelerator


def test_the_launcher_is_closed_whatever_happens(tmp_path: Path):
    entries, jobs = planned(tmp_path, seed=[0])
    launcher = Script({A: [[RUNNING]]})
    launcher.poll = lambda: {}[0]  # type: ignore
    with pytest.raises(KeyError):
        Driver(launcher, entries, jobs, Killer(), poll=0.0).run()
    assert launcher.ends == ["close"]


@pytest.mark.parametrize(
    ("code", "state", "why"),
    [
        (0, "finished", ""),
        (1, "failed", "the last word"),
        (2, "failed", "the last word"),
        (75, "stopped", "the last word"),
        (-9, "failed", "ended by SIGKILL"),
        (-15, "stopped", "ended by SIGTERM"),
        (-40, "failed", "ended by signal 40"),  # has no name
    ],
)
def test_a_processes_end_is_judged_by_its_code_and_its_logs_last_line(tmp_path: Path, code: int, state: str, why: str):
    log = tmp_path / "log"
    log.write_text("first\nthe last word\n\n")
    status = ended(code, log)
    assert (status.state, status.why) == (state, why)
    assert status.code == (code if code >= 0 else 128 - code)
    assert last_line(tmp_path / "none") == ""


def test_a_log_is_not_written_through_a_link_and_a_pipe_in_its_place_does_not_block(tmp_path: Path):
    (job,) = planned(tmp_path / "runs", seed=[0])[1]
    victim = tmp_path / "bashrc"
    victim.write_text("mine")
    job.log.parent.mkdir(parents=True)
    job.log.symlink_to(victim)
    launcher = LocalLauncher(FreeResources(cores=9), [job])
    launcher.submit([job])
    status = launcher.poll()[A]
    assert status.state == "failed" and "cannot be started" in status.why
    assert victim.read_text() == "mine"
    job.log.unlink()
    os.mkfifo(job.log)
    with pytest.raises(OSError):
        open_log(job.log)
    assert last_line(job.log) == ""


@pytest.mark.parametrize("name", ["grid", "grid/progress", "grid/jobs", "report"])
def test_a_grid_beside_links_that_lead_elsewhere_is_refused(tmp_path: Path, name: str):
    (tmp_path / "victim").mkdir()
    link = tmp_path / "runs" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match=f"runs/{name} is a link that leads out of the run folder"):
        survey([], tmp_path / "runs")
