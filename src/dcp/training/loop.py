"""Drives a trainer through its budget from the host, stage by stage."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from dcp.config import Config
from dcp.errors import UserError
from dcp.evaluation.program import evaluation_key
from dcp.training.health import require_finite
from dcp.training.schedule import evaluation_points
from dcp.training.stages import Stages
from dcp.training.trainer import RunState, Trainer
from dcp.types import Metrics

Row = dict[str, float]


@dataclass(frozen=True)
class Progress:
    """After each unroll."""

    unrolls: int
    metrics: Metrics | None  # None while the replay fills


@dataclass(frozen=True)
class Evaluation:
    """After each evaluation: one row of metrics.csv, and the run as it stands."""

    row: Row
    run: RunState


@dataclass
class Moment:
    """A run between two unrolls: all that its continuation depends on."""

    run: RunState
    unrolls: int = 0  # run.unrolls, on the host
    rows: list[Row] = field(default_factory=list)  # of metrics.csv, one an evaluation
    metrics: list[Row] = field(default_factory=list)  # one an iteration since the last evaluation
    diverged: int = 0  # episodes that had diverged by the last evaluation
    seconds: float = 0.0  # of work so far, over all processes that have had a part in it


def run_loop(
    trainer: Trainer,
    on_eval: Callable[[Evaluation], None] = lambda _: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    at_boundary: Callable[[Moment], None] = lambda _: None,
    start: Callable[[Stages], Moment] | None = None,
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


def begin(stages: Stages) -> Moment:
    return Moment(require_sound(stages.init(), stages.trainer.config))


class _Loop:
    def __init__(self, trainer: Trainer, points: list[int], started: float):
        self.trainer, self.config, self.stages = trainer, trainer.config, Stages(trainer)
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
