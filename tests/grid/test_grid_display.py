"""What is shown of a grid: the table, the lines of a log, and what the folders alone tell another terminal."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from dcp.cli.main import main
from dcp.grid.grid_display import (
    Line,
    LineReader,
    LiveTable,
    PlainTable,
    lines_from_folders,
    render,
    summary,
    time_left,
)
from dcp.grid.jobs import JobStatus
from tests.support.small_grids import as_toml, planned

RUNS = ["point_u_maze/dcp/seed_0", "point_u_maze/dcp/seed_1"]
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
    console.print(render(lines_of(), 2))
    shown = console.export_text().splitlines()
    assert shown[1].split()[:2] == ["b", "running"] and "50%" in shown[1] and "0:50" in shown[1] and "25.0%" in shown[1]
    assert shown[2].split()[:4] == ["d", "failed,", "attempt", "3"]
    assert shown[3].startswith("and 2 more") and shown[4].rstrip() == "d: out of luck"
    assert shown[5].startswith("1 running")


def test_a_long_name_loses_its_beginning_and_a_long_reason_its_end():
    console = Console(width=90, record=True, file=StringIO())
    name, why = "batch_256/ant_hardest_maze/dcp/seed_4", "a sentence " * 20
    running, failed = lines_of()[1], Line("e", "failed", 1, 2, why=why)
    console.print(render([replace(running, name=name), failed], 9))
    shown = console.export_text().splitlines()
    assert "seed_4  running" in shown[1] and shown[1].split()[-5:] == ["50%", "10", "0:50", "25.0%", "3.0"]
    assert shown[1].startswith("…") and name not in shown[1]
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
    line = LineReader().job_line(job, JobStatus("running"), 1, 0)
    assert (line.speed, line.left) == (speed or None, left)
    assert summary([line]) == "1 running; 17% of all steps" + ("; about 1:40 left" if left else "")


def test_another_terminal_sees_who_runs(tmp_path: Path, capsys: pytest.CaptureFixture):
    grid = as_toml(tmp_path / "grid.toml", seed=[0, 1])
    with holding(tmp_path / "runs" / RUNS[1]) as process:
        assert main(["grid", str(grid), "--runs-dir", str(tmp_path / "runs"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "seed_0: waiting" in shown and f"seed_1: running, process {process} on" in shown
    assert "1 running, 1 waiting" in shown and not (tmp_path / "runs/grid").exists()


def test_a_heartbeat_that_is_old_tells_no_speed(tmp_path: Path):
    entries, (job,) = planned(tmp_path, seed=[0])
    beat = {"env_steps": 400, "total": 12_000, "steps_per_second": 90.0, "seconds_left": 60.0, "at": time.time()}
    job.progress.parent.mkdir(parents=True)
    job.progress.write_text(json.dumps(beat))
    with holding(tmp_path / RUNS[0]):
        (line,) = lines_from_folders(entries, [job])
        assert (line.state, line.done, line.speed, line.left) == ("running", 400, 90.0, 60.0)
        job.progress.write_text(json.dumps(beat | {"at": time.time() - 3_600}))
        (line,) = lines_from_folders(entries, [job])
        assert (line.state, line.done, line.speed, line.left) == ("running", 400, None, None)


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
    (folder / "fault.json").write_text(json.dumps({"metrics": {"\x1b[2J": "nan"}}))
    (line,) = lines_from_folders(entries, [job])
    assert line.why.isprintable() and "\\x1b[2J is nan" in line.why  # a stranger's file does not control the terminal
