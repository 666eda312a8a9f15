"""A process that trains the configs on its stdin, one JSON object a line, and answers each with one line of JSON.

It is told how to compile by its environment (see test_random_configs.py): each config is another program, which runs
for a moment only.
"""

import json
import sys
import tempfile
import time
import traceback
from typing import Any

import jax
import numpy as np

from dcp.config import Config
from dcp.training.run import TrainedRun, train


def not_finite(run: TrainedRun) -> list[str]:
    """Names of the numbers that are none: of the row, and of all that the run holds."""
    bad = [name for name, value in run.rows[-1].items() if not np.isfinite(value)]
    state = run.state._replace(key=None)
    for path, leaf in jax.tree.leaves_with_path(state):
        if not np.all(np.isfinite(np.asarray(leaf))):
            bad.append(jax.tree_util.keystr(path))
    return bad


def answer(values: dict[str, Any]) -> dict[str, Any]:
    since = time.process_time()
    with tempfile.TemporaryDirectory() as runs:
        try:
            run = train(Config.from_dict(values), runs_dir=runs, display="none")
            problem = ", ".join(not_finite(run))
            rows, updates = len(run.rows), run.rows[-1]["updates"]
        except Exception:
            return {"problem": traceback.format_exc()}
    return {"problem": problem, "rows": rows, "updates": updates, "cpu_seconds": time.process_time() - since}


if __name__ == "__main__":
    for index, line in enumerate(sys.stdin):
        print(json.dumps(answer(json.loads(line))), flush=True)
        if index % 20 == 19:
            jax.clear_caches()  # 200 configs' programs would take gigabytes
