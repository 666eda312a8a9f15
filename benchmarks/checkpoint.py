"""What checkpoints cost a run at the paper's settings on ant_u_maze, at the default cadence.

    python benchmarks/checkpoint.py [--env ENV] [--method METHOD] [--rounds N]

In turns: an iteration as it is, and one that starts with a checkpoint of the whole run, which is written in the
background while it trains. Their difference is what one checkpoint costs. How often one is due follows from the
default cadence and the run's own pace: `share` is the cost of one by the time between two, `ratio` the run's time with
checkpoints by its time without. A resume from the last checkpoint is timed too.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import jax
from timing import report, seconds

from dcp.algorithm import RunState, make_algorithm
from dcp.envs.registry import make_env
from dcp.evaluation import evaluation_key
from dcp.loop import HostState
from dcp.machine.devices import prepare
from dcp.machine.programs import Programs
from dcp.presets import preset_config
from dcp.runs.checkpoint import Cadence, Saver, checkpoints
from dcp.runs.run_status import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="ant_u_maze")
    parser.add_argument("--method", default="dcp")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()

    config = preset_config("paper", env=args.env, method=args.method)
    prepare(config.devices, make_env(config.env).spec)
    programs = Programs(make_algorithm(config))
    config = programs.algorithm.config
    run, host = programs.init(), HostState(unrolls=config.num_prefill_unrolls)
    for _ in range(config.num_prefill_unrolls):
        run = programs.prefill(run)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(run))
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # on the disk that runs would go to
        saver = Saver(Path(folder), config)
        run, (plain, saving, blocked) = in_turns(programs, run, host, saver, args.rounds)
        since = time.perf_counter()
        programs.place(load(checkpoints(Path(folder))[0], config, programs.shapes())[0])
        resume_seconds = time.perf_counter() - since
        saver.close()
    evaluation = evaluation_seconds(programs, run)
    period = seconds_between_checkpoints(config.num_iterations / config.num_evals * plain + evaluation)
    share = (saving - plain) / period
    report(
        iteration_seconds=plain,
        iteration_with_checkpoint_seconds=saving,
        blocked_seconds=blocked,
        evaluation_seconds=evaluation,
        seconds_between_checkpoints=period,
        share=share,
        ratio=1.0 + share,
        checkpoint_gib=size / 2**30,
        resume_seconds=resume_seconds,
        env=args.env,
        method=args.method,
    )


def in_turns(
    programs: Programs, run: RunState, host: HostState, saver: Saver, rounds: int
) -> tuple[RunState, tuple[float, float, float]]:
    """-> the run, and median seconds of an iteration, of one that begins with a checkpoint, and of the copying"""

    def iteration() -> object:
        nonlocal run
        run, metrics = programs.iteration(run)
        host.unrolls += 1
        host.metrics.append({name: float(value) for name, value in metrics.items()})
        return metrics, run

    times: dict[str, list[float]] = {"plain": [], "saving": [], "blocked": []}
    for turn in range(rounds + 1):  # the first compiles, and the first write
        plain = seconds(iteration)
        since = time.perf_counter()
        saver.save(run, host)
        blocked = time.perf_counter() - since
        iteration_seconds = seconds(iteration)
        since = time.perf_counter()
        saver.wait()  # a checkpoint that takes longer than an iteration costs its rest too
        saving = blocked + iteration_seconds + time.perf_counter() - since
        print(f"iteration {plain:.2f} s; with a checkpoint {saving:.2f} s, {blocked:.2f} of them before it went on")
        if turn:
            for name, value in (("plain", plain), ("saving", saving), ("blocked", blocked)):
                times[name].append(value)
    plain, saving, blocked = (statistics.median(times[name]) for name in ("plain", "saving", "blocked"))
    return run, (plain, saving, blocked)


def evaluation_seconds(programs: Programs, run: RunState) -> float:
    def evaluate() -> object:
        return programs.evaluate(run.learner.params, evaluation_key(0, 0))

    seconds(evaluate)
    return seconds(evaluate)


def seconds_between_checkpoints(seconds_between_evaluations: float) -> float:
    """One after each evaluation, and one for each time that the minutes are over between two."""
    cadence = Cadence()
    between = cadence.evals * seconds_between_evaluations
    return between / (1 + between // (60 * cadence.minutes))


if __name__ == "__main__":
    main()
