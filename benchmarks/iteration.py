"""A whole training iteration at the paper's settings on ant_u_maze: its parts, and the memory at its peak.

    python benchmarks/iteration.py [--env ENV] [--physics brax | mujoco] [--method METHOD] [--rounds N] [--devices N]

Every part runs as in `dcp train`: the unroll over all cores, sampling and 1,998 updates. The replay is full size; it
is filled to the paper's minimum. `peer_seconds` is what the public peer took for the same iteration on this kind of
machine (TRAINING facts: 85 + 20 + 60 s on 2 cores), measured elsewhere, for orientation: it is not run here.
Under MuJoCo's own engine the other side is the same iteration with our engine of the paper's physics, whose unroll is
measured in the same run, in a process that has a virtual device a core, as `dcp train` has then.
"""

import argparse
import resource
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from timing import in_turns, report, seconds

from dcp.algorithm import make_algorithm
from dcp.config import PHYSICS, Config
from dcp.envs.registry import env_of
from dcp.machine.devices import prepare
from dcp.machine.programs import Programs
from dcp.presets import preset_config

PEER_SECONDS = 165.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", help="default: ant_u_maze, and pusher_hard under MuJoCo's own engine")
    parser.add_argument("--physics", choices=PHYSICS, default="brax")
    parser.add_argument("--method", default="dcp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--devices", type=int, help="split the environments over these; default: as dcp train")
    args = parser.parse_args()

    env = args.env or ("ant_u_maze" if args.physics == "brax" else "pusher_hard")
    config: Config = preset_config("paper", env=env, physics=args.physics, method=args.method, devices=args.devices)
    prepare(config.devices, env_of(config).spec)
    stages = Programs(make_algorithm(config))
    run = stages.init()
    config = stages.algorithm.config
    for _ in range(config.num_prefill_unrolls):
        run = stages.prefill(run)
    run, _ = stages.iteration(run)  # compiles what is left

    whole, parts = [], []
    for _ in range(args.rounds):
        held = {"run": run}

        def iteration(held: dict = held) -> object:
            held["run"], metrics = stages.iteration(held["run"])
            return metrics, held["run"]

        whole.append(seconds(iteration))
        run = held["run"]
        parts.append(timed_parts(stages, held))
        run = held["run"]
    median = {name: statistics.median(part[name] for part in parts) for name in parts[0]}
    whole_seconds = statistics.median(whole)
    other: dict[str, float] = {"ratio": PEER_SECONDS / whole_seconds, "peer_seconds": PEER_SECONDS}
    if args.physics == "mujoco":
        paper = replace(config, physics="brax", devices=None)
        with ProcessPoolExecutor(1, get_context("spawn")) as process:  # devices of its own: JAX makes them once
            unroll = process.submit(brax_unroll, paper, args.rounds).result()
        slower = whole_seconds - median["environment"] + unroll
        other = {"ratio": slower / whole_seconds, "brax_seconds": slower, "brax_environment_seconds": unroll}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    report(
        seconds=whole_seconds,
        **{f"{name}_seconds": value for name, value in median.items()},
        peak_gib=peak,
        **other,
        env=env,
        physics=args.physics,
        method=args.method,
        env_steps=config.env_steps_per_unroll,
        updates=config.num_updates,
        devices=stages.split.count,
    )


def brax_unroll(config: Config, rounds: int) -> float:
    """Median seconds of the unroll of one iteration, by our engine of the paper's physics."""

    prepare(None, env_of(config).spec)
    stages = Programs(make_algorithm(config))
    held = {"run": stages.init()}

    def unroll() -> object:
        held["run"] = stages.prefill(held["run"])
        return held["run"].acting

    return in_turns({"unroll": unroll}, rounds)["unroll"]


def timed_parts(stages: Programs, held: dict) -> dict[str, float]:
    """One more iteration, a part at a time."""
    import jax

    run = held["run"]
    key, key_collect, key_window, key_future, key_shuffle, key_update = jax.random.split(run.key, 6)

    def environment() -> object:
        acting, replay, metrics = stages.collect(run.learner.params, run.acting, run.replay, key_collect)
        held["run"] = run._replace(acting=acting, replay=replay, key=key)
        return acting, metrics

    def sampling() -> object:
        held["windows"] = stages.windows(held["run"].replay, key_window)
        return held["windows"]

    def updates() -> object:
        learner, metrics = stages.learn(held["run"].learner, held["windows"], key_future, key_shuffle, key_update)
        held["run"] = held["run"]._replace(learner=learner)
        return learner, metrics

    return {part.__name__: seconds(part) for part in (environment, sampling, updates)}


if __name__ == "__main__":
    main()
