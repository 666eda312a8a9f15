"""The tiny run on one and on two virtual devices, in a process of its own: `python -m tests.support.two_devices`.

Prints one line of JSON that test_devices.py judges.
"""

import json
import sys
import tempfile
from contextlib import suppress

import jax
import jax.numpy as jnp
import numpy as np

from dcp.algorithm import RunState, make_algorithm
from dcp.loop import Evaluation
from dcp.machine.programs import Programs
from dcp.runs.resuming import resume
from dcp.runs.training import train
from tests.support.same_run import assert_same_run
from tests.support.tiny import tiny_config


def unrolled(devices: int, **settings) -> tuple[Programs, RunState]:
    stages = Programs(make_algorithm(tiny_config(devices=devices, **settings)), donate=False)
    run = stages.init()
    for _ in range(2):
        run = stages.prefill(run)
    return stages, run


def worst_gap(one, other) -> float:
    gaps = jax.tree.map(lambda a, b: np.max(np.abs(np.float64(a) - np.float64(b)), initial=0.0), one, other)
    return float(max(jax.tree.leaves(gaps)))


def collectives(stages: Programs, run: RunState) -> dict[str, list[int]]:
    """Elements of every all-gather in the programs that touch environments or replay."""
    key, params = jax.random.key(0), stages.split.everywhere(run.learner.params)
    programs = {
        "windows": stages.jitted.windows.lower(run.replay, None, key),
        "collect": stages.jitted.collect.lower(params, run.acting, run.replay, key),
    }
    return {name: _gathered(program.compile().as_text()) for name, program in programs.items()}


def programs_of_updates(stages: Programs, run: RunState) -> int:
    """Count the programs that two iterations need for their updates."""
    for _ in range(2):
        run, _ = stages.iteration(run)
    return stages.jitted.learn._cache_size()


def _gathered(text: str) -> list[int]:
    sizes = []
    for line in text.splitlines():
        if " all-gather(" in line or " all-to-all(" in line or " all-reduce(" in line:
            shape = line.split(" = ")[1].split("[")[1].split("]")[0]
            sizes.append(int(np.prod([int(n) for n in shape.split(",") if n], initial=1)))
    return sizes


def split_batches(run: RunState) -> dict[str, object]:
    """One pass of updates from the same replay: by the first device, and by both with half of each batch."""
    settings = {"normalize": "running", "average_weights": 3}
    split = Programs(make_algorithm(tiny_config(devices=2, split_batches="on", **settings)), donate=False)
    unsplit = Programs(make_algorithm(tiny_config(devices=2, **settings)), donate=False)
    run = run._replace(learner=unsplit.split.on_first(unsplit.init().learner))
    learner, metrics, _ = _learned(unsplit, run)
    shared, same_metrics, program = _learned(split, run._replace(learner=split.split.everywhere(run.learner)))
    return {
        "unsplit_on": len(learner.params.log_alpha.devices()),
        "split_on": len(shared.params.log_alpha.devices()),
        "whole": all(leaf.is_fully_replicated for leaf in jax.tree.leaves(shared)),
        "gap": worst_gap(learner.params, shared.params),
        "deployed_gap": worst_gap(learner.deployed, shared.deployed),
        "seen": [float(learner.params.scale.rows), float(shared.params.scale.rows)],
        "moved": worst_gap(run.learner.params, shared.params),
        "loss_gap": worst_gap(metrics, same_metrics),
        "collectives": _gathered(program.as_text()),
    }


def _learned(stages: Programs, run: RunState):
    keys = jax.random.split(jax.random.key(1), 4)
    arguments = (run.learner, stages.windows(run.replay, keys[0]), keys[1], keys[2], keys[3])
    program = stages.jitted.learn.lower(*arguments).compile()
    return *program(*arguments), program


def trained(devices: int, **settings) -> dict[str, float]:

    return train(
        tiny_config(devices=devices, steps=2_400, num_evals=1, **settings), runs_dir=None, display="none"
    ).rows[-1]


def gathered(fidelity: str) -> dict[str, object]:
    stages, two = unrolled(2, fidelity=fidelity)  # first: JAX makes its devices when it starts
    _, one = unrolled(1, fidelity=fidelity)
    return {
        "devices": jax.local_device_count(),
        "replay": str(two.replay.rows.state.sharding.spec),
        "physics": str(two.acting.episodes.env.obs.sharding.spec),
        "pool_whole": bool(two.acting.command.pool.sharding.is_fully_replicated),
        "gap": worst_gap(one.replay.rows, two.replay.rows),
        "ids_equal": bool(jnp.array_equal(one.replay.rows.episode_id, np.asarray(two.replay.rows.episode_id))),
        "collectives": collectives(stages, two),
        "programs_of_updates": programs_of_updates(stages, two) if fidelity == "paper" else None,
        "split_batches": split_batches(two) if fidelity == "paper" else None,
    }


def resumed() -> dict[str, object]:
    """A run on two devices that dies at its second evaluation and goes on, against one that does not."""
    config = tiny_config(devices=2, num_evals=2)

    def die(evaluation: Evaluation) -> None:
        if evaluation.row["evaluation"] == 2:
            raise RuntimeError("died")

    with tempfile.TemporaryDirectory() as runs:
        whole = train(config, runs_dir=f"{runs}/whole", display="none")
        with suppress(RuntimeError):
            train(config, die, runs_dir=f"{runs}/died", display="none")
        run = resume(f"{runs}/died/{config.run_path}", display="none")
        assert_same_run(run.folder, whole.folder)
        return {"devices": run.state.replay.rows.state.sharding.num_devices, "evaluations": len(run.rows)}


MODES = {"trained": lambda: [trained(2), trained(2, split_batches="on"), trained(1)], "resumed": resumed}

if __name__ == "__main__":
    asked = sys.argv[1]
    print(json.dumps(MODES[asked]() if asked in MODES else gathered(asked)))
