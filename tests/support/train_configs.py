"""A process that trains the configs on its stdin, one JSON object a line, and answers each with one line of JSON.

`python -m tests.support.train_configs whole` trains each from start to end, with evaluation, checkpoint and folder;
`iteration` fills the replay and does one iteration, which compiles less. How to compile is told by the environment
(see test_random_configs.py): each config is another program, which runs for a moment only.
"""

import json
import sys
import tempfile
import traceback
from typing import Any

import jax
import numpy as np

from dcp.algorithm import RunState, make_algorithm
from dcp.config import Config
from dcp.machine.programs import Programs
from dcp.runs.training import train


def not_finite(row: dict[str, Any], state: RunState) -> list[str]:
    """Names of the numbers that are none: of the row, and of all that the run holds."""
    bad = [name for name, value in row.items() if not np.isfinite(value)]
    for path, leaf in jax.tree.leaves_with_path(state._replace(key=None)):
        if not np.all(np.isfinite(np.asarray(leaf))):
            bad.append(jax.tree_util.keystr(path))
    return bad


def whole(config: Config) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as runs:
        run = train(config, runs_dir=runs, display="none")
    return {"not_finite": not_finite(run.rows[-1], run.state), "updates": run.rows[-1]["updates"]}


def iteration(config: Config) -> dict[str, Any]:
    stages = Programs(make_algorithm(config))
    run = stages.init()
    for _ in range(stages.algorithm.config.num_prefill_unrolls):
        run = stages.prefill(run)
    run, metrics = stages.iteration(run)
    return {"not_finite": not_finite(metrics, run), "updates": stages.algorithm.config.num_updates}


def answer(values: dict[str, Any], how: str) -> dict[str, Any]:
    try:
        return {"problem": "", **{"whole": whole, "iteration": iteration}[how](Config.from_dict(values))}
    except Exception:
        return {"problem": traceback.format_exc()}


if __name__ == "__main__":
    for index, line in enumerate(sys.stdin):
        print(json.dumps(answer(json.loads(line), sys.argv[1])), flush=True)
        if index % 20 == 19:
            jax.clear_caches()  # 200 configs' programs would take gigabytes
