"""Draw pusher_easy of docs/results_paper.md: DCP and CRL under MuJoCo's own engine, one seed each.

    python -m tools.docs.single_seeds collect RUNS_DIR     # run folders -> docs/results/pusher_easy.csv
    python -m tools.docs.single_seeds                      # the figure, from the CSV file alone

The runs, one per core: dcp train --env pusher_easy --method M --preset paper --physics mujoco --steps 10000000
--num-evals 20 --eval-episodes 128
"""

import csv
import sys
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

from dcp.config import Config
from dcp.envs.registry import env_of
from dcp.evaluation import evaluation_key
from dcp.files.run_folder import CONFIG_FILE, read_config_file
from dcp.lab.curves import Columns, methods_figure
from dcp.lab.run_collection import METRICS
from dcp.lab.style import save
from tools.docs.pages import RESULTS

KEPT = ("env_steps", "success_once", "time_near_goal", "final_distance", "infonce_accuracy", "cells_visited")
COUNTS = ("diverged_episodes", "eval_diverged_episodes", "steps_per_second", "wall_seconds")
STARTS = "starts_near_goal"
FEW = 10.0  # percent: below it, curves on an axis up to 100 are one line
STUDY = "pusher_easy"
RECORD = RESULTS / f"{STUDY}.csv"


def collect(runs: Path) -> None:
    rows = []
    for record in sorted(runs.glob(f"{STUDY}/*/seed_*/metrics.csv")):
        config = Config.from_dict(read_config_file(record.parent / CONFIG_FILE)["config"])
        identity, starts = {"method": config.method, "seed": config.seed}, starts_near(config)
        with record.open(newline="") as source:
            for row, near in zip(csv.DictReader(source), starts, strict=False):
                values = {name: f"{float(row[name]):.6g}" for name in (*KEPT[1:], *COUNTS) if name in row}
                rows.append({**identity, "env_steps": int(float(row["env_steps"])), **values, STARTS: f"{near:.6g}"})
    with RECORD.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def starts_near(config: Config) -> list[float]:
    """Of each evaluation's episodes, the share whose first state is within the threshold of its goal already."""
    reset = jax.jit(jax.vmap(env_of(config, config.eval_env).reset))
    firsts = [jax.random.split(evaluation_key(config.seed, number))[0] for number in range(config.num_evals)]
    return [float(reset(jax.random.split(key, config.eval_episodes)).near_goal.mean()) for key in firsts]


def read() -> dict[str, list[Columns]]:
    with RECORD.open(newline="") as file:
        rows = list(csv.DictReader(file))
    runs: dict[str, list[Columns]] = {}
    for method in ("dcp", "crl"):
        for seed in sorted({row["seed"] for row in rows if row["method"] == method}):
            mine = [row for row in rows if (row["method"], row["seed"]) == (method, seed)]
            columns = {name: np.array([float(row[name]) for row in mine]) for name in mine[0] if name != "method"}
            runs.setdefault(method, []).append(columns)
    return runs


def figure(runs: dict[str, list[Columns]]) -> Figure:
    """Draw our curves. The paper's values are of its own physics, so they do not stand here."""
    one = next(iter(runs.values()))[0]
    title = f"{STUDY}, the paper's settings but for the physics: MuJoCo's own engine"
    drawn = methods_figure(runs, f"{title}\ndotted: an arm that never touches the object")
    for axes, metric in zip(drawn.axes, METRICS, strict=True):
        axes.set_xlim(left=0)
        whole = METRICS[metric].top or env_of(Config(env=STUDY)).spec.episode_length
        axes.plot(one["env_steps"], whole * one[STARTS], color="0.35", linestyle=":", linewidth=1.5, zorder=3)
        highest = METRICS[metric].factor * max(run[metric].max() for seeds in runs.values() for run in seeds)
        if METRICS[metric].top is None or highest < FEW:
            axes.set_ylim(0, 1.05 * highest)
    return drawn


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["collect"]:
        collect(Path(arguments[1]))
    save(figure(read()), RESULTS / f"{STUDY}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
