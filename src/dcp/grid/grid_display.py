"""Show a grid: a live table on a terminal, elsewhere a line whenever a run's state changes.

A job's state comes from its launcher, its evaluations from its run folder. Evaluations may be half an hour apart, so in
between its process writes a heartbeat, which may be missing or old.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dcp.errors import printable
from dcp.files import METRICS_FILE
from dcp.grid.jobs import Entry, Job, JobStatus, Row, State, fault, holder, last_row
from dcp.grid.worker import read_beat
from dcp.runs.plain_display import clock, say

STALE = 600.0  # seconds after which a heartbeat no longer shows the speed
STYLES: dict[State, str] = {
    "running": "cyan",
    "failed": "red",
    "stopped": "yellow",
    "waiting": "dim",
    "finished": "green",
}
ORDER = tuple(STYLES)  # a terminal with few lines drops the last ones
NAME = 36  # characters of a run's name in the live table
REASONS = 3  # lines that say why runs failed
PLAIN_EVERY = 60.0  # seconds between two summaries in a log


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    name: str
    state: State
    done: int  # environment steps of each of its seeds
    total: int
    seeds: int = 1
    attempt: int = 1
    speed: float | None = None  # environment steps per second, of each of its seeds
    left: float | None = None  # seconds
    row: Row | None = None  # the last evaluation, of the first seed
    why: str = ""
    where: str = ""


class LineReader:
    """Make the lines of the table. A run folder is read again only when its metrics have changed."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[float, Row | None]] = {}  # the metrics' time and last row

    def lines(
        self,
        entries: Sequence[Entry],
        jobs: Sequence[Job],
        statuses: Mapping[str, JobStatus],
        attempts: Mapping[str, int],
    ) -> list[Line]:
        """Make a line for each run that has no job (it was finished before, or is broken) and for each job."""
        done = {entry.run.path: entry.status.done for entry in entries}
        lines = []
        for entry in entries:
            status = entry.status
            if status.kind in ("finished", "broken"):
                state: State = "finished" if status.kind == "finished" else "failed"
                row = self._last_row(entry.folder)
                why = printable(status.why)
                lines.append(Line(entry.run.path, state, status.done, status.total, attempt=0, row=row, why=why))
        for job in jobs:
            start = done.get(job.folders[0].relative_to(job.runs_dir).as_posix(), 0)
            lines.append(self.job_line(job, statuses[job.name], attempts.get(job.name, 0), start))
        return lines

    def job_line(self, job: Job, status: JobStatus, attempt: int, start: int) -> Line:
        """Make a job's line. `start`: the environment steps that its folder held when the grid began."""
        running, total = status.state == "running", job.settings.num_unrolls * job.settings.env_steps_per_unroll
        row = self._last_row(job.folders[0])
        beat = read_beat(job.progress) if status.state in ("running", "stopped", "failed") else None
        done = max(start, int(row["env_steps"]) if row else 0, beat.env_steps if beat else 0)
        done = total if status.state == "finished" else min(done, total)
        speed, left = None, None
        if running and beat is not None and time.time() - beat.at < STALE:
            speed, left = beat.steps_per_second, beat.seconds_left
        if running and beat is None and row is not None and row["steps_per_second"] > 0:
            speed = row["steps_per_second"]  # as fast as at the last evaluation
            left = (total - done) / speed
        why, where = printable(status.why), printable(status.where)
        return Line(job.name, status.state, done, total, len(job.seeds), attempt, speed, left, row, why, where)

    def _last_row(self, folder: Path) -> Row | None:
        try:
            changed = (folder / METRICS_FILE).stat().st_mtime
        except OSError:
            changed = 0.0
        if folder not in self._seen or self._seen[folder][0] != changed:
            self._seen[folder] = changed, last_row(folder)
        return self._seen[folder][1]


def lines_from_folders(entries: Sequence[Entry], jobs: Sequence[Job]) -> list[Line]:
    """Make the table's lines without a driver, from what the folders show."""
    done = {entry.folder.absolute(): entry.status.done for entry in entries}
    statuses = {job.name: status_from_folder(job, done.get(job.folders[0], 0)) for job in jobs}
    return LineReader().lines(entries, jobs, statuses, {job.name: 1 for job in jobs})


def status_from_folder(job: Job, done: int) -> JobStatus:
    """Return a job's status without its launcher: it is running if a process holds its folder's lock."""
    if writer := holder(job):
        return JobStatus("running", where=writer)
    if why := fault(job):
        return JobStatus("failed", why)
    return JobStatus("stopped" if done else "waiting")


class PlainTable:
    """Print lines for logs: changes of state, evaluations of running jobs, and the total once a minute."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[str, float | None]] = {}
        self._summarised: float | None = None  # when

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def update(self, lines: Sequence[Line]) -> None:
        if not self._shown:  # runs that were finished before share one line
            before = {line.name: _mark(line) for line in lines if line.state == "finished"}
            self._shown |= before
            if before:
                say(f"{len(before)} of {sum(line.seeds for line in lines)} runs were finished before")
        for line in lines:
            if self._shown.get(line.name) != _mark(line) and line.state != "waiting":
                self._shown[line.name] = _mark(line)
                say(plain_line(line))
        now = time.monotonic()
        if self._summarised is None or now - self._summarised >= PLAIN_EVERY:
            self._summarised = now
            say(summary(lines))

    def note(self, sentence: str) -> None:
        say(sentence)


class LiveTable:
    def __init__(self, console: Console) -> None:
        self._live = Live("", console=console, refresh_per_second=2, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.__exit__(None, None, None)

    def update(self, lines: Sequence[Line]) -> None:
        console = self._live.console
        self._live.update(render(lines, console.height - 4 - REASONS), refresh=True)

    def note(self, sentence: str) -> None:
        self._live.console.print(sentence, highlight=False)


class NoTable(PlainTable):
    """Show nothing."""

    def update(self, lines: Sequence[Line]) -> None:
        return None

    def note(self, sentence: str) -> None:
        return None


def make_table(kind: Literal["auto", "live", "plain", "none"] = "auto") -> PlainTable | LiveTable:
    console = Console(markup=False, emoji=False)  # [brackets] in a name are no markup
    if kind == "none":
        return NoTable()
    return LiveTable(console) if kind == "live" or (kind == "auto" and console.is_terminal) else PlainTable()


def render(lines: Sequence[Line], height: int) -> RenderableType:
    """Draw at most `height` lines, running jobs first."""
    ordered = sorted(lines, key=lambda line: ORDER.index(line.state))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("run", "state", "done", "steps/s", "left", "success", "near goal"):
        table.add_column(title, no_wrap=True, justify="left" if title in ("run", "state") else "right")
    for line in ordered[: max(height, 1)]:
        state = line.state if line.attempt < 2 else f"{line.state}, attempt {line.attempt}"
        table.add_row(
            line.name if len(line.name) <= NAME else f"…{line.name[1 - NAME :]}",  # method and seed are at the end
            Text(state, STYLES[line.state]),
            f"{line.done / line.total:4.0%}" if line.total else "-",
            "-" if line.speed is None else f"{line.speed:,.0f}",
            "-" if line.left is None else clock(round(line.left)),
            "-" if line.row is None else f"{line.row['success_once']:.1%}",
            "-" if line.row is None else f"{line.row['time_near_goal']:.1f}",
        )
    rest = len(ordered) - max(height, 1)
    more = [Text(f"and {rest} more", "dim")] if rest > 0 else []
    return Group(table, *more, *_reasons(ordered), Text(summary(lines), "bold"))


def _reasons(lines: Sequence[Line]) -> list[Text]:
    """Return why runs failed, one line for each."""
    failed = [line for line in lines if line.why and line.state in ("failed", "stopped")]
    style = {"no_wrap": True, "overflow": "ellipsis"}
    return [Text(f"{line.name}: {line.why}", STYLES[line.state], **style) for line in failed[:REASONS]]


def plain_line(line: Line) -> str:
    parts = [f"{line.name}: {line.state}"]
    if line.attempt > 1:
        parts.append(f"attempt {line.attempt}")
    if line.where:
        parts.append(line.where)
    if line.total:
        parts.append(f"{line.done:,} / {line.total:,} steps")
    if line.speed is not None:
        parts.append(f"{line.speed:,.0f} steps/s")
    if line.left is not None:
        parts.append(f"{clock(round(line.left))} left")
    if line.row is not None:
        parts.append(f"success {line.row['success_once']:.1%}, time near goal {line.row['time_near_goal']:.1f}")
    return ", ".join(parts) + (f" ({line.why})" if line.why else "")


def summary(lines: Sequence[Line]) -> str:
    """Return the total: how many jobs are in which state, and the time that is left."""
    counts = {state: sum(line.state == state for line in lines) for state in ORDER}
    states = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "no runs"
    steps, total = sum(line.done * line.seeds for line in lines), sum(line.total * line.seeds for line in lines)
    share = f"; {steps / total:.0%} of all steps" if total else ""
    left = time_left(lines)
    return states + share + (f"; about {clock(round(left))} left" if left is not None else "")


def time_left(lines: Sequence[Line]) -> float | None:
    """Return the steps that are left divided by the current speed, at least the time of the slowest job; None before a
    speed is known.

    Environments differ in speed, so this is rough until each has run.
    """
    open_lines = [line for line in lines if line.state in ("running", "waiting")]
    speed = sum(line.speed * line.seeds for line in open_lines if line.speed is not None)
    if not speed:
        return None
    steps = sum((line.total - line.done) * line.seeds for line in open_lines)
    return max([steps / speed, *(line.left for line in open_lines if line.left is not None)])


def _mark(line: Line) -> tuple[str, float | None]:
    return f"{line.state} {line.attempt}", None if line.row is None else line.row["env_steps"]
