"""A run in the lines of a log, with its pace, and a forecast of the time that it takes."""

import os
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import mean

import jax

from dcp.config import Config, cores
from dcp.envs.registry import OURS, env_of
from dcp.errors import UserError
from dcp.loop import Row
from dcp.presets import preset_config
from dcp.runs.display import Display, Progress

STOPPING = "{}: stopping after this iteration, with a checkpoint (a second signal stops at once)"
QUIET = 60.0  # seconds after which a log gets a line without an evaluation
# What a run takes on a CPU, roughly: an update at the paper's sizes and what no size changes, seconds; and environment
# steps per second and core, points in mazes and bodies with one actuator (docs/speed.md has the measurements).
_UPDATE, _ANY_UPDATE, _POINT_STEPS, _BODY_STEPS = 8e-3, 3e-4, 500_000, 100_000
_LONG = 2 * 3600.0  # seconds from which a shorter preset is named
COLUMNS = ("success_once", "time_near_goal", "critic_loss", "actor_loss", "diverged_episodes")


def say(line: str) -> None:
    """Print and flush. If the reader is gone, as after `| head`, or its disk is full, the run continues silently."""
    try:
        print(line, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


def rough_seconds(config: Config, count: int | None = None) -> float | None:
    """Forecast a run's seconds on this machine's CPU, or on `count` of its cores, right within a factor of two or so;
    None on other devices."""
    if jax.default_backend() != "cpu":
        return None
    try:
        spec = env_of(config).spec
    except UserError:  # an object without a name
        return None
    per_core = _POINT_STEPS if spec.physics == "none" else _BODY_STEPS / spec.action_size
    episodes = config.num_evals * config.eval_episodes * (config.episode_length or spec.episode_length)
    update = _UPDATE * config.batch_size / 256 * (config.width / 256) ** 2 * config.depth / 2 + _ANY_UPDATE
    steps = config.num_unrolls * config.env_steps_per_unroll + episodes
    return config.num_iterations * config.num_updates * update + steps / per_core / (count or cores())


def in_words(seconds: float) -> str:
    """Round a forecast: a minute, 40 minutes, 7 hours, 3 days."""
    for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.0f} {name}"
    return "a minute"


@cache
def forecast(config: Config) -> str:
    """Return roughly how long a run takes here, and a preset that takes less if that is long."""
    seconds = rough_seconds(config)
    if seconds is None:
        return "no forecast of its time (only CPUs have been timed)"
    text = f"roughly {in_words(seconds)} on {cores()} core{'s' * (cores() > 1)}"
    if seconds < _LONG or config.env not in OURS:
        return text
    laptop = preset_config("laptop", env=config.env).resolve(config.episode_length or 1000)
    shorter = rough_seconds(laptop)
    if shorter is None or shorter > seconds / 2:
        return text
    return f"{text} (with --preset laptop, {laptop.steps:,} steps, roughly {in_words(shorter)})"


def headline(config: Config, folder: Path | None, who: str | None = None) -> str:
    """Return a line with the number of steps, rounded up to whole unrolls. `who` replaces the config's seed."""
    runs = config.num_unrolls * config.env_steps_per_unroll
    asked = "" if runs == config.steps else f" ({config.steps:,} rounded up to whole unrolls)"
    return (
        f"Training {config.method} on {config.env}, {who or f'seed {config.seed}'}: {runs:,} environment steps{asked}, "
        f"{config.num_iterations * config.num_updates:,} updates, {forecast(config)}"
        f"{'' if folder is None else f'; results go to {folder}'}"
    )


def seed_names(seeds: Sequence[int]) -> str:
    """Return the seeds in words: seeds 0, 1 and 2 as one program."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    return f"seeds {', '.join(map(str, seeds[:-1]))} and {seeds[-1]} as one program"


class PacedDisplay(Display):
    """Track the seeds and their pace. `several`: the command trains several seeds, even if only one is left."""

    def __init__(self, config: Config, folder: Path | None, several: bool = False):
        self._config, self._several = config, several
        self._folder = folder.parent / "seed_<n>" if several and folder else folder
        self._seeds: tuple[int, ...] = ()
        self._pace = Pace(config)

    def joined(self, seeds: Sequence[int], unrolls: int, evaluations: int) -> None:
        self._seeds = tuple(seeds)
        self._pace = Pace(self._config, unrolls, evaluations)  # the pace depends on the number of seeds

    def progress(self, progress: Progress) -> None:
        self._pace.update(progress)

    def evaluated(self, rows: Sequence[Row]) -> None:
        self._pace.evaluated()

    def _headline(self, seeds: Sequence[int]) -> str:
        several = f"{seed_names(seeds)}, each" if seeds else "several seeds"
        return headline(self._config, self._folder, several if self._several else None)

    @property
    def _share(self) -> str:
        return f"{self._pace.steps:>12,} / {self._pace.total:,} steps"


class Plain(PacedDisplay):
    """Print lines for logs: one at the start and whenever a group resumes, one per evaluation, and one per minute."""

    def __init__(self, config: Config, folder: Path | None, several: bool = False):
        super().__init__(config, folder, several)
        self._said = time.perf_counter()
        if not several:
            say(self._headline(()))

    def joined(self, seeds: Sequence[int], unrolls: int, evaluations: int) -> None:
        super().joined(seeds, unrolls, evaluations)
        if unrolls:
            say(f"{self._share}  {f'{seed_names(seeds)}: ' if self._several else ''}continuing from here")
        elif self._several:
            say(self._headline(seeds))

    def stopping(self, signal: str) -> None:
        say(STOPPING.format(signal))

    def progress(self, progress: Progress) -> None:
        super().progress(progress)
        if time.perf_counter() - self._said < QUIET:
            return
        self._said = time.perf_counter()
        if progress.metrics is None:
            say(f"{self._share}  filling the replay")
        else:
            loss = mean(row["critic_loss"] for row in progress.metrics)
            say(f"{self._share}  critic loss {loss:.3f}  {self._pace.text(len(self._seeds))}")

    def evaluated(self, rows: Sequence[Row]) -> None:
        super().evaluated(rows)
        self._said = time.perf_counter()
        means = {name: mean(row[name] for row in rows) for name in COLUMNS}
        each = ", ".join(f"seed {seed} {row['success_once']:.1%}" for seed, row in zip(self._seeds, rows, strict=False))
        diverged = sum(row["diverged_episodes"] for row in rows)
        say(
            f"{self._share}  success {means['success_once']:6.1%}{f' ({each})' if self._several else ''}  "
            f"time near goal {means['time_near_goal']:6.1f}  critic loss {means['critic_loss']:.3f}  "
            f"actor loss {means['actor_loss']:.3f}  {self._pace.text(len(rows))}"
            f"{f'  {diverged:.0f} episodes diverged' if diverged else ''}"
        )
