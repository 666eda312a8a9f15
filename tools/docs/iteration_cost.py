"""Measure what an iteration costs one core, so that runs of different hours and machines can be compared by minutes.

A run's own clock also counts what ran beside it. Here every setting is measured in turns, in one process on one core,
by that process's clock, and the least of the rounds counts. Compilation and evaluations are left out.
"""

import csv
import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from dcp.algorithm import make_algorithm
from dcp.config import Config, Settings
from dcp.grid.grid_file import expand, read_grid
from dcp.machine.programs import Programs


class Cost(NamedTuple):
    prefill_seconds: float
    iteration_seconds: float
    updates: int  # of one iteration

    def minutes(self, updates: np.ndarray) -> np.ndarray:
        """Return the minutes of one core from the start of a run to each of these counts of updates."""
        return (self.prefill_seconds + self.iteration_seconds * updates / self.updates) / 60.0


def settings_of(grid: Path, *where: str) -> dict[str, Settings]:
    """-> the runs of a grid file by their folder, one for all seeds, with a replay that just holds the windows"""
    runs = expand(read_grid(grid), where)
    return {
        run.path.rsplit("/", 1)[0]: replace(run.settings, replay_rows=2 * run.settings.min_replay_rows) for run in runs
    }


def measure(settings: dict[str, Settings], rounds: int = 5) -> dict[str, Cost]:
    """-> the cost of each setting. To be called before JAX has started: it takes one core, as a run of a grid does."""
    os.environ["NPROC"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    made = {name: _parts(Config(**asdict(one))) for name, one in settings.items()}
    unrolls, iterations = {name: np.inf for name in made}, {name: np.inf for name in made}
    for _ in range(rounds):
        for name, (unroll, iteration, _) in made.items():
            unrolls[name] = min(unrolls[name], _seconds(unroll))
            iterations[name] = min(iterations[name], _seconds(iteration))
    return {
        name: Cost(config.num_prefill_unrolls * unrolls[name], iterations[name], config.num_updates)
        for name, (_, _, config) in made.items()
    }


def _parts(config: Config) -> tuple[Callable[[], Any], Callable[[], Any], Config]:
    """-> one unroll and one whole iteration, compiled, always from the same filled replay; the resolved config"""
    stages = Programs(make_algorithm(config), donate=False)
    config, run = stages.algorithm.config, stages.init()
    for _ in range(config.num_prefill_unrolls):
        run = stages.prefill(run)
    jax.block_until_ready(stages.iteration(run))
    return lambda: stages.prefill(run), lambda: stages.iteration(run), config


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    jax.block_until_ready(work())
    return time.process_time() - start


def write(costs: dict[str, Cost], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["setting", *Cost._fields])
        for name, (prefill, iteration, updates) in costs.items():
            writer.writerow([name, f"{prefill:.4g}", f"{iteration:.4g}", updates])


def read(path: Path) -> dict[str, Cost]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        row["setting"]: Cost(float(row["prefill_seconds"]), float(row["iteration_seconds"]), int(row["updates"]))
        for row in rows
    }
