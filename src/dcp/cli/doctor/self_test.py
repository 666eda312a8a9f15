"""Trains for a moment, and asks the policy that was saved whether it is the one that was trained."""

import math
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from dcp.cli.doctor.check import Check, ProbeError, in_a_process

OVERRIDES = {"depth": 1}  # of preset smoke
# Nearly all of the time is XLA's: the programs run for a moment only, so they need not be good ones.
COMPILER = "JAX_DISABLE_MOST_OPTIMIZATIONS"


def self_test() -> Iterator[Check]:
    start = time.perf_counter()
    # Ours to remove, whatever becomes of the child.
    with tempfile.TemporaryDirectory(prefix="dcp-doctor-") as folder:
        try:
            seen = in_a_process(train_a_moment, folder, timeout=900, env={COMPILER: os.environ.get(COMPILER, "1")})
        except ProbeError as error:
            advice = "See the rows above; if all of them are ok, report this."
            yield Check("training", "problem", f"the self-test failed ({error})", advice)
            return
    seconds = time.perf_counter() - start
    work = f"{seen['steps']:,} steps and {seen['updates']:,} updates in {seconds:.0f} s"
    found = f"{work}; every number finite; the saved policy acts as the trained one"
    yield Check("training", "ok", found)


def train_a_moment(folder: str) -> dict[str, Any]:
    import numpy as np

    from dcp.policies.policy_file import load_policy
    from dcp.presets import preset_config
    from dcp.runs.train import train

    run = train(preset_config("smoke", **OVERRIDES), runs_dir=folder, display="none")
    for row in run.rows:
        for name, value in row.items():
            if not math.isfinite(value):
                raise ProbeError(f"{name} is {value}")
    spec = run.policy.spec
    states, goals = np.ones((4, spec.state_size)), np.linspace(0.0, 3.0, 4 * spec.goal_size).reshape(4, -1)
    trained, saved = run.policy(states, goals), load_policy(run.folder)(states, goals)
    if not np.all(np.isfinite(trained)) or not np.array_equal(trained, saved):
        raise ProbeError(f"the saved policy acts as {saved.tolist()}, the trained one as {trained.tolist()}")
    return {"steps": run.rows[-1]["env_steps"], "updates": run.rows[-1]["updates"]}
