"""Run every study that docs/results*.md report, two at a time, one per core; skips what is done.

    python -m tools.docs.point_maze_runs run --out /somewhere/outside   # about an hour and a half on two cores
    python -m tools.docs.point_maze_runs collect --out /somewhere/outside   # -> docs/results/point_mazes.csv

Every run is `--preset demo` with the overrides below and nothing else.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from tools.docs.pages import RESULTS

CSV = RESULTS / "point_mazes.csv"
SEEDS = range(5)

U: dict[str, dict[str, Any]] = {
    "dcp": {"method": "dcp"},
    "dcp, paper's share 0": {"method": "dcp", "final_goal_share": 0.0},
    "crl": {"method": "crl"},
    "ssgc": {"method": "ssgc"},
    "ssgc, paper's share 0": {"method": "ssgc", "final_goal_share": 0.0},
    "dcp_no_pool": {"method": "dcp_no_pool"},
    "crl-commanded": {"method": "crl", "actor_goal": "commanded"},
    "dcp-future": {"method": "dcp", "actor_goal": "future"},
}
# Around the paper's literal point (one episode of memory, inner product, share 0), one switch at a time.
SWITCHES: dict[str, dict[str, Any]] = {
    "paper": {},
    "memory 1/4": {"pool_refresh_steps": 62},
    "memory 4": {"pool_refresh_steps": 1000},
    "cosine": {"score": "cosine"},
    "energy": {"score": "energy"},
    "on_path": {"score": "on_path"},
    "share 0.25": {"final_goal_share": 0.25},
    "share 0.5": {"final_goal_share": 0.5},
    "share 0.75": {"final_goal_share": 0.75},
    "share 1": {"final_goal_share": 1.0},
}
BIG: dict[str, dict[str, Any]] = {
    f"{method}, {switch}": {"method": method, "final_goal_share": 0.0, **overrides}
    for switch, overrides in SWITCHES.items()
    for method in ("dcp", "ssgc")
} | {"crl": {"method": "crl"}, "dcp_no_pool": {"method": "dcp_no_pool"}}

STUDIES = {
    "point_u_maze": ({"env": "point_u_maze", "eval_env": "point_u_maze_eval"}, U),
    "point_big_maze": ({"env": "point_big_maze", "eval_env": "point_big_maze", "steps": 1_500_000}, BIG),
}


def runs_dir(out: Path, study: str, label: str) -> Path:
    return out / study / label.replace(", ", "__").replace(" ", "_").replace("/", "of").replace("'", "")


def jobs(out: Path) -> list[tuple[str, str, int, dict[str, Any], Path]]:
    """Study by study and seed by seed, so that a stop leaves every row with the same seeds."""
    return [
        (study, label, seed, {**base, **overrides, "seed": seed}, runs_dir(out, study, label))
        for study, (base, variants) in STUDIES.items()
        for seed in SEEDS
        for label, overrides in variants.items()
    ]


def metrics_file(settings: dict[str, Any], folder: Path) -> Path:
    return folder / settings["env"] / settings["method"] / f"seed_{settings['seed']}" / "metrics.csv"


def is_done(settings: dict[str, Any], folder: Path) -> bool:
    path = metrics_file(settings, folder)
    if not path.exists() or len(path.read_text().splitlines()) != 11:  # a header and ten evaluations
        return False
    stored = json.loads((path.parent / "config.json").read_text())["config"]
    return all(stored[name] == value for name, value in settings.items())


def run_all(out: Path) -> None:
    cores: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)

    def run_one(job: tuple[str, str, int, dict[str, Any], Path]) -> None:
        study, label, seed, settings, folder = job
        if is_done(settings, folder):
            return
        core = cores.get()
        flags = [f for name, value in settings.items() for f in (f"--{name.replace('_', '-')}", str(value))]
        command = ["taskset", "-c", str(core), sys.executable, "-m", "dcp.cli.main", "train", "--preset", "demo"]
        command += [*flags, "--runs-dir", str(folder), "--overwrite", "--no-plots", "--display", "none"]
        environment = os.environ | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
        try:
            result = subprocess.run(command, env=environment, capture_output=True, text=True)
        finally:
            cores.put(core)
        print(f"{study} | {label} | seed {seed}: {(result.stdout or result.stderr).splitlines()[:1]}", flush=True)

    with ThreadPoolExecutor(cores.qsize()) as pool:
        list(pool.map(run_one, jobs(out)))


def collect(out: Path) -> None:
    """Every evaluation of every finished run, with what each row needs and no more."""
    keep = ["env_steps", "time_near_goal", "success_once", "critic_loss", "infonce_accuracy", "cells_visited"]
    keep += ["pool_spread", "state_to_subgoal", "subgoal_to_goal", "time_at_subgoal", "train_near_goal", "wall_seconds"]
    with CSV.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["study", "label", "seed", *keep])
        for study, label, seed, settings, folder in sorted(jobs(out), key=lambda job: (job[0], job[1], job[2])):
            if not is_done(settings, folder):
                print(f"missing: {study} | {label} | seed {seed}")
                continue
            for row in csv.DictReader(metrics_file(settings, folder).open()):
                values = [row.get(name, "") for name in keep]
                writer.writerow([study, label, seed, *(f"{float(v):.6g}" if v else "" for v in values)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "collect"])
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    {"run": run_all, "collect": collect}[arguments.what](arguments.out)
