"""What a person sees of a grid: a live table on a terminal; elsewhere a line whenever a run's state changes."""

import sys
import time
from collections.abc import Sequence
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dcp.grid.watch import Line
from dcp.runs.display import clock

STYLES = {"running": "cyan", "waiting": "dim", "finished": "green", "failed": "red", "stopped": "yellow"}
ORDER = ("running", "failed", "stopped", "waiting", "finished")  # what is cut first on a low terminal comes last
TITLES = ("state", "", "steps/s", "left", "success", "near goal")  # beside the run's name and a bar
GAP, BAR, NAME = 2, 16, 24  # columns of a terminal; no bar where it would leave the names fewer than NAME
REASONS = 3  # lines that tell why runs failed
PLAIN_EVERY = 60.0  # seconds between two summaries in a log


class PlainTable:
    """For logs: changes of state, evaluations of running jobs, and now and then the total."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, float | None]] = {}
        self._summed: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def update(self, lines: Sequence[Line]) -> None:
        if not self._told:  # what was finished before is one number, not a line each
            before = {line.name: _mark(line) for line in lines if line.state == "finished"}
            self._told |= before
            if before:
                _say(f"{len(before)} of {sum(line.seeds for line in lines)} runs were finished before")
        for line in lines:
            if self._told.get(line.name) != _mark(line) and line.state != "waiting":
                self._told[line.name] = _mark(line)
                _say(plain_line(line))
        now = time.monotonic()
        if self._summed is None or now - self._summed >= PLAIN_EVERY:
            self._summed = now
            _say(summary(lines))

    def note(self, sentence: str) -> None:
        _say(sentence)


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
        self._live.console.print(Text(sentence))  # as it is: rich would read [brackets] as markup


def make_table(plain: bool | None = None) -> PlainTable | LiveTable:
    console = Console()
    return PlainTable() if plain or (plain is None and not console.is_terminal) else LiveTable(console)


def render(lines: Sequence[Line], height: int, width: int) -> RenderableType:
    """At most `height` lines of runs: those that run first. What is too narrow takes from the names, and the bar."""
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
    """As in `TITLES`."""
    return [
        line.state if line.attempt < 2 else f"{line.state}, attempt {line.attempt}",
        f"{line.done / line.total:4.0%}" if line.total else "-",
        "-" if line.speed is None else f"{line.speed:,.0f}",
        "-" if line.left is None else clock(round(line.left)),
        "-" if line.row is None else f"{line.row['success_once']:.1%}",
        "-" if line.row is None else f"{line.row['time_near_goal']:.1f}",
    ]


def _short(name: str, width: int) -> str:
    """Its end tells runs apart: the method and the seed."""
    return name if len(name) <= width else f"…{name[len(name) - width + 1 :]}"


def _reasons(lines: Sequence[Line]) -> list[Text]:
    """Why runs failed, a line each."""
    told = [line for line in lines if line.why and line.state in ("failed", "stopped")][:REASONS]
    style = {"no_wrap": True, "overflow": "ellipsis"}
    return [Text(f"{line.name}: {line.why}", STYLES[line.state], **style) for line in told]


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
    """The total: how many jobs are in which state, and how long it will take at the speed of those that run."""
    counts = {state: sum(line.state == state for line in lines) for state in ORDER}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "no runs"
    steps, total = sum(line.done * line.seeds for line in lines), sum(line.total * line.seeds for line in lines)
    share = f"; {steps / total:.0%} of all steps" if total else ""
    left = time_left(lines)
    return told + share + (f"; about {clock(round(left))} left" if left is not None else "")


def time_left(lines: Sequence[Line]) -> float | None:
    """Steps that are left over steps a second now; no less than the slowest job alone. None before there is a pace.

    Environments differ in speed, so this is rough until one of each has run: `--dry-run` knows better.
    """
    open_lines = [line for line in lines if line.state in ("running", "waiting")]
    speed = sum(line.speed * line.seeds for line in open_lines if line.speed is not None)
    if not speed:
        return None
    steps = sum((line.total - line.done) * line.seeds for line in open_lines)
    return max([steps / speed, *(line.left for line in open_lines if line.left is not None)])


def _mark(line: Line) -> tuple[str, float | None]:
    return f"{line.state} {line.attempt}", None if line.row is None else line.row["env_steps"]


def _say(sentence: str) -> None:
    print(sentence, flush=True, file=sys.stdout)
