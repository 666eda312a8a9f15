"""What a person sees while a run trains: a live panel on a terminal, one line an evaluation elsewhere."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dcp.config import Config
from dcp.training.loop import Progress

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
