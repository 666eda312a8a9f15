"""What grows and what does not: the time of an iteration against environments, batch, depth and maze.

    python benchmarks/scaling.py [envs | batch | depth | maze ...] [--figure docs/images/scaling.png]

An unroll of ant_u_maze (62 steps with DCP's command and actor) for 64 to 8,192 environments and for larger mazes, and
one update for batches of 64 to 4,096 and networks of depth 2 to 64 (2: the paper's; from 4 on residual blocks). An
iteration is an unroll and one pass over the windows' pairs: the part that was measured and, for the other one, that of
512 environments in the U maze or of the paper's update; choosing and relabelling the windows is left out.
Everything runs on one core and is timed by the process's own clock, so that other work on the machine hardly counts.
"""

import os

os.environ |= {"NPROC": "1", "JAX_PLATFORMS": "cpu"}

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax

from dcp.algorithm import Algorithm, make_algorithm
from dcp.machine import compiling
from dcp.machine.programs import Programs
from dcp.presets import preset_config
from dcp.types import Batch

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

ENVS = (64, 256, 1024, 4096, 8192)
BATCHES = (64, 256, 1024, 4096)
DEPTHS = (2, 4, 16, 64)
MAZES = {"ant_u_maze": "U (5 x 5 cells)", "ant_big_maze": "big (8 x 8)", "ant_hardest_maze": "hardest (9 x 12)"}
UPDATES = 8


def cpu_seconds(work: Callable[[], Any], rounds: int = 3) -> float:
    """Median of the process's seconds; the first call compiles and is not counted."""
    jax.block_until_ready(work())
    times = []
    for _ in range(rounds):
        start = time.process_time()
        jax.block_until_ready(work())
        times.append(time.process_time() - start)
    return statistics.median(times)


def algorithm_of(env: str = "ant_u_maze", **settings: Any) -> Algorithm:
    return make_algorithm(preset_config("paper", env=env, method="dcp", devices=1, **settings))


@cache
def unroll(env: str = "ant_u_maze", num_envs: int = 512) -> float:
    """Seconds of one unroll with its insertion into the replay."""
    stages = Programs(algorithm_of(env, num_envs=num_envs, batch_size=64, replay_rows=1_000, min_replay_rows=1_000))
    held = {"run": stages.init()}

    def work() -> Any:
        held["run"] = stages.prefill(held["run"])
        return held["run"].acting.episodes.env.obs

    return cpu_seconds(work)


@cache
def update(batch_size: int = 256, depth: int = 2) -> float:
    """Seconds of one update."""
    network = {} if depth == 2 else {"network": "residual", "depth": depth}
    algorithm = algorithm_of(num_envs=512, batch_size=256, **network)
    spec, pairs = algorithm.env.spec, UPDATES * batch_size
    keys = jax.random.split(jax.random.key(1), 4)
    sizes = (spec.state_size, spec.action_size, spec.goal_size, spec.goal_size)
    batch = Batch(*(jax.random.normal(key, (pairs, size)) for key, size in zip(keys, sizes, strict=True)))
    order = jax.random.permutation(jax.random.key(2), pairs).reshape(UPDATES, batch_size)
    learner = algorithm.learner.init(jax.random.key(0))
    program = jax.jit(algorithm.updates, compiler_options=compiling.compiler_options())
    return cpu_seconds(lambda: program(learner, batch, order, jax.random.key(3))) / UPDATES


AXES: dict[str, tuple[tuple[Any, ...], Callable[[Any], float]]] = {
    "envs": (ENVS, lambda n: unroll(num_envs=n)),
    "batch": (BATCHES, lambda b: update(batch_size=b)),
    "depth": (DEPTHS, lambda d: update(depth=d)),
    "maze": (tuple(MAZES), lambda env: unroll(env)),
}


def iteration(axis: str, point: Any, part: float) -> float:
    """Seconds of a whole iteration whose unroll (envs, maze) or update (batch, depth) takes `part`."""
    num_envs, batch_size = point if axis == "envs" else 512, point if axis == "batch" else 256
    updates = num_envs * 999 // batch_size
    return part + updates * update() if axis in ("envs", "maze") else unroll() + updates * part


def draw(found: dict[str, dict[str, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    from dcp.lab.style import BLUE, house_style, save

    titles = {"envs": "environments", "batch": "batch", "depth": "depth", "maze": "maze"}
    with house_style():
        figure = Figure(figsize=(4.0 * len(found), 3.0), layout="constrained")
        for axes, (axis, points) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
            names, values = list(points), list(points.values())
            axes.set_title(f"iteration (s) by {titles[axis]}", fontsize=9)
            if axis == "maze":
                axes.bar([MAZES.get(name, name) for name in names], values, color=BLUE)
                axes.tick_params(axis="x", labelsize=7)
                continue
            numbers = [float(name) for name in names]
            axes.loglog(numbers, values, "o-", color=BLUE)
            axes.loglog(numbers, [values[-1] * x / numbers[-1] for x in numbers], ":", color="grey")
            axes.set_xticks(numbers, names, fontsize=8)
            powers = [10.0**n for n in range(-4, 5) if 10.0**n >= min(values) / 2 and 10.0**n <= 2 * max(values)]
            axes.set_yticks(powers, [f"{power:g}" for power in powers], fontsize=8)
            axes.minorticks_off()
        save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("axes", nargs="*", help=f"of {', '.join(AXES)}; default: all")
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    compiling.enable_cache()
    parts: dict[str, dict[str, float]] = {}
    whole: dict[str, dict[str, float]] = {}
    for axis in args.axes or AXES:
        points, measure = AXES[axis]
        for point in points:
            part = parts.setdefault(axis, {})[str(point)] = measure(point)
            all_of_it = whole.setdefault(axis, {})[str(point)] = iteration(axis, point, part)
            print(f"{axis} {point}: {part:.4f} s of one core, an iteration {all_of_it:.1f} s", flush=True)
    if args.figure is not None:
        draw(whole, args.figure)
    told: dict[str, Any] = {f"{axis}_seconds": _rounded(values) for axis, values in parts.items()}
    told |= {f"{axis}_iteration_seconds": _rounded(values) for axis, values in whole.items()}
    ends = {axis: (values[str(AXES[axis][0][0])], values[str(AXES[axis][0][-1])]) for axis, values in whole.items()}
    ratio = {axis: round(last / first, 2) for axis, (first, last) in ends.items()}
    print(json.dumps(told | {"ratio": ratio}))


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 5) for name, value in values.items()}


if __name__ == "__main__":
    main()
