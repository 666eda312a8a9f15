"""DCP and CRL at the paper's settings, one seed each: figures and tables of docs/results_physics.md.

    python -m tools.docs.single_seeds collect STUDY RUNS_DIR     # run folders -> docs/results/STUDY.csv
    python -m tools.docs.single_seeds                            # figures and tables, from the CSV files alone

The runs, one a core: dcp train --env ENV --method M --preset paper with the flags of STUDIES.
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
from dcp.lab.paper_values import Published, checkpoint
from dcp.lab.run_collection import METRICS
from dcp.lab.style import colours, save
from tools.docs.pages import RESULTS, put

KEPT = ("env_steps", "success_once", "time_near_goal", "final_distance", "infonce_accuracy", "cells_visited")
COUNTS = ("diverged_episodes", "eval_diverged_episodes", "steps_per_second", "wall_seconds")
STARTS = "starts_near_goal"
PAPER_STEPS = 10_000_000
FEW = 10.0  # percent: below it, curves on an axis up to 100 are one line
STUDIES = {  # environment: what its title says; its flags
    "ant_u_maze": "the paper's settings",  # --steps 5000000 --num-evals 10 --devices 1
    "pusher_easy": "the paper's settings, MuJoCo's own engine",
    # --physics mujoco --steps 10000000 --num-evals 20 --eval-episodes 128
}


def record_of(study: str) -> Path:
    return RESULTS / f"{study}.csv"


def collect(study: str, runs: Path) -> None:
    rows = []
    for record in sorted(runs.glob(f"{study}/*/seed_*/metrics.csv")):
        config = Config.from_dict(read_config_file(record.parent / CONFIG_FILE)["config"])
        identity, starts = {"method": config.method, "seed": config.seed}, starts_near(config)
        with record.open(newline="") as source:
            for row, near in zip(csv.DictReader(source), starts, strict=False):
                values = {name: f"{float(row[name]):.6g}" for name in (*KEPT[1:], *COUNTS) if name in row}
                rows.append({**identity, "env_steps": int(float(row["env_steps"])), **values, STARTS: f"{near:.6g}"})
    with record_of(study).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def starts_near(config: Config) -> list[float]:
    """Of each evaluation's episodes, the share whose first state is within the threshold of its goal already."""
    reset = jax.jit(jax.vmap(env_of(config, config.eval_env).reset))
    firsts = [jax.random.split(evaluation_key(config.seed, number))[0] for number in range(config.num_evals)]
    return [float(reset(jax.random.split(key, config.eval_episodes)).near_goal.mean()) for key in firsts]


def read(study: str) -> dict[str, list[Columns]]:
    with record_of(study).open(newline="") as file:
        rows = list(csv.DictReader(file))
    runs: dict[str, list[Columns]] = {}
    for method in ("dcp", "crl"):
        for seed in sorted({row["seed"] for row in rows if row["method"] == method}):
            mine = [row for row in rows if (row["method"], row["seed"]) == (method, seed)]
            columns = {name: np.array([float(row[name]) for row in mine]) for name in mine[0] if name != "method"}
            runs.setdefault(method, []).append(columns)
    return runs


def published(metric: str, study: str, method: str) -> Published:
    value = checkpoint(metric, study, method, PAPER_STEPS)
    assert value is not None
    return value


def figure(study: str, runs: dict[str, list[Columns]]) -> Figure:
    """Our curves, and the paper's values at 10M with their intervals."""
    one = next(iter(runs.values()))[0]
    dotted = "\ndotted: an arm that never touches the object" if STARTS in one else ""
    drawn = methods_figure(runs, f"{study}, {STUDIES[study]}; dots with bars: the paper at 10M, five seeds{dotted}")
    colour_of = colours(list(runs))
    for axes, metric in zip(drawn.axes, METRICS, strict=True):
        for shift, method in enumerate(runs):
            mean, half = published(metric, study, method)
            at = PAPER_STEPS * (1.0 - 0.012 * shift)
            axes.errorbar(at, mean, half, color=colour_of[method], fmt="o", capsize=3, markersize=4)
        axes.set_xlim(0, 1.03 * PAPER_STEPS)
        if STARTS in one:
            whole = METRICS[metric].top or env_of(Config(env=study)).spec.episode_length
            axes.plot(one["env_steps"], whole * one[STARTS], color="0.35", linestyle=":", linewidth=1.5, zorder=3)
        highest = METRICS[metric].factor * max(run[metric].max() for seeds in runs.values() for run in seeds)
        highest = max(highest, *(sum(published(metric, study, m)) for m in runs))
        if METRICS[metric].top is None or highest < FEW:
            axes.set_ylim(0, 1.05 * highest)
    return drawn


def table(study: str, runs: dict[str, list[Columns]]) -> str:
    head = ["environment steps", *(f"{m}: {what}" for m in runs for what in ("success (%)", "time near goal"))]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    first = {m: seeds[0] for m, seeds in runs.items()}
    starts = next(iter(first.values())).get(STARTS)  # the same episodes for both; records of before have none
    if starts is not None:
        lines = [f"{line[:-1]}| {end} |" for line, end in zip(lines, ("starts near the goal (%)", "---"), strict=True)]
    for i in range(min(len(run["env_steps"]) for run in first.values())):
        cells = [f"{int(next(iter(first.values()))['env_steps'][i]):,}"]
        for run in first.values():
            cells += [f"{100 * run['success_once'][i]:.1f}", f"{run['time_near_goal'][i]:.1f}"]
        cells += [] if starts is None else [f"{100 * starts[i]:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    paper = [f"{mean} ± {half}" for m in runs for mean, half in (published(metric, study, m) for metric in METRICS)]
    paper += [] if starts is None else [""]
    lines.append("| " + " | ".join(["the paper, 10,000,000 (five seeds)", *paper]) + " |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["collect"]:
        collect(arguments[1], Path(arguments[2]))
    for study in STUDIES:
        runs = read(study)
        save(figure(study, runs), RESULTS / f"{study}.png")
        put(study, table(study, runs))


if __name__ == "__main__":
    main(sys.argv[1:])
