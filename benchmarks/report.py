"""What `dcp report` costs: 135 runs (nine environments, three methods, five seeds) of 50 evaluations each.

Runs the command itself in a process of its own, so its imports count. Bars: 30 s on two cores, 10 MB.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from timing import report

from dcp.config import SCHEMA_VERSION, Config
from dcp.lab.paper_values import ENVIRONMENTS

METHODS, SEEDS, EVALUATIONS = ("dcp", "crl", "ssgc"), range(5), 50
BUDGET = 100_000_000
COLUMNS = ("evaluation", "env_steps", "success_once", "time_near_goal", "wall_seconds")


def write_run(folder: Path, env: str, method: str, seed: int, evaluations: int = EVALUATIONS, of: int = EVALUATIONS):
    """A run folder whose numbers look like learning: a saturating curve, slower or faster, with a seed's own noise."""
    folder.mkdir(parents=True)
    config = Config(env=env, method=method, seed=seed, steps=BUDGET, num_evals=of, episode_length=1000)
    stored = {"schema_version": SCHEMA_VERSION, "config": json.loads(config.to_json()), "versions": {}}
    (folder / "config.json").write_text(json.dumps(stored))
    rng = np.random.default_rng([ENVIRONMENTS.index(env) if env in ENVIRONMENTS else 9, METHODS.index(method), seed])
    at = np.arange(1, evaluations + 1) / of
    reach = (0.85, 0.6, 0.7)[METHODS.index(method)] * (1.0 - 0.07 * (len(env) % 9)) + rng.normal(0.0, 0.05)
    success = np.clip(reach * (1.0 - np.exp(-4.0 * at)) + rng.normal(0.0, 0.02, evaluations), 0.0, 1.0)
    seconds = (9.0 + rng.normal(0.0, 0.6)) * 3600 * at
    rows = zip(range(1, evaluations + 1), np.round(at * BUDGET), success, 700 * success**1.5, seconds, strict=True)
    lines = [",".join(COLUMNS), *(",".join(f"{value:.10g}" for value in row) for row in rows)]
    (folder / "metrics.csv").write_text("\n".join([*lines, ""]))


def write_runs(root: Path) -> None:
    for env in ENVIRONMENTS:
        for method in METHODS:
            for seed in SEEDS:
                write_run(root / env / method / f"seed_{seed}", env, method, seed)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=Path, help="write the runs and the report here, and leave them")
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as scratch:
        root = keep or Path(scratch)
        write_runs(root / "runs")
        command = [sys.executable, "-m", "dcp.cli.main", "report", str(root / "runs"), "--out", str(root / "report")]
        start = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - start
        html_mb = (root / "report" / "report.html").stat().st_size / 1e6
    report(seconds=seconds, html_mb=html_mb, runs=len(ENVIRONMENTS) * len(METHODS) * len(SEEDS))


if __name__ == "__main__":
    main()
