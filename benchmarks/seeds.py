"""Seeds as one program against the same seeds one after another, on the same device, in one run.

    python benchmarks/seeds.py [--env ENV] [--preset PRESET] [--seeds K] [--rounds N] [--evaluate] [--learner vmap]

A round is one iteration of every seed (unroll, insert, sample, updates) and, with --evaluate, one evaluation. The two
forms take turns. What both cost to compile is not in the seconds: it is reported apart, with the disk cache off.
`ratio` is one-after-another seconds by one-program seconds: at least 1 is the bar.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import jax
from timing import report, seconds

from dcp.algorithm import Algorithm, make_algorithm
from dcp.evaluation import evaluation_key
from dcp.machine.programs import Programs
from dcp.machine.seed_programs import How, SeedPrograms, learner_form
from dcp.presets import preset_config


class OneAfterAnother:
    """Single runs: the programs are compiled once and serve all of them, as in one process that trains each."""

    def __init__(self, trainer: Algorithm, seeds: range):
        self.stages = [Programs(replace(trainer, config=replace(trainer.config, seed=seed))) for seed in seeds]
        self.runs = [stages.init() for stages in self.stages]

    def prefill(self) -> Any:
        self.runs = [stages.prefill(run) for stages, run in zip(self.stages, self.runs, strict=True)]
        return self.runs

    def iteration(self) -> Any:
        for place, stages in enumerate(self.stages):
            self.runs[place], _ = jax.block_until_ready(stages.iteration(self.runs[place]))
        return self.runs

    def evaluate(self) -> Any:
        for seed, (stages, run) in enumerate(zip(self.stages, self.runs, strict=True)):
            stages.evaluate(run.learner.params, evaluation_key(seed, 0))


class OneProgram:
    def __init__(self, trainer: Algorithm, seeds: range, learner: How | None = None):
        self.stages, self.seeds = SeedPrograms(trainer, learner=learner), seeds
        self.run = self.stages.init(seeds)

    def prefill(self) -> Any:
        self.run = self.stages.prefill(self.run)
        return self.run

    def iteration(self) -> Any:
        self.run, _ = self.stages.iteration(self.run)
        return self.run

    def evaluate(self) -> Any:
        self.stages.scores(self.run, self.seeds, 0)


def measured(forms: dict[str, Any], part: str, rounds: int) -> dict[str, float]:
    """Median seconds of each form's part, in turns."""
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(rounds):
        for name, form in forms.items():
            times[name].append(seconds(getattr(form, part)))
    return {name: statistics.median(values) for name, values in times.items()}


def started(make: Callable[[], Any], prefills: int, evaluate: bool) -> tuple[Any, float]:
    """A form with everything compiled, and the seconds that this took: the first calls, with what they compute."""
    since = time.perf_counter()
    form = make()
    for _ in range(prefills):
        form.prefill()
    jax.block_until_ready(form.iteration())
    if evaluate:
        form.evaluate()
    return form, time.perf_counter() - since


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="point_u_maze")
    parser.add_argument("--preset", default="laptop")
    parser.add_argument("--method", default="dcp")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--evaluate", action="store_true", help="an evaluation too")
    parser.add_argument("--learner", choices=["map", "vmap"], help="how its pass goes over seeds; default: as training")
    args = parser.parse_args()

    trainer = make_algorithm(preset_config(args.preset, env=args.env, method=args.method, devices=1))
    seeds, prefills = range(args.seeds), trainer.config.num_prefill_unrolls
    forms, compiling = {}, {}
    kinds = {"one_after_another": OneAfterAnother, "one_program": partial(OneProgram, learner=args.learner)}
    for name, kind in kinds.items():
        forms[name], compiling[name] = started(partial(kind, trainer, seeds), prefills, args.evaluate)
    parts = {part: measured(forms, part, args.rounds) for part in ["iteration", *["evaluate"] * args.evaluate]}
    total = {name: sum(times[name] for times in parts.values()) for name in forms}
    report(
        ratio=total["one_after_another"] / total["one_program"],
        **{f"{part}_{name}_seconds": value for part, times in parts.items() for name, value in times.items()},
        **{f"first_calls_{name}_seconds": value for name, value in compiling.items()},
        seeds=args.seeds,
        env=args.env,
        preset=args.preset,
        backend=jax.default_backend(),
        learner=args.learner or learner_form(),
    )


if __name__ == "__main__":
    main()
