"""What a run tells the people who watch it: `Display`, which `terminal.py` and `dcp grid` fill."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from dcp.config import Config
from dcp.loop import Row


@dataclass(frozen=True)
class Progress:
    """Hold what a display gets after each unroll."""

    unrolls: int
    metrics: Sequence[Row] | None  # the iteration's, per seed; None while the replay fills


class Display:
    """Show only notes. Subclasses override what they show; `dcp grid` has its own."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def joined(self, seeds: Sequence[int], unrolls: int, evaluations: int) -> None:
        """Take the seeds that train together from here: at the start, and when seeds join or drop out."""

    def progress(self, progress: Progress) -> None:
        return None

    def evaluated(self, rows: Sequence[Row]) -> None:
        """Take one row of metrics.csv per seed, in the order of `joined`."""

    def stopping(self, signal: str) -> None:
        return None

    def note(self, sentence: str) -> None:
        """Print what the user must know, such as damage, even if nothing else is shown."""
        print(sentence, file=sys.stderr, flush=True)


# A display's name, or a function that makes one.
DisplayKind = Literal["auto", "live", "plain", "none"] | Callable[[Config, Path], Display]


class Pace:
    """Count steps and estimate steps/s and time left, without the first iteration and evaluation, which compile."""

    def __init__(self, config: Config, unrolls: int = 0, evaluations: int = 0):
        self.config, self.unrolls = config, unrolls
        self._before = evaluations  # in earlier processes
        self._last: float | None = None  # when the latest iteration or evaluation ended
        self._iterations: list[float] = []  # seconds
        self._evaluations: list[float] = []

    def update(self, progress: Progress) -> None:
        self.unrolls = progress.unrolls
        if progress.metrics is not None:
            self._tick(self._iterations)

    def evaluated(self) -> None:
        self._tick(self._evaluations)

    def _tick(self, durations: list[float]) -> None:
        now = time.perf_counter()
        if self._last is not None:
            durations.append(now - self._last)
        self._last = now

    @property
    def steps(self) -> int:
        return self.unrolls * self.config.env_steps_per_unroll

    @property
    def total(self) -> int:
        return self.config.num_unrolls * self.config.env_steps_per_unroll

    def estimate(self) -> tuple[float, float] | None:
        """Return steps/s and seconds left; None before an iteration was timed."""
        if not self._iterations:
            return None
        iteration = sum(self._iterations) / len(self._iterations)
        evaluation = self._evaluations[-1] if len(self._evaluations) > 1 else 0.0
        left = (self.config.num_unrolls - self.unrolls) * iteration
        left += (self.config.num_evals - self._before - len(self._evaluations)) * evaluation
        return self.config.env_steps_per_unroll / iteration, left

    def text(self, seeds: int = 1) -> str:
        """Return speed and time left as text; with several seeds, their total speed."""
        if (estimate := self.estimate()) is None:
            return "-"
        speed = f"{seeds * estimate[0]:,.0f} steps/s{' in all' if seeds > 1 else ''}"
        return f"{speed}  {clock(round(estimate[1]))} left"


def clock(seconds: int) -> str:
    """Format seconds: 125 -> 2:05, 3725 -> 1:02:05."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def say(line: str) -> None:
    """Print and flush. If the reader is gone, as after `| head`, or its disk is full, the run continues silently."""
    try:
        print(line, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_display(kind: DisplayKind, config: Config, folder: Path | None, several: bool = False) -> Display:
    """Make the display of this kind. `folder`: the run's, or that of the first of several seeds."""
    if callable(kind):
        return kind(config, folder or Path())
    if kind == "auto":
        kind = "live" if sys.stdout is not None and sys.stdout.isatty() else "plain"
    if kind == "none":
        return Display()
    from dcp.runs import terminal

    return terminal.Panel(config, folder, several) if kind == "live" else terminal.Plain(config, folder, several)
