"""Show a grid: a live table on a terminal, elsewhere a line whenever a run's state changes.

A job's state comes from its launcher, its evaluations from its run folder. Evaluations may be half an hour apart, so in
between its process writes a heartbeat: a small file only for the table, which may be missing or old.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dcp.config import Config
from dcp.errors import UserError
from dcp.files.run_folder import METRICS_FILE, load_run
from dcp.grid.jobs import Entry, Job, Row, fault, holder, last_row, read_json, stopped_learning, write_json
from dcp.grid.launcher import State, Status
from dcp.grid.pausing import UNPAUSE, is_paused
from dcp.runs.display import Display, Progress, say
from dcp.runs.terminal import Pace, clock

EVERY = 1.0  # seconds between two heartbeats
STALE = 600.0  # seconds after which a heartbeat no longer shows the speed
STYLES: dict[State, str] = {
    "running": "cyan",
    "paused": "magenta",
    "failed": "red",
    "stopped": "yellow",
    "waiting": "dim",
    "finished": "green",
}
ORDER = tuple(STYLES)  # a terminal with few lines drops the last ones
TITLES = ("state", "", "steps/s", "left", "success", "near goal")  # besides the run's name and a bar
GAP, BAR, NAME = 2, 16, 24  # columns of a terminal; without a bar if names would have fewer than NAME
REASONS = 3  # lines that say why runs failed
PLAIN_EVERY = 60.0  # seconds between two summaries in a log


@dataclass(frozen=True)
class Beat:
    """A heartbeat's content."""

    env_steps: int
    total: int
    steps_per_second: float | None = None
    seconds_left: float | None = None
    at: float = 0.0  # time.time()


class Heartbeat(Display):
    """Write heartbeats and show nothing."""

    def __init__(self, config: Config, file: Path, clock: Callable[[], float] = time.monotonic):
        self._config, self._pace, self._file, self._clock = config, Pace(config), file, clock
        self._written: float | None = None

    def progress(self, progress: Progress) -> None:
        self._pace.update(progress)
        if self._written is None or self._clock() - self._written >= EVERY:
            self._write()

    def evaluated(self, rows: Sequence[Row]) -> None:
        self._pace.evaluated()
        self._write()

    def joined(self, seeds: Sequence[int], unrolls: int, evaluations: int) -> None:
        if unrolls:
            self._pace = Pace(self._config, unrolls, evaluations)
            self._write()

    def _write(self) -> None:
        self._written = self._clock()
        speed, left = self._pace.estimate() or (None, None)
        beat = Beat(self._pace.steps, self._pace.total, speed, left, time.time())
        with suppress(OSError):  # a run must not end because a number is missing in the table
            write_json(self._file, asdict(beat))


def heartbeat(file: Path) -> Callable[[Config, Path], Display]:
    """Return what `train(display=...)` takes. Removes the heartbeat of an earlier process."""
    with suppress(OSError):
        file.unlink(missing_ok=True)
    return lambda config, folder: Heartbeat(config, file)


def read_beat(file: Path) -> Beat | None:
    """Return the last heartbeat; None if none can be read."""
    try:
        return Beat(**read_json(file))
    except TypeError:
        return None


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
    notice: str = ""  # a sentence about a run that has collapsed


class LineReader:
    """Make the lines of the table. A run folder is read again only when its metrics have changed."""

    def __init__(self) -> None:
        self._rows: dict[Path, tuple[float, Row | None]] = {}
        self._notices: dict[Path, tuple[float, str]] = {}

    def of_entry(self, entry: Entry) -> Line:
        """Return the line of a run without a job: it was finished before, or it is broken."""
        status, row = entry.status, self._row(entry.folder)
        state: State = "finished" if status.kind == "finished" else "failed"
        return Line(entry.run.path, state, status.done, status.total, attempt=0, row=row, why=status.why)

    def of_job(self, job: Job, status: Status, attempt: int, begun_at: int) -> Line:
        """`begun_at`: environment steps that its folder held when the grid began."""
        run = job.settings
        total = run.num_unrolls * run.env_steps_per_unroll
        row = self._row(job.folders[0])
        beat = read_beat(job.progress) if status.state in ("running", "paused", "stopped", "failed") else None
        done = max(begun_at, int(row["env_steps"]) if row else 0, beat.env_steps if beat else 0)
        speed, left = None, None
        if status.state == "running" and beat is not None and time.time() - beat.at < STALE:
            speed, left = beat.steps_per_second, beat.seconds_left
        if status.state == "running" and beat is None and row is not None and row["steps_per_second"] > 0:
            speed = row["steps_per_second"]  # as fast as at the last evaluation
            left = (total - done) / speed
        if status.state == "finished":
            done = total
        told = {"attempt": attempt, "row": row, "why": status.why, "where": status.where}
        told["notice"] = self._notice(job) if status.state == "running" else ""
        return Line(job.name, status.state, min(done, total), total, len(job.seeds), speed=speed, left=left, **told)

    def _notice(self, job: Job) -> str:
        """Judge a run again only after another evaluation."""
        folder = job.folders[0]
        changed = self._rows[folder][0]
        if folder not in self._notices or self._notices[folder][0] != changed:
            try:
                said = stopped_learning(load_run(folder).metrics, job.settings.batch_size)
            except UserError:
                said = ""
            self._notices[folder] = (changed, said)
        return self._notices[folder][1]

    def _row(self, folder: Path) -> Row | None:
        try:
            changed = (folder / METRICS_FILE).stat().st_mtime
        except OSError:
            changed = 0.0
        if folder not in self._rows or self._rows[folder][0] != changed:
            self._rows[folder] = (changed, last_row(folder))
        return self._rows[folder][1]


def lines_from_folders(entries: Sequence[Entry], jobs: Sequence[Job]) -> list[Line]:
    """Make the table's lines without a driver, from what the folders show."""
    reader = LineReader()
    lines = [reader.of_entry(e) for e in entries if e.status.kind in ("finished", "broken")]
    begun = {entry.folder.absolute(): entry.status.done for entry in entries}
    for job in jobs:
        done = begun.get(job.folders[0], 0)
        lines.append(reader.of_job(job, status_from_folder(job, done), 1, done))
    return lines


def status_from_folder(job: Job, done: int) -> Status:
    """Return a job's status without its launcher: it is running if a process holds its folder's lock."""
    writer = holder(job)
    if is_paused(job):
        return Status("paused", UNPAUSE, writer or "")
    if writer:
        return Status("running", where=writer)
    if why := fault(job):
        return Status("failed", why)
    return Status("stopped" if done else "waiting")


class PlainTable:
    """Print lines for logs: changes of state, evaluations of running jobs, and the total once a minute."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, float | None]] = {}
        self._summed: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def update(self, lines: Sequence[Line]) -> None:
        if not self._told:  # runs that were finished before share one line
            before = {line.name: _mark(line) for line in lines if line.state == "finished"}
            self._told |= before
            if before:
                say(f"{len(before)} of {sum(line.seeds for line in lines)} runs were finished before")
        for line in lines:
            if self._told.get(line.name) != _mark(line) and line.state != "waiting":
                self._told[line.name] = _mark(line)
                say(plain_line(line))
                if line.notice:
                    say(f"{line.name}: {line.notice}")
        now = time.monotonic()
        if self._summed is None or now - self._summed >= PLAIN_EVERY:
            self._summed = now
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
        self._live.update(render(lines, console.height - 4 - REASONS, console.width), refresh=True)

    def note(self, sentence: str) -> None:
        self._live.console.print(Text(sentence))  # not with rich, which would read [brackets] as markup


def make_table() -> PlainTable | LiveTable:
    console = Console()
    return LiveTable(console) if console.is_terminal else PlainTable()


def render(lines: Sequence[Line], height: int, width: int) -> RenderableType:
    """Draw at most `height` lines, running jobs first. A narrow terminal shortens the names and has no bar."""
    ordered = sorted(lines, key=lambda line: ORDER.index(line.state))
    shown = ordered[: max(height, 1)]
    rows = [_cells(line) for line in shown]
    taken = sum(max(map(len, column)) + GAP for column in zip(TITLES, *rows, strict=True))
    longest = max((len(line.name) for line in shown), default=0)
    bar = BAR if width - taken - BAR - GAP >= min(longest, NAME) else 0
    name = max(width - taken - (bar + GAP) * (bar > 0), NAME // 2)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    table.add_column("run", no_wrap=True)
    table.add_column(TITLES[0], no_wrap=True)
    if bar:
        table.add_column("progress", no_wrap=True)
    for title in TITLES[1:]:
        table.add_column(title, no_wrap=True, justify="right")
    for line, (state, *numbers) in zip(shown, rows, strict=True):
        bars = [ProgressBar(line.total or 1, line.done, width=bar)] if bar else []
        table.add_row(Text(_short(line.name, name)), Text(state, STYLES[line.state]), *bars, *numbers)
    rest = len(ordered) - len(shown)
    more = [Text(f"and {rest} more", "dim")] if rest else []
    return Group(table, *more, *_reasons(ordered), Text(summary(lines), "bold"))


def _cells(line: Line) -> list[str]:
    """Return a line's cells in the order of `TITLES`."""
    return [
        line.state if line.attempt < 2 else f"{line.state}, attempt {line.attempt}",
        f"{line.done / line.total:4.0%}" if line.total else "-",
        "-" if line.speed is None else f"{line.speed:,.0f}",
        "-" if line.left is None else clock(round(line.left)),
        "-" if line.row is None else f"{line.row['success_once']:.1%}",
        "-" if line.row is None else f"{line.row['time_near_goal']:.1f}",
    ]


def _short(name: str, width: int) -> str:
    """Cut the beginning of a name, because method and seed at its end tell runs apart."""
    return name if len(name) <= width else f"…{name[len(name) - width + 1 :]}"


def _reasons(lines: Sequence[Line]) -> list[Text]:
    """Return why runs failed, which have collapsed, and how paused ones continue, one line for each."""
    told = [(line, line.why) for line in lines if line.why and line.state in ("failed", "stopped")]
    told += [(line, line.notice) for line in lines if line.notice]
    told += [(line, line.why) for line in lines if line.state == "paused"][:1]
    style = {"no_wrap": True, "overflow": "ellipsis"}
    return [Text(f"{line.name}: {why}", STYLES[line.state], **style) for line, why in told[:REASONS]]


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
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "no runs"
    steps, total = sum(line.done * line.seeds for line in lines), sum(line.total * line.seeds for line in lines)
    share = f"; {steps / total:.0%} of all steps" if total else ""
    left = time_left(lines)
    return told + share + (f"; about {clock(round(left))} left" if left is not None else "")


def time_left(lines: Sequence[Line]) -> float | None:
    """Return the steps that are left divided by the current speed, at least the time of the slowest job; None before a
    speed is known.

    Environments differ in speed, so this is rough until each has run. `--dry-run` is more accurate.
    """
    open_lines = [line for line in lines if line.state in ("running", "waiting")]
    speed = sum(line.speed * line.seeds for line in open_lines if line.speed is not None)
    if not speed:
        return None
    steps = sum((line.total - line.done) * line.seeds for line in open_lines)
    return max([steps / speed, *(line.left for line in open_lines if line.left is not None)])


def _mark(line: Line) -> tuple[str, float | None]:
    return f"{line.state} {line.attempt}", None if line.row is None else line.row["env_steps"]
