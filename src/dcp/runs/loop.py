"""Train a run, or several seeds together, through its budget, and checkpoint it: the loop on the host.

Runs that train together are a group. A single run is a group of one, whose programs have no axis of seeds. Among
several seeds those that are behind train first; the others join when these reach their position. A seed whose numbers
are no longer finite drops out, and the rest continue without it.
"""

import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np

from dcp.algorithm import RunState
from dcp.config import Config
from dcp.errors import UserError
from dcp.evaluation.rollout import evaluation_key
from dcp.learner import LearnerState
from dcp.policies.policy import DeployedPolicy
from dcp.programs import Programs
from dcp.runs.checkpoint import Moment, Row, Saver
from dcp.runs.display import Progress
from dcp.runs.folder import FolderLock
from dcp.runs.multihost import highest_of_all
from dcp.runs.seeds import SeedPrograms, join, keep
from dcp.runs.stopping import NotFiniteError, StopRequest, all_finite
from dcp.types import Metrics


class OneRun(Programs):
    """Give a single run's compiled programs the same methods as `SeedPrograms`, which the loop calls."""

    def begin(self, seeds: Sequence[int]) -> RunState:
        """Start the run of the config's seed; `seeds` is not read."""
        return self.init()

    def stack(self, runs: Sequence[RunState]) -> RunState:
        return runs[0]

    def scores(self, run: RunState, seeds: Sequence[int], index: int) -> list[Row]:
        return [self.evaluate(run.learner.params, evaluation_key(seed, index)) for seed in seeds]

    def diverged(self, run: RunState) -> list[int]:
        """Count the episodes since the start that ended because their environment diverged."""
        return [int(jnp.sum(run.acting.episodes.diverged))]

    def finite(self, run: RunState) -> list[bool]:
        return [bool(all_finite(run.learner))]

    def one_of(self, run: RunState, place: int) -> RunState:
        return run

    def learner_of(self, run: RunState, place: int) -> LearnerState:
        return run.learner


@dataclass(eq=False)
class Member:
    """Hold the host's part of one run of a group."""

    config: Config
    saver: Saver
    lock: FolderLock | None = None  # of its folder, if it has one
    moment: Moment = field(default_factory=Moment)
    run: RunState | None = None  # its arrays from a checkpoint, until it joins a group
    joined: float = 0.0  # when it joined, minus its earlier seconds of work

    @property
    def position(self) -> tuple[int, int]:
        """Return unrolls and evaluations, which must be equal for runs to train together."""
        return self.moment.unrolls, len(self.moment.rows)

    @property
    def seconds(self) -> float:
        """Return wall_seconds: the whole time in which this run took part, not divided by the runs that shared it."""
        return time.perf_counter() - self.joined


class Watcher:
    """Receive a group's events. Override the methods that you need."""

    def joined(self, group: "Group") -> None:
        return None

    def progress(self, progress: Progress) -> None:
        return None

    def evaluated(self, group: "Group", rows: list[Row]) -> None:
        return None

    def dropped(self, group: "Group", member: Member, error: NotFiniteError) -> None:
        raise error


class Group:
    """Hold runs that train together: one state of all on the device, and each member's part on the host."""

    def __init__(self, programs: OneRun | SeedPrograms, points: list[int], watcher: Watcher | None = None):
        self.programs, self.points, self.watcher = programs, points, watcher or Watcher()
        self.config = programs.algorithm.config  # every member's, except for the seed
        self.members: list[Member] = []
        self.run: RunState = None  # pyright: ignore[reportAttributeAccessIssue]  # of all, in the members' order
        self._paced: tuple[float, int] = (0.0, 0)  # seconds and iterations since the last evaluation or join

    @property
    def seeds(self) -> list[int]:
        return [member.config.seed for member in self.members]

    @property
    def position(self) -> tuple[int, int]:
        return self.members[0].position

    @property
    def evaluation_is_due(self) -> bool:
        unrolls, evaluations = self.position
        iterations = unrolls - self.config.num_prefill_unrolls
        return evaluations < len(self.points) and iterations == self.points[evaluations]

    @property
    def just_evaluated(self) -> bool:
        """Return whether an evaluation was the last thing done. Metrics of iterations are kept until the next one."""
        moment = self.members[0].moment
        return bool(moment.rows) and not moment.metrics

    @property
    def ended(self) -> bool:
        return self.position[1] == len(self.points)

    def admit(self, waiting: list[Member]) -> list[Member]:
        """Let members join that are at the group's position. -> those that still wait"""
        if not waiting:
            return waiting
        here = self.position if self.members else waiting[0].position
        arriving = [member for member in waiting if member.position == here]
        if arriving:
            self._admit(arriving)
            self._paced = (0.0, 0)
            self.watcher.joined(self)
        return [member for member in waiting if member not in arriving]

    def _admit(self, arriving: list[Member]) -> None:
        since = time.perf_counter()
        parts = [self.run] if self.members else []
        resumed = [member for member in arriving if member.run is not None]
        fresh = [member for member in arriving if member.run is None]
        if resumed:
            parts.append(self.programs.stack([member.run for member in resumed if member.run is not None]))
        if fresh:
            parts.append(_require_sound(self.programs.begin([member.config.seed for member in fresh]), self.config))
        self.run = self.programs.place(reduce(join, parts)) if resumed or len(parts) > 1 else parts[0]
        for member in [*resumed, *fresh]:
            member.run, member.joined = None, since - member.moment.seconds
            self.members.append(member)

    def advance(self, run: RunState, metrics: Metrics | None, seconds: float) -> None:
        """Store the state after one more unroll and, once the replay is filled, the metrics of its updates."""
        self.run, rows = run, None
        if metrics is not None:
            self._paced = (self._paced[0] + seconds, self._paced[1] + 1)
            values = {name: np.asarray(value).reshape(-1) for name, value in metrics.items()}  # [K]
            rows = [{name: float(value[i]) for name, value in values.items()} for i in range(len(self.members))]
        for place, member in enumerate(self.members):
            member.moment.unrolls += 1
            member.moment.seconds = member.seconds
            if rows is not None:
                member.moment.metrics.append(rows[place])
        if rows is not None:
            self._drop_what_is_not_finite()
            rows = [member.moment.metrics[-1] for member in self.members]
        if self.members:
            self.watcher.progress(Progress(self.position[0], rows))

    def _drop_what_is_not_finite(self) -> None:
        finite, lost = self.programs.finite(self.run), []
        env_steps = self.position[0] * self.config.env_steps_per_unroll
        for place, member in enumerate(self.members):
            metrics = member.moment.metrics[-1]
            if not finite[place] or not all(map(math.isfinite, metrics.values())):
                error = NotFiniteError(env_steps, metrics, self.programs.learner_of(self.run, place))
                lost.append((member, error))
        if lost:
            dropped = [member for member, _ in lost]
            places = [place for place, member in enumerate(self.members) if member not in dropped]
            if places:
                self.run = self.programs.place(keep(self.run, places))
            self.members = [self.members[place] for place in places]
        for member, error in lost:
            self.watcher.dropped(self, member, error)

    def add_rows(self, scores: list[Row]) -> None:
        """Add each member's scores of an evaluation as a row of its metrics.csv."""
        diverged = self.programs.diverged(self.run)
        rows = [
            self._add_row(member, score, count)
            for member, score, count in zip(self.members, scores, diverged, strict=True)
        ]
        self._paced = (0.0, 0)
        self.watcher.evaluated(self, rows)

    def _add_row(self, member: Member, scores: Row, diverged: int) -> Row:
        """Add a row of metrics.csv to the member's moment. `diverged`: episodes since the start."""
        moment, config, seconds = member.moment, self.config, member.seconds
        row = {
            "evaluation": len(moment.rows) + 1,
            "env_steps": moment.unrolls * config.env_steps_per_unroll,
            "updates": (moment.unrolls - config.num_prefill_unrolls) * config.num_updates,
            **scores,
            **_means(moment.metrics),
            "diverged_episodes": diverged - moment.diverged,
            "steps_per_second": self._speed(moment.unrolls, seconds),
            "wall_seconds": seconds,
        }
        moment.rows.append(row)
        moment.metrics, moment.diverged, moment.seconds = [], diverged, seconds
        return row

    def _speed(self, unrolls: int, seconds: float) -> float:
        """Return steps per second since the last evaluation; the whole run's mean if no iteration was timed since
        this process resumed."""
        paced, iterations = self._paced if self._paced[1] else (seconds, unrolls)
        return iterations * self.config.env_steps_per_unroll / max(paced, 1e-9)

    def save(self) -> None:
        for place, member in enumerate(self.members):
            member.saver.save(self.programs.one_of(self.run, place), member.moment)

    def policy_of(self, place: int) -> DeployedPolicy:
        return self.programs.algorithm.policy(self.programs.learner_of(self.run, place).params)


def run_loop(group: Group, members: Sequence[Member], at_boundary: Callable[[Group], None] = lambda _: None) -> None:
    """Train until every member has had its last evaluation or dropped out.

    `at_boundary` is called after each unroll and each evaluation. Whatever it does with the group, even raising, does
    not change the numbers. The next unroll consumes the group's arrays.
    """
    programs, waiting = group.programs, sorted(members, key=lambda member: member.position)
    while True:
        waiting = group.admit(waiting)
        if not group.members:
            return
        unrolls, evaluations = group.position
        since = time.perf_counter()
        if group.evaluation_is_due:
            group.add_rows(programs.scores(group.run, group.seeds, evaluations))
        elif group.ended:
            return
        elif unrolls < group.config.num_prefill_unrolls:
            run = jax.block_until_ready(programs.prefill(group.run))
            group.advance(run, None, time.perf_counter() - since)
        else:
            run, metrics = jax.block_until_ready(programs.iteration(group.run))
            group.advance(run, metrics, time.perf_counter() - since)
        if group.members:
            at_boundary(group)


@dataclass(frozen=True)
class Evaluation:
    """Hold what `on_eval` gets: one row of metrics.csv, and the run at that moment."""

    row: Row
    run: RunState


@dataclass(frozen=True)
class Cadence:
    """Set how often to checkpoint: every `evals` evaluations and every `minutes` minutes. 0 turns one off."""

    evals: int = 1
    minutes: float = 15.0

    def __post_init__(self) -> None:
        if self.evals < 0 or not 0 <= self.minutes < float("inf"):
            raise UserError("checkpoint-evals and checkpoint-minutes must be 0 or more (0: not by this clock)")


class Checkpointer:
    """Save when a checkpoint is due and stop when a signal asks for it; called at every boundary of the loop.

    Several hosts save and stop together, as soon as one of them has to.
    """

    def __init__(self, cadence: Cadence, stop: StopRequest):
        self._cadence, self._stop = cadence, stop
        self._saved = time.monotonic()

    def __call__(self, group: Group) -> None:
        for member in group.members:
            if member.lock is not None:
                member.lock.require()
            member.saver.check()
        number, due = highest_of_all([self._stop.signal or 0, self._is_due(group)])
        if number and not group.ended:
            group.save()
            for member in group.members:
                member.saver.wait()
            raise KeyboardInterrupt(signal.Signals(number).name)
        if due:
            group.save()
            self._saved = time.monotonic()

    def _is_due(self, group: Group) -> bool:
        cadence, evaluations = self._cadence, group.position[1]
        if not cadence.evals and not cadence.minutes:
            return False
        by_evaluations = group.just_evaluated and cadence.evals > 0 and evaluations % cadence.evals == 0
        by_minutes = cadence.minutes > 0 and time.monotonic() - self._saved >= 60 * cadence.minutes
        return by_evaluations or by_minutes or group.ended


def _means(metrics: list[Row]) -> Row:
    """Return means over iterations. Host floats equal the device's float32 exactly, so a resumed run agrees."""
    return {name: float(jnp.mean(jnp.asarray([m[name] for m in metrics], np.float32))) for name in metrics[0]}


def _require_sound(run: RunState, config: Config) -> RunState:
    """Check that first states are sound, because environments that diverge return to them."""
    if not bool(jnp.all(jnp.isfinite(run.acting.episodes.env.obs))):
        raise UserError(f"reset of {config.env} gives observations that are not finite: repair it")
    return run
