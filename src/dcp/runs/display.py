"""What a person sees while a run, or several seeds, train: a panel on a terminal, a line per evaluation elsewhere."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Literal, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dcp.config import Config
from dcp.types import Metrics


@dataclass(frozen=True)
class Progress:
    """After each unroll."""

    unrolls: int
    metrics: Metrics | None  # None while the replay fills


# By name, or what makes one: `dcp grid` has its own, which no person looks at.
DisplayKind = Literal["auto", "live", "plain", "none"] | Callable[[Config, Path], "Display"]
Row = dict[str, float]
STOPPING = "{}: stopping after this iteration, with a checkpoint (once more: at once)"
COMPILING = "compiling (once: the next run of this kind finds it on disk)"


class Display(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def progress(self, progress: Progress) -> None: ...

    def evaluation(self, row: Row) -> None: ...

    def resumed(self, unrolls: int, evaluations: int) -> None: ...

    def stopping(self, signal: str) -> None: ...

    def note(self, sentence: str) -> None: ...


class Pace:
    """Steps done, steps/s and time left. The first iteration and the first evaluation compile: they do not count."""

    def __init__(self, config: Config):
        self.config = config
        self.unrolls = 0
        self._before = 0  # evaluations in earlier processes
        self._last: float | None = None  # when the latest iteration or evaluation ended
        self._iterations: list[float] = []  # seconds
        self._evaluations: list[float] = []

    def update(self, progress: Progress) -> None:
        self.unrolls = progress.unrolls
        if progress.metrics is not None:
            self._tick(self._iterations)

    def evaluated(self) -> None:
        self._tick(self._evaluations)

    def resumed(self, unrolls: int, evaluations: int) -> None:
        self.unrolls, self._before = unrolls, evaluations

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
        """-> steps/s, and seconds left; None before there is anything to judge by"""
        if not self._iterations:
            return None
        iteration = sum(self._iterations) / len(self._iterations)
        evaluation = self._evaluations[-1] if len(self._evaluations) > 1 else 0.0
        left = (self.config.num_unrolls - self.unrolls) * iteration
        left += (self.config.num_evals - self._before - len(self._evaluations)) * evaluation
        return self.config.env_steps_per_unroll / iteration, left

    def text(self) -> str:
        estimate = self.estimate()
        return "-" if estimate is None else f"{estimate[0]:,.0f} steps/s  {clock(round(estimate[1]))} left"


def clock(seconds: int) -> str:
    """125 -> 2:05, 3725 -> 1:02:05"""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def headline(config: Config, folder: Path, who: str | None = None) -> str:
    """Says openly how many steps will run: the budget rounded up to whole unrolls. `who`: in place of the seed."""
    runs = config.num_unrolls * config.env_steps_per_unroll
    asked = "" if runs == config.steps else f" ({config.steps:,} rounded up to whole unrolls)"
    return (
        f"Training {config.method} on {config.env}, {who or f'seed {config.seed}'}: {runs:,} environment steps{asked}, "
        f"{config.num_iterations * config.updates_per_iteration:,} updates; results go to {folder}"
    )


class Silent:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def progress(self, progress: Progress) -> None:
        return None

    def evaluation(self, row: Row) -> None:
        return None

    def resumed(self, unrolls: int, evaluations: int) -> None:
        return None

    def stopping(self, signal: str) -> None:
        return None

    def note(self, sentence: str) -> None:
        """What must be known, such as damage: also where nothing else is shown."""
        print(sentence, file=sys.stderr, flush=True)


class Plain(Silent):
    """For logs: one line at the start, one an evaluation."""

    def __init__(self, config: Config, folder: Path):
        self._pace = Pace(config)
        say(headline(config, folder))

    def progress(self, progress: Progress) -> None:
        self._pace.update(progress)

    def resumed(self, unrolls: int, evaluations: int) -> None:
        self._pace.resumed(unrolls, evaluations)
        say(f"{self._pace.steps:>12,} / {self._pace.total:,} steps  continuing from here")

    def stopping(self, signal: str) -> None:
        say(STOPPING.format(signal))

    def evaluation(self, row: Row) -> None:
        pace = self._pace
        pace.evaluated()
        say(
            f"{pace.steps:>12,} / {pace.total:,} steps  success {row['success_once']:6.1%}  "
            f"time near goal {row['time_near_goal']:6.1f}  critic loss {row['critic_loss']:.3f}  "
            f"actor loss {row['actor_loss']:.3f}  {pace.text()}{_warning(row)}"
        )


class Redrawn(Silent):
    """For a terminal: a picture that `_render` gives, drawn anew whenever something happened."""

    def __init__(self, console: Console):
        self._phase = COMPILING
        self._live = Live(self._render(), console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._phase = "done" if exception[0] is None else "stopped"
        self._live.update(self._render(), refresh=True)
        self._live.__exit__(None, None, None)

    def stopping(self, signal: str) -> None:
        self._live.console.show_cursor(True)  # a second signal leaves no time for that
        self.note(STOPPING.format(signal))

    def note(self, sentence: str) -> None:
        self._live.console.print(sentence)

    def _redraw(self) -> None:
        self._live.update(self._render())

    def _render(self) -> RenderableType:
        raise NotImplementedError


class Panel(Redrawn):
    """One run's."""

    def __init__(self, config: Config, folder: Path, console: Console):
        self._config, self._folder = config, folder
        self._pace = Pace(config)
        self._row: Row | None = None
        self._losses: Row = {}
        super().__init__(console)

    def progress(self, progress: Progress) -> None:
        self._pace.update(progress)
        self._phase = phase(self._config, progress)
        if progress.metrics is not None:
            self._losses = {name: float(progress.metrics[name]) for name in ("critic_loss", "actor_loss")}
        self._redraw()

    def evaluation(self, row: Row) -> None:
        self._row = row
        self._pace.evaluated()
        self._redraw()

    def resumed(self, unrolls: int, evaluations: int) -> None:
        self._pace.resumed(unrolls, evaluations)
        self._redraw()

    def _render(self) -> RenderableType:
        pace, row = self._pace, self._row
        bar = Table.grid(padding=(0, 2))
        share = f"{pace.steps:,} / {pace.total:,} steps"
        bar.add_row(ProgressBar(pace.total, pace.steps, width=30), share, pace.text(), Text(self._phase, "dim"))
        numbers = Table.grid(padding=(0, 3))
        numbers.add_row(
            _labelled("success", "-" if row is None else f"{row['success_once']:.1%}"),
            _labelled("time near goal", "-" if row is None else f"{row['time_near_goal']:.1f}"),
            *(_labelled(name.replace("_", " "), f"{value:.3f}") for name, value in self._losses.items()),
            Text("" if row is None else _warning(row).strip()),
        )
        return Group(headline(self._config, self._folder), bar, numbers)


def phase(config: Config, progress: Progress) -> str:
    if progress.metrics is not None:
        return "training"
    return COMPILING if progress.unrolls >= config.num_prefill_unrolls else "filling the replay"


def say(line: str) -> None:
    """A reader that has gone, as after `| head`, is no reason to end a run."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _labelled(label: str, value: str) -> Text:
    return Text.assemble((f"{label} ", "dim"), (value, "bold"))


def _warning(row: Row) -> str:
    """Divergence is told, where there is some."""
    return f"  {row['diverged_episodes']:.0f} episodes diverged" if row["diverged_episodes"] else ""


def make_display(kind: DisplayKind, config: Config, folder: Path) -> Display:
    if callable(kind):
        return kind(config, folder)
    console = Console()
    if kind == "auto":
        kind = "live" if console.is_terminal else "plain"
    if kind == "live":
        return Panel(config, folder, console)
    return Plain(config, folder) if kind == "plain" else Silent()


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
