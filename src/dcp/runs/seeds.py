"""`dcp.train_seeds`: train several seeds as one program, each into an ordinary run folder, which can be resumed alone.

A seed whose numbers are no longer finite drops out, and the rest continue without it.
"""

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from dcp.algorithm import RunState, make_algorithm
from dcp.config import Config, Settings, Tracking
from dcp.envs.base import is_exact
from dcp.envs.registry import env_of
from dcp.errors import RunError, UserError
from dcp.loop import HostState, NotFiniteError, Recorder, Row, evaluation_points, require_sound_start
from dcp.machine import compiling
from dcp.machine.checks import available_memory, check, resident_parts
from dcp.machine.programs import on_devices
from dcp.machine.seed_programs import SeedPrograms, devices_for, keep
from dcp.machine.signals import Interrupted, StopRequest
from dcp.named_code import require_allowed
from dcp.policies.policy import DeployedPolicy
from dcp.runs.checkpoint import Cadence, CheckpointTimer
from dcp.runs.display import Display, DisplayKind, Progress, make_display
from dcp.runs.folder import RunFolder, claim, holds_run
from dcp.runs.replaced_run import discard
from dcp.runs.resuming import reopen
from dcp.runs.run_status import budget_to_resume_with, load_latest, read_plan, why_it_ended
from dcp.runs.tracking import require

S = TypeVar("S", bound=Settings)
OnSeedEval = Callable[[int, Row], None]  # seed, row
ALONE = "use --seeds-as processes"


def require_seeds(seeds: Sequence[int]) -> None:
    """Refuse an invalid list of seeds. Also used for seeds as processes."""
    if not seeds:
        raise UserError("--seeds needs at least one seed, such as --seeds 0 1 2")
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise UserError(f"--seeds has {seed}: use numbers from 0, below 2**32")
    if repeated := sorted({seed for seed in seeds if list(seeds).count(seed) > 1}):
        raise UserError(f"--seeds has {repeated[0]} twice: name each seed once")


def in_one_program(settings: S, count: int) -> S:
    """Return the settings of each of `count` seeds, each on one device."""
    if settings.devices not in (None, 1):
        raise UserError(
            f"devices {settings.devices} would split each of {count} seeds' environments, but in one program a seed "
            f"is kept whole: leave --devices out, or {ALONE}"
        )
    if not is_exact(env_of(settings)):
        raise UserError(f"{settings.env} is stepped in worker processes, for one seed at a time: {ALONE}")
    return replace(settings, devices=1)


def require_memory(settings: Settings, count: int) -> None:
    """Refuse `count` seeds that do not fit into memory. The settings have passed their own checks."""
    env = env_of(settings)
    if jax.default_backend() != "cpu":
        count //= devices_for(count)  # each accelerator has its own memory
    needed = count * sum(resident_parts(settings.resolve(env.spec.episode_length), env.spec).values())
    available = available_memory()
    if available is not None and needed > available:
        raise UserError(
            f"{count} seeds as one program need about {needed / 1e9:.1f} GB but {available / 1e9:.1f} GB are "
            "available: give fewer seeds at once, or lower replay_rows or num_envs"
        )


@dataclass(frozen=True)
class SeedRun:
    """Hold one seed's results, all of which are also in its folder."""

    seed: int
    folder: Path
    rows: list[Row]  # as in metrics.csv: one per evaluation
    policy: DeployedPolicy


class SeedsInterrupted(Interrupted):
    """Report that a signal stopped several seeds. The attributes are those of the seed whose checkpoint is behind."""

    def __init__(self, stops: Sequence[Interrupted]):
        resumable = [stop for stop in stops if stop.env_steps is not None] or stops
        behind = min(resumable, key=lambda stop: stop.env_steps or 0)
        super().__init__(behind.folder, behind.evaluations, behind.env_steps)
        self.stops = tuple(stops)


class SeedsFaultError(RunError):
    """Report that some seeds dropped out; `trained` holds the others."""

    def __init__(self, faults: Sequence[str], trained: dict[int, SeedRun]):
        rest = ", the others are trained" if trained else ""
        count = "1 seed" if len(faults) == 1 else f"{len(faults)} seeds"
        super().__init__(f"{count} dropped out{rest}: {'; '.join(faults)}")
        self.trained = trained


def train_seeds(
    config: Config,
    seeds: Sequence[int],
    on_eval: OnSeedEval | None = None,
    *,
    runs_dir: str | Path = "runs",
    overwrite: bool = False,
    resume: bool = False,
    tracking: Tracking = Tracking(),  # noqa: B008
    keep_policies: bool = False,
    display: DisplayKind = "auto",
    cache: str | Path | None = None,
    cadence: Cadence = Cadence(),  # noqa: B008
) -> dict[int, SeedRun]:
    """Train these seeds as one program; `config.seed` is not used. -> the runs that were trained here, by seed

    Each seed has an ordinary run folder with the results that it would have alone, except for the order of
    floating-point sums. A seed's `steps_per_second` counts its own steps over the time that all took together, so the
    total speed is the sum; its `wall_seconds` is the whole time in which it took part.

    With `resume`, finished seeds stay as they are and others resume from their checkpoints; those that are at
    different points train one group after another.

    A seed whose loss is not finite drops out with a fault.json, and the others continue: see `SeedsFaultError`.
    """
    compiling.enable_cache(cache)
    seeds = tuple(seeds)
    require_seeds(seeds)
    config = in_one_program(replace(config, seed=seeds[0]), len(seeds))
    check(config)
    require_memory(config, len(seeds))
    require(tracking)
    algorithm = on_devices(make_algorithm(config))
    outputs: dict[str, Any] = {"tracking": tracking, "keep_policies": keep_policies}
    folders = _open_folders(algorithm.config, seeds, Path(runs_dir), overwrite, resume, outputs)
    session = _SeedsSession(folders, display, cadence, on_eval)
    trained = session.train()
    if session.faults:
        raise SeedsFaultError(session.faults, trained)
    return trained


def _open_folders(
    config: Config, seeds: Sequence[int], runs_dir: Path, overwrite: bool, resume: bool, outputs: dict[str, Any]
) -> list[RunFolder]:
    """Lock the folders of the runs to train and return them; after an error, none stays locked."""
    with ExitStack() as undo:
        folders = []
        for seed in seeds:
            mine = replace(config, seed=seed)
            path = runs_dir / mine.run_path
            if resume and holds_run(path):
                stored = read_plan(path)[0]
                if stored.devices not in (None, 1):  # its environments are split
                    raise UserError(
                        f"{path} was begun on {stored.devices} devices and can only resume on as many: {ALONE}"
                    )
                require_allowed(stored.code, config.code.values())
                if (steps := budget_to_resume_with(path, mine)) is None:
                    continue
                folder = reopen(path, steps, **outputs)
                undo.callback(folder.lock.release)
            else:
                folder = claim(runs_dir, mine, overwrite, **outputs)
                undo.callback(discard, folder)
            folders.append(folder)
        undo.pop_all()
    return folders


@dataclass(eq=False)
class _Seed:
    """Hold the host's part of one seed."""

    folder: RunFolder
    host: HostState = field(default_factory=HostState)
    run: RunState | None = None  # its arrays from a checkpoint, until its group starts
    recorder: Recorder = None  # pyright: ignore[reportAssignmentType]

    @property
    def config(self) -> Config:
        return self.folder.config

    @property
    def group(self) -> str:
        """Return the plan and the position, which must be equal for seeds to train together."""
        plan = f"{replace(self.config, seed=0)} {self.folder.earlier}"
        return f"{plan} {self.host.unrolls:012d} {len(self.host.rows):09d}"


class _SeedsSession:
    """Train seeds in groups of equal plan and position, and report to their folders and to the display."""

    def __init__(self, folders: Sequence[RunFolder], kind: DisplayKind, cadence: Cadence, on_eval: OnSeedEval | None):
        self.seeds = [_Seed(folder) for folder in folders]
        self.kind: DisplayKind = kind
        self.cadence, self.on_eval = cadence, on_eval
        self.faults: list[str] = []  # of seeds that dropped out
        self.display = Display()
        self._dropped: list[_Seed] = []

    def train(self) -> dict[int, SeedRun]:
        trained: dict[int, SeedRun] = {}
        if not self.seeds:
            return trained
        first = self.seeds[0].folder
        try:
            with ExitStack() as stack:
                for seed in self.seeds:
                    stack.callback(seed.folder.close)
                self.display = stack.enter_context(make_display(self.kind, first.config, first.path, several=True))
                stop = stack.enter_context(StopRequest(self.display.stopping))
                programs = SeedPrograms(make_algorithm(first.config))
                for seed in self.seeds:
                    self._load(seed, programs)
                for _, group in groupby(sorted(self.seeds, key=lambda seed: seed.group), lambda seed: seed.group):
                    trained |= self._train_group(list(group), stop)
        except BaseException as error:
            replacement = self._on_early_exit(error)
            if replacement is error:
                raise
            raise replacement from (None if isinstance(error, KeyboardInterrupt) else error)
        finally:
            for seed in self.seeds:
                seed.folder.lock.release()
        return trained

    def _load(self, seed: _Seed, programs: SeedPrograms) -> None:
        """Load the seed's newest checkpoint, if it is resumed, and open its files."""
        if seed.folder.resumed:
            points = evaluation_points(seed.config, seed.folder.earlier)
            latest = load_latest(seed.folder, programs.shapes(), points, self.display.note)
            seed.run, seed.host = latest or (None, seed.host)
        seed.folder.begin(seed.host.rows, self.display.note)

    def _train_group(self, seeds: list[_Seed], stop: StopRequest) -> dict[int, SeedRun]:
        """Train seeds at the same position to their end: `loop.train_loop`, with an axis of seeds."""
        config, host = seeds[0].config, seeds[0].host
        programs = SeedPrograms(make_algorithm(config))
        points = evaluation_points(config, seeds[0].folder.earlier)
        timer = CheckpointTimer(self.cadence, len(points))
        runs = [seed.run for seed in seeds if seed.run is not None]
        numbers = [seed.config.seed for seed in seeds]
        run = programs.place(programs.stack(runs)) if runs else require_sound_start(programs.init(numbers), config)
        for seed in seeds:
            seed.run, seed.recorder = None, Recorder(seed.config, seed.host)
        self.display.joined(numbers, host.unrolls, len(host.rows))
        while seeds and len(seeds[0].host.rows) < len(points):
            host = seeds[0].host
            if host.unrolls - config.num_prefill_unrolls == points[len(host.rows)]:
                self._evaluate(programs, run, seeds)
            elif host.unrolls < config.num_prefill_unrolls:
                run = jax.block_until_ready(programs.prefill(run))
                for seed in seeds:
                    seed.recorder.count_unroll()
                self.display.progress(Progress(host.unrolls, None))
            else:
                run, seeds = self._iterate(programs, run, seeds)
            if seeds:
                self._boundary(programs, run, seeds, timer, stop)
        trained = {}
        for place, seed in enumerate(seeds):
            seed.folder.saver.wait()
            policy = programs.algorithm.policy(programs.learner_of(run, place).deployed)
            number = seed.config.seed
            trained[number] = SeedRun(number, seed.folder.path, seed.folder.rows, policy)
        return trained

    def _iterate(self, programs: SeedPrograms, run: RunState, seeds: list[_Seed]) -> tuple[RunState, list[_Seed]]:
        """Do an iteration. -> the state and the seeds whose numbers are still finite"""
        since = time.perf_counter()
        run, metrics = jax.block_until_ready(programs.iteration(run))
        seconds, values = time.perf_counter() - since, {name: np.asarray(value) for name, value in metrics.items()}
        finite, places = programs.finite(run), []
        for place, seed in enumerate(seeds):
            seed.recorder.count_unroll({name: float(value[place]) for name, value in values.items()}, seconds)
            if finite[place] and seed.recorder.is_finite:
                places.append(place)
        faulty = [(place, seed) for place, seed in enumerate(seeds) if place not in places]
        sound = [seeds[place] for place in places]
        for place, seed in faulty:
            learner = programs.learner_of(run, place)
            self._drop(seed, NotFiniteError(seed.recorder.env_steps, seed.host.metrics[-1], learner), bool(sound))
        if faulty and sound:
            run = programs.place(keep(run, places))
            self.display.joined([seed.config.seed for seed in sound], sound[0].host.unrolls, len(sound[0].host.rows))
        if sound:
            self.display.progress(Progress(sound[0].host.unrolls, [seed.host.metrics[-1] for seed in sound]))
        return run, sound

    def _evaluate(self, programs: SeedPrograms, run: RunState, seeds: list[_Seed]) -> None:
        numbers = [seed.config.seed for seed in seeds]
        scores = programs.scores(run, numbers, len(seeds[0].host.rows))
        diverged, rows = programs.diverged(run), []
        for place, seed in enumerate(seeds):
            rows.append(seed.recorder.add_row(scores[place], diverged[place]))
            policy = programs.algorithm.policy(programs.learner_of(run, place).deployed)
            seed.folder.add(policy, rows[-1])
        self.display.evaluated(rows)
        if self.on_eval is not None:
            for number, row in zip(numbers, rows, strict=True):
                self.on_eval(number, row)

    def _boundary(
        self, programs: SeedPrograms, run: RunState, seeds: list[_Seed], timer: CheckpointTimer, stop: StopRequest
    ) -> None:
        """Save checkpoints when they are due, and stop after them if a signal asks for it."""
        stopping = stop.signal is not None and not timer.is_last(seeds[0].host)
        for seed in seeds:
            seed.folder.lock.require()
            seed.folder.saver.check()
        if stopping or timer.is_due(seeds[0].host):
            for place, seed in enumerate(seeds):
                seed.folder.saver.save(programs.one_of(run, place), seed.host)
            timer.saved()
        if stopping:
            for seed in seeds:
                seed.folder.saver.wait()
            raise KeyboardInterrupt(signal.Signals(stop.signal or 0).name)

    def _drop(self, seed: _Seed, error: NotFiniteError, others_continue: bool) -> None:
        seed.folder.saver.close()  # completes a write in progress
        fault = why_it_ended(error, seed.folder)
        self.faults.append(f"seed {seed.config.seed}: {fault}")
        self._dropped.append(seed)
        self.display.note(f"{self.faults[-1]}{'. The others continue.' if others_continue else ''}")

    def _on_early_exit(self, error: BaseException) -> BaseException:
        """Return what to raise after the runs ended early, and remove folders that hold no result."""
        reasons = (why_it_ended(error, seed.folder) for seed in self.seeds)
        fault = next((reason for reason in reasons if reason), None)
        stops = [
            Interrupted(seed.folder.path, len(seed.folder.rows), seed.folder.saver.last)
            for seed in self.seeds
            if seed not in self._dropped
        ]
        for seed in self.seeds:
            seed.folder.leave()
        if isinstance(error, KeyboardInterrupt):
            return SeedsInterrupted(stops)
        return RunError(fault) if fault else error
