"""What a run tells the people who watch it: `Display`, which plain_display.py, terminal.py and `dcp grid` fill."""

import sys
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


def make_display(kind: DisplayKind, config: Config, folder: Path | None, several: bool = False) -> Display:
    """Make the display of this kind. `folder`: the run's, or that of the first of several seeds."""
    if callable(kind):
        return kind(config, folder or Path())
    if kind == "auto":
        kind = "live" if sys.stdout is not None and sys.stdout.isatty() else "plain"
    if kind == "none":
        return Display()
    if kind == "plain":
        from dcp.runs.plain_display import Plain

        return Plain(config, folder, several)
    from dcp.runs.terminal import LivePanel

    return LivePanel(config, folder, several)
