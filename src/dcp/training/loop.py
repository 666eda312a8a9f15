"""Drives a trainer through its budget from the host, stage by stage."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dcp.config import Config
from dcp.errors import UserError
from dcp.training.stages import Stages
from dcp.training.trainer import RunState, Trainer
from dcp.types import Array, Metrics

EVALUATION_STREAM = 0x6576616C  # keeps evaluation's random stream apart from training's


@dataclass(frozen=True)
class Progress:
    """After each unroll."""

    unrolls: int
    metrics: Metrics | None  # None while the replay fills


@dataclass(frozen=True)
class Evaluation:
    """After each evaluation: one row of metrics.csv, and the run as it stands."""

    row: dict[str, float]
    run: RunState


def evaluation_points(config: Config) -> list[int]:
    """Iterations done at each evaluation: evenly spread, the last one at the end of the budget."""
    return [round((i + 1) * config.num_iterations / config.num_evals) for i in range(config.num_evals)]


def evaluation_key(seed: int, index: int) -> Array:
    """The same episodes for every method: fresh at each evaluation, decided by the seed alone."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), EVALUATION_STREAM), index)


def run_loop(
    trainer: Trainer,
    on_eval: Callable[[Evaluation], None] = lambda _: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> RunState:
    config, stages = trainer.config, Stages(trainer)
    start = time.perf_counter()
    run = _sound(stages.init(), config)
    for unroll in range(config.num_prefill_unrolls):
        run = jax.block_until_ready(stages.prefill(run))
        on_progress(Progress(unroll + 1, None))

    diverged = 0  # before the last evaluation
    done = 0
    for index, until in enumerate(evaluation_points(config)):
        since, first = time.perf_counter(), done
        metrics: list[Metrics] = []
        for done in range(first + 1, until + 1):
            run, latest = jax.block_until_ready(stages.iteration(run))
            metrics.append(latest)
            on_progress(Progress(config.num_prefill_unrolls + done, latest))
        seconds = time.perf_counter() - since
        scores = stages.evaluate(run.learner.params, evaluation_key(config.seed, index))
        unrolls = config.num_prefill_unrolls + done
        row = {
            "evaluation": index + 1,
            "env_steps": unrolls * config.env_steps_per_unroll,
            "updates": done * config.updates_per_iteration,
            **{name: float(value) for name, value in scores.items()},
            **{name: float(jnp.mean(jnp.stack([m[name] for m in metrics]))) for name in metrics[0]},
            "diverged_episodes": _diverged(run) - diverged,
            "steps_per_second": (until - first) * config.env_steps_per_unroll / seconds,
            "wall_seconds": time.perf_counter() - start,
        }
        diverged = _diverged(run)
        on_eval(Evaluation(row, run))
    return run


def _diverged(run: RunState) -> int:
    """Episodes since the start that ended because their environment diverged."""
    return int(jnp.sum(run.acting.episodes.diverged))


def _sound(run: RunState, config: Config) -> RunState:
    """What diverges goes back to a first state, so these must be good."""
    if not bool(jnp.all(jnp.isfinite(run.acting.episodes.env.obs))):
        raise UserError(f"reset of {config.env} gives observations that are not finite: mend it")
    return run
