"""When a job is tried again, and what is told of it. A launcher that follows a script stands for processes here; real
ones are in test_local_grid.py."""

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from dcp.grid.driver import STOPPING, Driver
from dcp.grid.grid_display import (
    Beat,
    Heartbeat,
    Line,
    LineReader,
    LiveTable,
    PlainTable,
    heartbeat,
    read_beat,
    render,
    summary,
    time_left,
)
from dcp.grid.jobs import Job
from dcp.grid.launcher import Status
from dcp.grid.local_launcher import LocalLauncher, ended, last_line
from dcp.grid.resources import FreeResources, gpu_variables
from dcp.runs.display import Progress
from tests.support.small_grids import Killer, planned
from tests.support.tiny import LONGER, tiny_config

RUNNING, DONE = Status("running"), Status("finished", code=0)
A, B = "point_u_maze/dcp/seed_0", "point_u_maze/dcp/seed_1"


class Script:
    """Each attempt of a job goes through its statuses, one a poll, and stays at the last."""

    def __init__(self, script: dict[str, list[list[Status]]]):
        self.script, self.now, self.ends = script, dict[str, list[Status]](), []

    def require(self) -> None: ...

    def submit(self, jobs: Sequence[Job]) -> None:
        self.now |= {job.name: self.script[job.name].pop(0) for job in jobs}

    def poll(self) -> dict[str, Status]:
        if any(statuses[0] is None for statuses in self.now.values()):
            raise KeyboardInterrupt
        return {name: s.pop(0) if len(s) > 1 else s[0] for name, s in self.now.items()}

    def stop(self) -> None:
        self.ends.append("stop")
        self.now = {name: [Status("stopped", code=75)] for name in self.now}

    def close(self) -> None:
        self.ends.append("close")


def drive(tmp_path: Path, script: dict, retries: int = 2) -> tuple[Driver, list[Line], Killer]:
    entries, jobs = planned(tmp_path, seed=[0, 1])
    driver = Driver(Script(script), entries, jobs, Killer(), retries, poll=0.0)
    lines = driver.run()
    assert isinstance(driver.shown, Killer)
    return driver, lines, driver.shown


@pytest.mark.parametrize("code", [1, 75, 130, 137, 143])
def test_a_job_that_failed_or_was_stopped_is_tried_again_so_often_and_no_more(tmp_path: Path, code: int):
    bad = Status("failed", "no luck", code=code)
    _, lines, shown = drive(tmp_path, {A: [[RUNNING, bad], [bad], [RUNNING, bad]], B: [[RUNNING, DONE]]})
    assert [(line.state, line.attempt) for line in lines] == [("failed", 3), ("finished", 1)]
    assert shown.notes == [f"{A}: trying again (no luck)"] * 2


def test_a_mistake_is_not_tried_again(tmp_path: Path):
    _, lines, _ = drive(tmp_path, {A: [[Status("failed", "unknown method", code=2)]], B: [[DONE]]})
    assert [(line.state, line.attempt, line.why) for line in lines] == [
        ("failed", 1, "unknown method"),
        ("finished", 1, ""),
    ]


def test_a_second_attempt_may_finish(tmp_path: Path):
    stopped = Status("stopped", code=75)
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


def test_a_process_sees_its_own_gpus_and_one_without_sees_none():
    assert gpu_variables(("1",), 1.0, there=True) == {"CUDA_VISIBLE_DEVICES": "1"}
    shared = {"CUDA_VISIBLE_DEVICES": "0", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.225"}
    assert gpu_variables(("0",), 0.25, there=True) == shared
    assert gpu_variables((), 0.0, there=True) == {"JAX_PLATFORMS": "cpu"}
    assert gpu_variables((), 0.0, there=False) == {}  # it may have another accelerator


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


def lines_of() -> list[Line]:
    row = {"success_once": 0.25, "time_near_goal": 3.0, "env_steps": 500}
    return [
        Line("a", "finished", 1_000, 1_000, row=row),
        Line("b", "running", 500, 1_000, speed=10.0, left=50.0, row=row, where="process 7"),
        Line("c", "waiting", 0, 1_000, seeds=2),
        Line("d", "failed", 100, 1_000, attempt=3, why="out of luck"),
    ]


def test_the_total_counts_states_and_steps_of_every_seed():
    # steps: 1000 + 500 + 0 + 100 of 1000 + 1000 + 2000 + 1000; left: 500 + 2000 steps at 10 steps/s
    assert summary(lines_of()) == "1 running, 1 failed, 1 waiting, 1 finished; 32% of all steps; about 4:10 left"
    assert time_left([]) is None and summary([]) == "no runs"
    assert time_left([Line("b", "running", 990, 1_000, speed=10.0, left=9.0)]) == 9.0  # an evaluation is to come


def test_the_live_table_shows_what_runs_first_and_says_what_it_leaves_out():
    console = Console(width=160, record=True, file=StringIO())
    console.print(render(lines_of(), 2, 160))
    shown = console.export_text().splitlines()
    assert shown[1].split()[:2] == ["b", "running"] and "50%" in shown[1] and "0:50" in shown[1] and "25.0%" in shown[1]
    assert shown[2].split()[:4] == ["d", "failed,", "attempt", "3"]
    assert shown[3].startswith("and 2 more") and shown[4].rstrip() == "d: out of luck"
    assert shown[5].startswith("1 running")


@pytest.mark.parametrize("width", [66, 80, 200])
def test_a_narrow_terminal_takes_from_the_names_and_a_long_reason_takes_nothing(width: int):
    console = Console(width=width, record=True, file=StringIO())
    name, why = "batch_256/ant_hardest_maze/dcp/seed_4", "a sentence " * 20
    running, failed = lines_of()[1], Line("e", "failed", 1, 2, why=why)
    console.print(render([replace(running, name=name), failed], 9, width))
    shown = console.export_text().splitlines()
    assert "seed_4  running" in shown[1] and shown[1].split()[-5:] == ["50%", "10", "0:50", "25.0%", "3.0"]
    assert (name in shown[1]) == (width == 200) == ("━" in shown[1])
    assert shown[3].startswith("e: a sentence") and len(shown) == 5


def test_a_terminal_shows_the_table_and_keeps_its_last_state():
    written = StringIO()
    with LiveTable(Console(force_terminal=True, width=140, height=20, file=written)) as table:
        table.update(lines_of())
        table.note("b: trying again (ended by SIGKILL)")
        table.update([replace(line, state="finished", done=line.total, why="") for line in lines_of()])
    shown = written.getvalue()
    assert "trying again (ended by SIGKILL)" in shown and "out of luck" in shown
    assert shown.splitlines()[-2].endswith("4 finished; 100% of all steps\x1b[0m")


def test_plain_lines_are_printed_once_for_each_change(capsys: pytest.CaptureFixture):
    table, (finished, running, waiting, failed) = PlainTable(), lines_of()
    table.update([finished, running, waiting, failed])
    table.update([finished, running, waiting, failed])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "1 of 5 runs were finished before"  # the one that waits is of two seeds
    assert said[1].startswith("b: running, process 7, 500 / 1,000 steps, 10 steps/s, 0:50 left, success 25.0%")
    assert said[2] == "d: failed, attempt 3, 100 / 1,000 steps (out of luck)" and len(said) == 4


@pytest.mark.parametrize(("speed", "left"), [(0.0, None), (100.0, 100.0)])
def test_a_row_without_a_speed_tells_no_time_left(speed: float, left: float | None, tmp_path: Path, monkeypatch):
    row = {"env_steps": 2_000.0, "steps_per_second": speed, "success_once": 0.0, "time_near_goal": 0.0}
    monkeypatch.setattr("dcp.grid.grid_display.last_row", lambda folder: row)
    _, (job,) = planned(tmp_path, seed=[0])  # of 12,000 steps
    line = LineReader().of_job(job, RUNNING, 1, 0)
    assert (line.speed, line.left) == (speed or None, left)
    assert summary([line]) == "1 running; 17% of all steps" + ("; about 1:40 left" if left else "")


def test_a_heartbeat_tells_steps_at_most_once_a_second(tmp_path: Path):
    now = [0.0]
    beat = Heartbeat(tiny_config(**LONGER), tmp_path / "beat.json", lambda: now[0])
    for seconds, unrolls, told in ((0.0, 1, 400), (0.5, 2, 400), (1.0, 3, 1_200)):
        now[0] = seconds
        beat.progress(Progress(unrolls, None))
        assert (read_beat(tmp_path / "beat.json") or Beat(0, 0)).env_steps == told
    found = read_beat(tmp_path / "beat.json")
    assert found and found.total == 12_000 and found.steps_per_second is None
    heartbeat(tmp_path / "beat.json")  # another process begins: what the last one said is old
    assert read_beat(tmp_path / "beat.json") is None


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": 1}'])
def test_a_damaged_heartbeat_is_none(tmp_path: Path, text: str):
    (tmp_path / "beat.json").write_text(text)
    assert read_beat(tmp_path / "beat.json") is None
