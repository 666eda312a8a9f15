"""Drives a run, or several seeds together, through its budget from the host, and checkpoints it."""

import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dcp.algorithm import Algorithm, Programs, RunState
from dcp.config import Config
from dcp.errors import UserError
from dcp.evaluation.program import evaluation_key
from dcp.policies.policy import DeployedPolicy
from dcp.runs.checkpoint import Moment, Saver
from dcp.runs.display import Progress
from dcp.runs.multihost import agreed
from dcp.runs.run_status import evaluation_points
from dcp.runs.seeds import SeedStages, join, keep, one_of, part_of, stack
from dcp.runs.sinks import Results
from dcp.runs.stopping import NotFiniteError, StopRequest, require_finite


@dataclass(frozen=True)
class Cadence:
    """A checkpoint every so many evaluations and, between them, every so many minutes. 0: not by this clock."""

    evals: int = 1
    minutes: float = 15.0

    def __post_init__(self) -> None:
        if self.evals < 0 or not 0 <= self.minutes < float("inf"):
            raise UserError("checkpoint-evals and checkpoint-minutes must be 0 or more (0: not by this clock)")

    @property
    def never(self) -> bool:
        return not self.evals and not self.minutes


class Saves(Protocol):
    def save(self, moment: Moment) -> None: ...

    def check(self) -> None: ...

    def wait(self) -> None: ...


class Locks(Protocol):
    def require(self) -> None: ...


class Keeper:
    """Called at every boundary of the loop. Several hosts save and stop together: all, when one is told to."""

    def __init__(self, saver: Saves, lock: Locks, cadence: Cadence, stop: StopRequest, evaluations: int):
        self._saver, self._lock, self._cadence = saver, lock, cadence
        self._stop, self._evaluations = stop, evaluations
        self._seen: int | None = None  # evaluations at the last boundary
        self._saved = time.monotonic()

    def __call__(self, moment: Moment) -> None:
        self._lock.require()
        self._saver.check()
        ended = len(moment.rows) == self._evaluations
        number, due = agreed([self._stop.signal or 0, self._is_due(moment, ended)])
        if number and not ended:
            self._saver.save(moment)
            self._saver.wait()
            raise KeyboardInterrupt(signal.Signals(number).name)
        if due:
            self._saver.save(moment)
            self._saved = time.monotonic()
        self._seen = len(moment.rows)

    def _is_due(self, moment: Moment, ended: bool) -> bool:
        cadence = self._cadence
        if cadence.never:
            return False
        evaluated = self._seen is not None and len(moment.rows) > self._seen
        by_evaluations = evaluated and cadence.evals > 0 and len(moment.rows) % cadence.evals == 0
        by_minutes = cadence.minutes > 0 and time.monotonic() - self._saved >= 60 * cadence.minutes
        return by_evaluations or by_minutes or ended


Row = dict[str, float]


@dataclass(frozen=True)
class Evaluation:
    """After each evaluation: one row of metrics.csv, and the run as it stands."""

    row: Row
    run: RunState


def run_loop(
    trainer: Algorithm,
    on_eval: Callable[[Evaluation], None] = lambda _: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    at_boundary: Callable[[Moment], None] = lambda _: None,
    start: Callable[[Programs], Moment] | None = None,
    points: list[int] | None = None,
) -> RunState:
    """From `start`, or from the beginning, to the last of `points`, which are `evaluation_points` unless given.

    `at_boundary` is called after each unroll and after each evaluation; what it does with the moment, and whether it
    raises, leaves no trace in the numbers. The moment's arrays are used up by the next unroll.
    """
    loop = _Loop(trainer, points or evaluation_points(trainer.config), time.perf_counter())
    moment = (start or begin)(loop.stages)
    loop.before = moment.seconds
    while True:
        if loop.evaluation_is_due(moment):
            on_eval(loop.evaluate(moment))
            at_boundary(moment)
        if len(moment.rows) == len(loop.points):
            return moment.run
        on_progress(loop.unroll(moment))
        at_boundary(moment)


def begin(stages: Programs) -> Moment:
    return Moment(require_sound(stages.init(), stages.algorithm.config))


class _Loop:
    def __init__(self, trainer: Algorithm, points: list[int], started: float):
        self.trainer, self.config, self.stages = trainer, trainer.config, Programs(trainer)
        self.points = points
        self.started, self.before = started, 0.0
        self._paced: tuple[float, int] = (0.0, 0)  # seconds and iterations since the last evaluation, in this process

    def evaluation_is_due(self, moment: Moment) -> bool:
        done = moment.unrolls - self.config.num_prefill_unrolls
        return len(moment.rows) < len(self.points) and done == self.points[len(moment.rows)]

    def unroll(self, moment: Moment) -> Progress:
        since, metrics = time.perf_counter(), None
        if moment.unrolls < self.config.num_prefill_unrolls:
            moment.run = jax.block_until_ready(self.stages.prefill(moment.run))
        else:
            moment.run, metrics = jax.block_until_ready(self.stages.iteration(moment.run))
            moment.metrics.append({name: float(value) for name, value in metrics.items()})
            self._paced = (self._paced[0] + time.perf_counter() - since, self._paced[1] + 1)
        moment.unrolls += 1
        moment.seconds = self._seconds()
        if metrics is not None:
            require_finite(moment.metrics[-1], moment.run.learner, moment.unrolls * self.config.env_steps_per_unroll)
        return Progress(moment.unrolls, metrics)

    def evaluate(self, moment: Moment) -> Evaluation:
        config, index = self.config, len(moment.rows)
        scores = self.stages.evaluate(moment.run.learner.params, evaluation_key(config.seed, index))
        row = add_row(moment, config, scores, _diverged(moment.run), self._paced, self._seconds())
        self._paced = (0.0, 0)
        return Evaluation(row, moment.run)

    def _seconds(self) -> float:
        return self.before + time.perf_counter() - self.started


def add_row(
    moment: Moment, config: Config, scores: Row, diverged: int, paced: tuple[float, int], seconds: float
) -> Row:
    """The row of an evaluation, which the moment has from then on. `diverged`: episodes since the start. `paced`:
    seconds and iterations since the last evaluation. `seconds`: of work so far."""
    row = {
        "evaluation": len(moment.rows) + 1,
        "env_steps": moment.unrolls * config.env_steps_per_unroll,
        "updates": (moment.unrolls - config.num_prefill_unrolls) * config.updates_per_iteration,
        **scores,
        **_means(moment.metrics),
        "diverged_episodes": diverged - moment.diverged,
        "steps_per_second": paced[1] * config.env_steps_per_unroll / max(paced[0], 1e-9),
        "wall_seconds": seconds,
    }
    moment.rows.append(row)
    moment.metrics, moment.diverged, moment.seconds = [], diverged, seconds
    return row


def _means(metrics: list[Row]) -> Row:
    """Over iterations. Floats on the host are the device's float32 exactly, so a resumed run has the same means."""
    return {name: float(jnp.mean(jnp.asarray([m[name] for m in metrics], np.float32))) for name in metrics[0]}


def _diverged(run: RunState) -> int:
    """Episodes since the start that ended because their environment diverged."""
    return int(jnp.sum(run.acting.episodes.diverged))


def require_sound(run: RunState, config: Config) -> RunState:
    """What diverges goes back to a first state, so these must be good."""
    if not bool(jnp.all(jnp.isfinite(run.acting.episodes.env.obs))):
        raise UserError(f"reset of {config.env} gives observations that are not finite: mend it")
    return run


Position = tuple[int, int]  # unrolls, evaluations: where seeds must agree to go on together


@dataclass(eq=False)
class Member:
    """One seed. `moment.run` is its state only until it joins a group; None then, and before it has begun."""

    results: Results
    saver: Saver
    moment: Moment = field(default_factory=lambda: Moment(None))  # pyright: ignore[reportArgumentType]
    joined: float = 0.0  # when it joined, less the seconds of work that it had behind it

    @property
    def seed(self) -> int:
        return self.results.folder.config.seed

    @property
    def position(self) -> Position:
        return self.moment.unrolls, len(self.moment.rows)

    @property
    def seconds(self) -> float:
        """wall_seconds: of the time in which this seed took part, whole, however many shared it."""
        return time.perf_counter() - self.joined


@dataclass
class Group:
    """As a moment it has what all of its seeds have in common, so that a `Keeper` can judge by it."""

    stages: SeedStages
    members: list[Member] = field(default_factory=list)
    run: RunState | None = None  # of all seeds, in the members' order

    @property
    def seeds(self) -> list[int]:
        return [member.seed for member in self.members]

    @property
    def position(self) -> Position:
        return self.members[0].position

    @property
    def unrolls(self) -> int:
        return self.members[0].moment.unrolls

    @property
    def rows(self) -> list[Row]:
        return self.members[0].moment.rows

    def admit(self, members: Sequence[Member]) -> None:
        """Seeds at this group's position; those without a state begin."""
        begun = [member for member in members if member.moment.run is not None]
        fresh = [member for member in members if member.moment.run is None]
        runs = [self.run] if self.run is not None else []
        if begun:
            runs.append(stack([member.moment.run for member in begun]))
        if fresh:
            config = self.stages.algorithm.config
            runs.append(require_sound(self.stages.init([member.seed for member in fresh]), config))
        one_group = runs[0]
        for run in runs[1:]:
            one_group = join(one_group, run)
        self.run = self.stages.place(one_group) if begun or len(runs) > 1 else one_group
        for member in [*begun, *fresh]:
            member.joined = time.perf_counter() - member.moment.seconds
            member.moment.run = None  # pyright: ignore[reportAttributeAccessIssue]
            self.members.append(member)

    def dismiss(self, members: Sequence[Member]) -> None:
        """The others go on without these."""
        places = [place for place, member in enumerate(self.members) if member not in members]
        assert self.run is not None
        self.run = self.stages.place(keep(self.run, places)) if places else None
        self.members = [self.members[place] for place in places]

    def moment_of(self, place: int) -> Moment:
        """One seed's moment, as it would be alone."""
        assert self.run is not None
        return replace(self.members[place].moment, run=one_of(self.run, place))

    def policy_of(self, place: int) -> DeployedPolicy:
        assert self.run is not None
        return self.stages.algorithm.policy(part_of(self.run.learner.params, place))


class GroupSaver:
    """All members' checkpoints as a `Keeper` asks for them; all are of the same moment."""

    def __init__(self, group: Group):
        self._group = group

    def save(self, group: Group) -> None:
        for place, member in enumerate(group.members):
            member.saver.save(group.moment_of(place))

    def check(self) -> None:
        for member in self._group.members:
            member.saver.check()

    def wait(self) -> None:
        for member in self._group.members:
            member.saver.wait()


class GroupLock:
    """All members' locks."""

    def __init__(self, group: Group):
        self._group = group

    def require(self) -> None:
        for member in self._group.members:
            member.results.folder.lock.require()


class Watcher(Protocol):
    """Is told what happens."""

    def joined(self, group: Group) -> None: ...

    def progress(self, group: Group, progress: Progress) -> None: ...

    def evaluated(self, group: Group, rows: list[Row]) -> None: ...

    def dropped(self, group: Group, member: Member, error: NotFiniteError) -> None: ...


def run_seeds(
    group: Group,
    members: Sequence[Member],
    points: list[int],
    watcher: Watcher,
    at_boundary: Callable[[Group], None] = lambda _: None,
) -> None:
    """Until every member that did not drop out has had its last evaluation. `points`: iterations at each of them.

    `at_boundary` is called after each unroll and after each evaluation.
    """
    loop, waiting = _SeedsLoop(group, points, watcher), sorted(members, key=lambda member: member.position)
    while True:
        waiting = loop.admit(waiting)
        if not group.members:
            return
        if loop.evaluation_is_due():
            loop.evaluate()
        elif len(group.rows) == len(points):
            return
        else:
            loop.unroll()
        if group.members:
            at_boundary(group)


class _SeedsLoop:
    def __init__(self, group: Group, points: list[int], watcher: Watcher):
        self.group, self.points, self.watcher = group, points, watcher
        self.stages: SeedStages = group.stages
        self.config = group.stages.algorithm.config  # but for the seed, every member's
        self._paced: tuple[float, int] = (0.0, 0)  # seconds and iterations since the last evaluation, or a joining

    def admit(self, waiting: list[Member]) -> list[Member]:
        """-> those that still wait"""
        if not waiting:
            return waiting
        here = self.group.position if self.group.members else waiting[0].position
        arriving = [member for member in waiting if member.position == here]
        if arriving:
            self.group.admit(arriving)
            self._paced = (0.0, 0)
            self.watcher.joined(self.group)
        return [member for member in waiting if member not in arriving]

    def evaluation_is_due(self) -> bool:
        done, evaluations = self.group.unrolls - self.config.num_prefill_unrolls, len(self.group.rows)
        return evaluations < len(self.points) and done == self.points[evaluations]

    def evaluate(self) -> None:
        group = self.group
        assert group.run is not None
        scores = self.stages.evaluate(group.run.learner.params, group.seeds, len(group.rows))
        diverged = self.stages.diverged(group.run)
        rows = [
            add_row(member.moment, self.config, score, lost, self._paced, member.seconds)
            for member, score, lost in zip(group.members, scores, diverged, strict=True)
        ]
        self._paced = (0.0, 0)
        self.watcher.evaluated(group, rows)

    def unroll(self) -> None:
        group, since = self.group, time.perf_counter()
        metrics: Any = None
        assert group.run is not None
        if group.unrolls < self.config.num_prefill_unrolls:
            group.run = jax.block_until_ready(self.stages.prefill(group.run))
        else:
            group.run, metrics = jax.block_until_ready(self.stages.iteration(group.run))
            metrics = {name: np.asarray(values) for name, values in metrics.items()}  # [K]; in a row's order
            self._paced = (self._paced[0] + time.perf_counter() - since, self._paced[1] + 1)
        for place, member in enumerate(group.members):
            member.moment.unrolls += 1
            member.moment.seconds = member.seconds
            if metrics is not None:
                member.moment.metrics.append({name: float(values[place]) for name, values in metrics.items()})
        if metrics is not None:
            self._drop_what_is_not_finite()
        if group.members:
            self.watcher.progress(group, Progress(group.unrolls, metrics))

    def _drop_what_is_not_finite(self) -> None:
        group, lost = self.group, []
        assert group.run is not None
        env_steps = group.unrolls * self.config.env_steps_per_unroll
        finite = self.stages.finite(group.run)
        for place, member in enumerate(group.members):
            metrics = member.moment.metrics[-1]
            if finite[place] and all(map(math.isfinite, metrics.values())):
                continue
            try:
                require_finite(metrics, part_of(group.run.learner, place), env_steps)
            except NotFiniteError as error:
                lost.append((member, error))
        if lost:
            group.dismiss([member for member, _ in lost])
        for member, error in lost:
            self.watcher.dropped(group, member, error)
