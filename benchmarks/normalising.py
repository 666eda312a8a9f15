"""What inputs of unit size cost: an unroll and a round of updates with `normalize running` over those with `none`.

    python benchmarks/normalising.py [--env ENV] [--method METHOD] [--rounds N]

The paper's settings otherwise, by the programs of `dcp train`, in turns in one process.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import jax
from timing import in_turns, report

from dcp.algorithm import make_algorithm
from dcp.envs.registry import env_of
from dcp.machine.devices import prepare
from dcp.machine.programs import Programs
from dcp.presets import preset_config


def programs(env: str, method: str, normalize: str) -> dict[str, Any]:
    """The two parts of an iteration as calls that go on from where the last one ended."""
    config = preset_config("paper", env=env, method=method, normalize=normalize)
    prepare(None, env_of(config).spec)
    stages = Programs(make_algorithm(config))
    config, run = stages.algorithm.config, stages.init()
    while int(run.replay.size) < (config.window or 0):
        run = stages.prefill(run)
    held, keys = {"run": run}, jax.random.split(jax.random.key(0), 5)

    def unroll() -> object:
        run = held["run"]
        acting, replay, metrics = stages.collect(run.learner.params, run.acting, run.replay, keys[0])
        held["run"] = run._replace(acting=acting, replay=replay)
        return acting, metrics

    def updates() -> object:
        windows = stages.windows(held["run"].replay, keys[1])
        learner, metrics = stages.learn(held["run"].learner, windows, *keys[2:])
        held["run"] = held["run"]._replace(learner=learner)
        return learner, metrics

    return {f"{normalize}_unroll": unroll, f"{normalize}_updates": updates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="ant_u_maze")
    parser.add_argument("--method", default="dcp")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    calls = programs(args.env, args.method, "none") | programs(args.env, args.method, "running")
    seconds = in_turns(calls, args.rounds)
    parts = ("unroll", "updates")
    ratios = {f"{part}_ratio": seconds[f"running_{part}"] / seconds[f"none_{part}"] for part in parts}
    none, running = (sum(seconds[f"{name}_{part}"] for part in parts) for name in ("none", "running"))
    report(ratio=running / none, **ratios, **{f"{name}_seconds": value for name, value in seconds.items()})


if __name__ == "__main__":
    main()
