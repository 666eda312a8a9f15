"""Count how often `make demo` is at 95% or more in the last half of a run, with one setting changed: docs/recipes.md.

python -m tools.docs.demo_swings width=128 normalize=running    # the preset first; two minutes of one core each
"""

import json
import sys
from contextlib import suppress

import numpy as np

from dcp.algorithm import make_algorithm
from dcp.loop import evaluation_key
from dcp.machine.programs import Programs
from dcp.presets import preset_config

SEEDS = range(5)
EVALUATIONS = 24  # about as many in a run


def successes(**settings: object) -> np.ndarray:
    """Return success at each evaluation of the last half, for every seed: [seeds, evaluations]."""
    rows = []
    for seed in SEEDS:
        programs = Programs(make_algorithm(preset_config("demo", seed=seed, **settings)))
        config, run, row = programs.algorithm.config, programs.init(), []
        for _ in range(config.num_prefill_unrolls):
            run = programs.prefill(run)
        for i in range(1, config.num_iterations + 1):
            run, _ = programs.iteration(run)
            if i % max(1, config.num_iterations // EVALUATIONS) == 0:
                row.append(programs.evaluate(run.learner.deployed, evaluation_key(seed, i))["success_once"])
        rows.append(row[len(row) // 2 :])
    return np.array(rows)


def main(arguments: list[str]) -> None:
    for argument in ["", *arguments]:
        name, _, text = argument.partition("=")
        with suppress(ValueError):  # a word
            text = json.loads(text)
        share = np.mean(successes(**({name: text} if name else {})) >= 0.95)
        print(f"{argument or 'the preset'}: {share:.0%}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
