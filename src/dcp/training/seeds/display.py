"""What a person sees while several seeds train as one program: one display for all of them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import mean
from typing import Any, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dcp.config import Config
from dcp.training.display import (
    COMPILING,
    STOPPING,
    Display,
    DisplayKind,
    Pace,
    Redrawn,
    Row,
    Silent,
    clock,
    headline,
    phase,
    say,
)
from dcp.training.loop import Progress

ANY_SEED = "seed_<n>"  # in place of a run folder's name


class SeedsDisplay(AbstractContextManager[Any], Protocol):
    def joined(self, seeds: Sequence[int], unrolls: int, evaluations: int) -> None:
        """These seeds go on together from here: at the start, and whenever others join or one drops out."""
        ...

    def progress(self, progress: Progress) -> None:
        """Metrics are [K]."""
        ...

    def evaluated(self, rows: Sequence[Row]) -> None:
        """One row a seed, in their order."""
        ...

    def stopping(self, signal: str) -> None: ...

    def note(self, sentence: str) -> None: ...


def together(seeds: Sequence[int]) -> str:
    """seeds 0, 1 and 2 as one program"""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    return f"seeds {', '.join(map(str, seeds[:-1]))} and {seeds[-1]} as one program"


class Quiet(Silent):
    def __init__(self, config: Config):
        self._config, self._pace, self._seeds = config, Pace(config), ()

    def joined(self, seeds: Sequence[int], unrolls: int, evaluations: int) -> None:
        self._seeds, self._pace = tuple(seeds), Pace(self._config)  # another number of seeds has another pace
        self._pace.resumed(unrolls, evaluations)

    def progress(self, progress: Progress) -> None:
        self._pace.update(progress)

    def evaluated(self, rows: Sequence[Row]) -> None:
        self._pace.evaluated()

    def _speed(self) -> str:
        """Of all seeds together."""
        if (estimate := self._pace.estimate()) is None:
            return "-"
        return f"{len(self._seeds) * estimate[0]:,.0f} steps/s in all  {clock(round(estimate[1]))} left"


class Lines(Quiet):
    """For logs: a line for each group that goes on together, one an evaluation."""

    def __init__(self, config: Config, runs: Path):
        super().__init__(config)
        self._runs = runs

    def joined(self, seeds: Sequence[int], unrolls: int, evaluations: int) -> None:
        super().joined(seeds, unrolls, evaluations)
        if not unrolls:
            say(headline(self._config, self._runs, f"{together(seeds)}, each"))
        else:
            say(f"{self._pace.steps:>12,} / {self._pace.total:,} steps  {together(seeds)}: continuing from here")

    def stopping(self, signal: str) -> None:
        say(STOPPING.format(signal))

    def evaluated(self, rows: Sequence[Row]) -> None:
        super().evaluated(rows)
        pace, each = self._pace, zip(self._seeds, rows, strict=True)
        success = ", ".join(f"seed {seed} {row['success_once']:.1%}" for seed, row in each)
        say(
            f"{pace.steps:>12,} / {pace.total:,} steps  success {mean(row['success_once'] for row in rows):6.1%} "
            f"({success})  time near goal {mean(row['time_near_goal'] for row in rows):6.1f}  "
            f"critic loss {mean(row['critic_loss'] for row in rows):.3f}  {self._speed()}"
        )


class Board(Redrawn, Quiet):
    """A bar for all, a line a seed."""

    _COLUMNS = ("success_once", "time_near_goal", "critic_loss", "actor_loss", "diverged_episodes")

    def __init__(self, config: Config, runs: Path, console: Console):
        Quiet.__init__(self, config)
        self._runs = runs
        self._rows: dict[int, Row] = {}  # by seed: the last evaluation's, with the losses as they are now
        Redrawn.__init__(self, console)

    def joined(self, seeds: Sequence[int], unrolls: int, evaluations: int) -> None:
        super().joined(seeds, unrolls, evaluations)
        self._phase = COMPILING
        self._redraw()

    def progress(self, progress: Progress) -> None:
        self._pace.update(progress)
        self._phase = phase(self._config, progress)
        if progress.metrics is not None:
            for place, seed in enumerate(self._seeds):
                losses = {name: float(progress.metrics[name][place]) for name in ("critic_loss", "actor_loss")}
                self._rows[seed] = {**self._rows.get(seed, {}), **losses}
        self._redraw()

    def evaluated(self, rows: Sequence[Row]) -> None:
        super().evaluated(rows)
        self._rows.update(zip(self._seeds, rows, strict=True))
        self._redraw()

    def _render(self) -> RenderableType:
        bar = Table.grid(padding=(0, 2))
        share = f"{self._pace.steps:,} / {self._pace.total:,} steps"
        bar.add_row(
            ProgressBar(self._pace.total, self._pace.steps, width=30), share, self._speed(), Text(self._phase, "dim")
        )
        numbers = Table("seed", *(name.replace("_", " ") for name in self._COLUMNS), box=None, header_style="dim")
        for seed, row in sorted(self._rows.items()):
            numbers.add_row(str(seed), *(f"{row[name]:.3f}" if name in row else "-" for name in self._COLUMNS))
        seeds = sorted({*self._rows, *self._seeds})
        return Group(
            headline(self._config, self._runs, f"{together(seeds)}, each" if seeds else "several seeds"), bar, numbers
        )


class Through(Quiet):
    """A display that was made for a single run is shown one of them: with every measure the mean over the seeds."""

    def __init__(self, config: Config, display: Display):
        super().__init__(config)
        self._display = display

    def __enter__(self) -> Self:
        self._display.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._display.__exit__(*exception)

    def joined(self, seeds: Sequence[int], unrolls: int, evaluations: int) -> None:
        if unrolls:
            self._display.resumed(unrolls, evaluations)

    def progress(self, progress: Progress) -> None:
        metrics = progress.metrics and {name: values.mean() for name, values in progress.metrics.items()}
        self._display.progress(Progress(progress.unrolls, metrics))

    def evaluated(self, rows: Sequence[Row]) -> None:
        self._display.evaluation({name: mean(row[name] for row in rows) for name in rows[0]})

    def stopping(self, signal: str) -> None:
        self._display.stopping(signal)

    def note(self, sentence: str) -> None:
        self._display.note(sentence)


def make_seeds_display(kind: DisplayKind, config: Config, folder: Path) -> SeedsDisplay:
    """`folder`: of the first seed."""
    if callable(kind):
        return Through(config, kind(config, folder))
    console, runs = Console(), folder.parent / ANY_SEED
    if kind == "auto":
        kind = "live" if console.is_terminal else "plain"
    if kind == "live":
        return Board(config, runs, console)
    return Lines(config, runs) if kind == "plain" else Quiet(config)
