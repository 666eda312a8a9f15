"""Drives a trainer through its budget from the host, one jitted call an iteration."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dcp.config import Config
from dcp.training.compiler import compiler_options
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
    config = trainer.config
    prefill = jax.jit(trainer.prefill, donate_argnums=0)
    iterate = jax.jit(trainer.iteration, donate_argnums=0, compiler_options=compiler_options())
    evaluate = jax.jit(trainer.evaluate)
    start = time.perf_counter()
    run = jax.jit(trainer.init)()
    for unroll in range(config.num_prefill_unrolls):
        run = jax.block_until_ready(prefill(run))
        on_progress(Progress(unroll + 1, None))

    done = 0
    for index, until in enumerate(evaluation_points(config)):
        since, first = time.perf_counter(), done
        metrics: list[Metrics] = []
        for done in range(first + 1, until + 1):
            run, latest = jax.block_until_ready(iterate(run))
            metrics.append(latest)
            on_progress(Progress(config.num_prefill_unrolls + done, latest))
        seconds = time.perf_counter() - since
        scores = evaluate(run.learner.params, evaluation_key(config.seed, index))
        unrolls = config.num_prefill_unrolls + done
        row = {
            "evaluation": index + 1,
            "env_steps": unrolls * config.env_steps_per_unroll,
            "updates": done * config.updates_per_iteration,
            **{name: float(value) for name, value in scores.items()},
            **{name: float(jnp.mean(jnp.stack([m[name] for m in metrics]))) for name in metrics[0]},
            "steps_per_second": (until - first) * config.env_steps_per_unroll / seconds,
            "wall_seconds": time.perf_counter() - start,
        }
        on_eval(Evaluation(row, run))
    return run
