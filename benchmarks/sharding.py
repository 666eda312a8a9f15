"""Environment steps/s with the environments split over two virtual CPU devices, against one device.

    python benchmarks/sharding.py [--env ENV] [--rounds N] [--devices N] [--batches]

A step is one of `dcp train` at the paper's settings: an unroll of 512 environments with policy, pool and insertion.
Each side is a process of its own with its natural settings, as `dcp train --devices 1` and `--devices 2` are; they are
asked in turns, and one waits while the other works. `kinematic_ratio` is the same for point_u_maze, which therefore
takes one device unless told otherwise. `--batches`: also updates whose batches are split over the devices
(`--split-batches on`) against updates of the first device, as `split_updates_ratio`.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from timing import report, seconds

ENV_STEPS = 512 * 62  # of one unroll
KINEMATIC = "point_u_maze"
WINDOW = 65  # 128 updates of 256 pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="ant_u_maze")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--batches", action="store_true", help="also measure updates with split batches")
    parser.add_argument("--side", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        serve(args.side, args.env)
        return
    one, many = Side(1, args.env), Side(args.devices, args.env)
    try:
        rates = [compare(one, many, env, args.rounds) for env in (args.env, KINEMATIC)]
        batches = compare_batches(many, args.rounds) if args.batches else {}
    finally:
        one.close()
        many.close()
    (rate, split_rate), (kinematic, split_kinematic) = rates
    report(
        ratio=split_rate / rate,
        steps_per_second=split_rate,
        one_device_steps_per_second=rate,
        kinematic_ratio=split_kinematic / kinematic,
        **batches,
        env=args.env,
        devices=args.devices,
        rounds=args.rounds,
    )


class Side:
    """A process that does a named piece of work when it is asked to, and says how long it took."""

    def __init__(self, devices: int, env: str):
        command = [sys.executable, __file__, "--side", str(devices), "--env", env]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, work: str) -> float:
        """-> seconds"""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(work, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"a side has ended with code {self._process.wait()}")
        return float(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def compare(one: Side, many: Side, env: str, rounds: int) -> tuple[float, float]:
    """-> environment steps/s of both, by the median round; the first call of each compiles"""
    for side in (one, many):
        side.ask(env)
    times = in_turns({"one": lambda: one.ask(env), "many": lambda: many.ask(env)}, rounds)
    rates = ENV_STEPS / times["one"], ENV_STEPS / times["many"]
    print(f"{env}: {rates[0]:,.0f} steps/s on one device, {rates[1]:,.0f} split", flush=True)
    return rates


def compare_batches(many: Side, rounds: int) -> dict[str, float]:
    for kind in ("whole", "split"):
        many.ask(kind)
    times = in_turns({kind: lambda kind=kind: many.ask(kind) for kind in ("whole", "split")}, rounds)
    return {"split_updates_ratio": times["whole"] / times["split"], "whole_updates_seconds": times["whole"]}


def in_turns(forms: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in forms}
    for number in range(rounds):
        for name in list(forms)[:: 1 if number % 2 else -1]:
            times[name].append(forms[name]())
    return {name: statistics.median(values) for name, values in times.items()}


def serve(devices: int, env: str) -> None:
    """One side: does what a line names, again and again from where it left off."""
    import jax

    from dcp.envs.registry import make_env
    from dcp.machine import compiling
    from dcp.machine.devices import prepare

    compiling.enable_cache()  # as `dcp train` does: the second measurement starts in seconds
    prepare(devices, make_env(env).spec)
    assert jax.local_device_count() == devices
    work: dict[str, Callable[[], float]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in work:
            work[name] = updating(env, devices, name) if name in ("whole", "split") else unrolling(name, devices)
        print(work[name](), flush=True)


def unrolling(env: str, devices: int) -> Callable[[], float]:
    from dcp.algorithm import make_algorithm
    from dcp.machine.programs import Programs
    from dcp.presets import preset_config

    # The least replay: two sides must fit side by side, and an insertion costs the same in any.
    config = preset_config("paper", env=env, devices=devices, replay_rows=1_000)
    stages = Programs(make_algorithm(config))
    held = {"run": stages.init()}

    def unroll() -> object:
        held["run"] = stages.prefill(held["run"])
        return held["run"]

    return lambda: seconds(unroll)


def updating(env: str, devices: int, kind: str) -> Callable[[], float]:
    """128 updates, as an iteration makes 1,998 of them."""
    import jax

    from dcp.algorithm import make_algorithm
    from dcp.machine.programs import Programs
    from dcp.presets import preset_config

    sizes: dict[str, Any] = {"env": env, "devices": devices, "replay_rows": 1_000, "window": WINDOW}
    stages = Programs(make_algorithm(preset_config("paper", **sizes, split_batches="on" if kind == "split" else "off")))
    run = stages.init()
    held, keys = {"learner": run.learner}, jax.random.split(jax.random.key(0), 4)
    run = run._replace(replay=run.replay._replace(size=run.replay.size + 1_000))  # rows of zeros cost the same
    windows = jax.block_until_ready(stages.windows(run.replay, keys[0]))

    def updates() -> object:
        held["learner"], metrics = stages.jitted.learn(held["learner"], windows, *keys[1:])
        return held["learner"], metrics

    return lambda: seconds(updates)


if __name__ == "__main__":
    main()
