"""Train a run through its budget on the host: unroll, learn, evaluate, add a row.

Everything that people do around a run (checkpoints, folders, displays) is a `Callback`.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dcp.algorithm import RunState, Stages, iteration, prefill
from dcp.config import Config, Settings
from dcp.errors import UserError
from dcp.evaluation import evaluation_key
from dcp.learner import LearnerParams, LearnerState
from dcp.types import Array, named_arrays

Row = dict[str, float]


@dataclass(frozen=True)
class Budget:
    """Hold a budget that a run had before it was raised."""

    steps: int
    num_evals: int


def evaluation_points(config: Config, earlier: tuple[Budget, ...] = ()) -> list[int]:
    """Return the iterations done at each evaluation: evenly spaced in each budget, the last one at its end."""
    points: list[int] = []
    start = 0
    for budget in (*earlier, Budget(config.steps, config.num_evals)):
        end = iterations_of(config, budget.steps)
        count = budget.num_evals - len(points)
        points += [start + round((i + 1) * (end - start) / count) for i in range(count)]
        start = end
    return points


def iterations_of(config: Config, steps: int) -> int:
    """Return the iterations of another budget. Not by a `Config`, which would check the present evaluations too."""
    return Settings(**{**vars(config), "steps": steps}).num_iterations


@dataclass
class HostState:
    """Hold all that a run needs to resume between two unrolls, besides its arrays (the `RunState`)."""

    unrolls: int = 0  # RunState.unrolls, as a number on the host
    rows: list[Row] = field(default_factory=list)  # of metrics.csv, one per evaluation
    metrics: list[Row] = field(default_factory=list)  # one per iteration since the last evaluation
    diverged: int = 0  # episodes that had diverged by the last evaluation
    seconds: float = 0.0  # of work so far, in all processes that took part


class Callback:
    """Receive a run's events. Override the methods that you need; none of them changes the run's numbers."""

    def unrolled(self, host: HostState) -> None:
        """Take note of an unroll; `host.metrics[-1]` is the last iteration's, once the replay is filled."""

    def evaluated(self, run: RunState, row: Row) -> None:
        """Take a row of metrics.csv. The run is valid only within the call, because its buffers are reused."""

    def boundary(self, run: RunState, host: HostState) -> None:
        """Save or stop here, after an unroll or an evaluation. An exception ends the run."""


class LoopParts(Stages, Protocol):
    """Declare what the loop calls: `machine.programs.Programs`."""

    def evaluate(self, params: LearnerParams, key: Array) -> Row: ...


def train_loop(
    programs: LoopParts, config: Config, points: list[int], run: RunState, host: HostState, callback: Callback
) -> RunState:
    """Train until the last evaluation. `points`: the iterations after which the evaluations are due."""
    recorder = Recorder(config, host)
    while len(host.rows) < len(points):
        if host.unrolls - config.num_prefill_unrolls == points[len(host.rows)]:
            scores = programs.evaluate(run.learner.deployed, evaluation_key(config.seed, len(host.rows)))
            row = recorder.add_row(scores, int(jnp.sum(run.acting.episodes.diverged)))
            callback.evaluated(run, row)
        elif host.unrolls < config.num_prefill_unrolls:
            run = jax.block_until_ready(prefill(programs, run))
            recorder.count_unroll()
            callback.unrolled(host)
        else:
            since = time.perf_counter()
            run, metrics = jax.block_until_ready(iteration(programs, run))
            metrics = {name: float(value) for name, value in metrics.items()}
            recorder.count_unroll(metrics, time.perf_counter() - since)
            if not recorder.is_finite or not bool(all_finite(run.learner)):
                raise NotFiniteError(recorder.env_steps, host.metrics[-1], run.learner)
            callback.unrolled(host)
        callback.boundary(run, host)
    return run


class Recorder:
    """Count a run's unrolls and seconds, and make the rows of its metrics.csv."""

    def __init__(self, config: Config, host: HostState):
        self.config, self.host = config, host
        self._began = time.perf_counter() - host.seconds
        self._iterations, self._paced = 0, 0.0  # and their seconds, since the last evaluation in this process

    @property
    def env_steps(self) -> int:
        return self.host.unrolls * self.config.env_steps_per_unroll

    @property
    def is_finite(self) -> bool:
        return all(map(math.isfinite, self.host.metrics[-1].values()))

    def count_unroll(self, metrics: Row | None = None, seconds: float = 0.0) -> None:
        """Count an unroll. Once the replay is filled: the iteration's metrics, and the seconds that it took."""
        self.host.unrolls += 1
        self.host.seconds = time.perf_counter() - self._began
        if metrics is not None:
            self.host.metrics.append(metrics)
            self._iterations, self._paced = self._iterations + 1, self._paced + seconds

    def add_row(self, scores: Row, diverged: int) -> Row:
        """Return the row of an evaluation, added to the host's. `diverged`: episodes since the start of the run."""
        host, config, seconds = self.host, self.config, time.perf_counter() - self._began
        row = {
            "evaluation": len(host.rows) + 1,
            "env_steps": self.env_steps,
            "updates": (host.unrolls - config.num_prefill_unrolls) * config.num_updates,
            **scores,
            **_means(host.metrics),
            "diverged_episodes": diverged - host.diverged,
            "steps_per_second": self._speed(seconds),
            "wall_seconds": seconds,
        }
        host.rows.append(row)
        host.metrics, host.diverged, host.seconds = [], diverged, seconds
        self._iterations, self._paced = 0, 0.0
        return row

    def _speed(self, seconds: float) -> float:
        """Return steps per second since the last evaluation; the whole run's mean if this process timed none."""
        iterations, paced = (self._iterations, self._paced) if self._iterations else (self.host.unrolls, seconds)
        return iterations * self.config.env_steps_per_unroll / max(paced, 1e-9)


def _means(metrics: list[Row]) -> Row:
    """Return means over iterations. Host floats equal the device's float32 exactly, so a resumed run agrees.

    Iterations before a run was resumed may lack metrics that this version has, and have others.
    """
    values: dict[str, list[float]] = {}
    for of_one in metrics:
        for name, value in of_one.items():
            values.setdefault(name, []).append(value)
    return {name: float(jnp.mean(jnp.asarray(each, np.float32))) for name, each in values.items()}


@dataclass(frozen=True)
class Evaluation:
    """Hold what `on_eval` gets: one row of metrics.csv, and the run at that moment."""

    row: Row
    run: RunState


OnEval = Callable[[Evaluation], None]


def require_sound_start(run: RunState, config: Config) -> RunState:
    """Check that first states are finite, because environments that diverge return to them."""
    if not bool(jnp.all(jnp.isfinite(run.acting.episodes.env.obs))):
        raise UserError(f"reset of {config.env} gives observations that are not finite: repair it")
    return run


class NotFiniteError(Exception):
    """Stop the run on NaN or inf in a loss or in the learner before it is checkpointed."""

    def __init__(self, env_steps: int, metrics: Row, learner: LearnerState):
        self.env_steps, self.metrics = env_steps, metrics
        sizes = {name: (int(np.sum(~np.isfinite(x))), np.size(x)) for name, x in named_arrays(learner).items()}
        self.arrays = {name: f"{count} of {size} numbers not finite" for name, (count, size) in sizes.items() if count}
        first = [f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value)]
        first += [f"{name} has {what}" for name, what in self.arrays.items()]
        super().__init__(f"{first[0]} at {env_steps:,} environment steps")

    def as_json(self) -> dict[str, object]:
        """Return the findings for JSON, with numbers that are not finite as words."""
        metrics = {name: value if math.isfinite(value) else str(value) for name, value in self.metrics.items()}
        return {"env_steps": self.env_steps, "metrics": metrics, "arrays_not_finite": self.arrays}


@jax.jit
def all_finite(tree: Any) -> Array:
    """Return whether all numbers are finite: parameters, Adam's moments, what the critic carries."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
