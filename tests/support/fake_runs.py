"""Run folders without training: a config and the numbers that a test wants to see again."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dcp.config import SCHEMA_VERSION, Config
from dcp.files.run_folder import CONFIG_FILE, METRICS_FILE
from dcp.lab import paper_values
from dcp.presets import preset_overrides


def write_run(
    runs: Path,
    env: str,
    method: str,
    seed: int,
    steps: Sequence[float],
    success: Sequence[float],  # fractions
    near: Sequence[float] | None = None,
    wall: Sequence[float] | None = None,
    **settings: Any,
) -> Path:
    """<runs>/<env>/<method>/seed_<n> with one row an evaluation, by the paper's settings and these. -> the folder"""
    budget = settings.pop("budget", int(steps[-1]) if len(steps) else 1_000_000)
    settings = preset_overrides("paper", env, method) | settings | {"steps": max(budget, 1)}
    config = Config(env=env, method=method, seed=seed, **settings)
    folder = runs / config.run_path
    folder.mkdir(parents=True)
    content = {"schema_version": SCHEMA_VERSION, "config": asdict(config), "earlier_budgets": [], "versions": {}}
    (folder / CONFIG_FILE).write_text(json.dumps(content))
    columns: Mapping[str, Sequence[float]] = {
        "evaluation": range(1, len(steps) + 1),
        "env_steps": steps,
        "success_once": success,
        "time_near_goal": near if near is not None else [1000.0 * value for value in success],
        "wall_seconds": wall if wall is not None else [step / 1000.0 for step in steps],
    }
    with (folder / METRICS_FILE).open("w", newline="") as file:
        writer = csv.writer(file)
        if len(steps):
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    return folder


def five_seeds(mean: float, half_width: float) -> np.ndarray:
    """[5] with this mean and this 95% t-interval: one seed above, four alike, as in 12.5, 0, 0, 0, 0.

    With one seed at mean + 4 d and four at mean - d: s^2 = (16 + 4) d^2 / 4 = 5 d^2, half width = 2.776 d.
    """
    d = half_width / 2.7764451051977987
    return mean + d * np.array([4.0, -1.0, -1.0, -1.0, -1.0])


def write_paper(runs: Path, with_spread: bool) -> None:
    """Five seeds of three methods on nine environments: the published means, with the published intervals or none."""
    for environment in paper_values.ENVIRONMENTS:
        for method in ("dcp", "crl", "ssgc"):
            steps = [
                at
                for at in paper_values.CHECKPOINTS
                if paper_values.checkpoint("success_once", environment, method, at)
            ]
            columns = {}
            for metric in ("success_once", "time_near_goal"):
                published = [paper_values.checkpoint(metric, environment, method, at) for at in steps]
                columns[metric] = [five_seeds(mean, spread if with_spread else 0.0) for mean, spread in published]
            for seed in range(5):
                success = [values[seed] / 100 for values in columns["success_once"]]
                near = [values[seed] for values in columns["time_near_goal"]]
                write_run(runs, environment, method, seed, steps, success, near, episode_length=1000)
