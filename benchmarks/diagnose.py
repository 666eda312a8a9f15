"""What `dcp diagnose` costs on a run in a point maze. Bar: a minute on two cores, imports and compilation included.

Runs the command in a process of its own with an empty compilation cache, then again with what that one left in it.
Beside it, in this process: the k-step maps of all states side by side, against one state at a time.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from timing import in_turns, report

RUN = "zoo/point_big_maze/dcp"


def command(run: str, folder: Path, cache: Path) -> tuple[float, float]:
    """-> seconds on the clock, and of the processor"""
    arguments = [sys.executable, "-m", "dcp.cli.main", "diagnose", run, "--out", str(folder)]
    before, start = _processor(), time.perf_counter()
    subprocess.run(arguments, check=True, env={**os.environ, "DCP_CACHE_DIR": str(cache)})
    return time.perf_counter() - start, _processor() - before


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def maps(run: str, states: int) -> dict[str, float]:
    """Seconds of controllability's rollouts, together and one by one."""
    import jax

    from dcp.lab.diagnose.direction_measures import STEPS, action_maps
    from dcp.lab.diagnose.visited_states import gather
    from dcp.lab.targets import environment_of, open_target, require_psi

    target = open_target(run)
    env, policy = environment_of(target), require_psi(target)
    visits = gather(env, policy, 0, 16, env.spec.episode_length, states)
    start, goal = visits.env_state(states), visits.goal

    def one(i: int):
        return action_maps(env, policy, jax.tree.map(lambda x: x[i : i + 1], start), goal[i : i + 1], STEPS)

    forms = {
        "together": lambda: action_maps(env, policy, start, goal, STEPS),
        "one_by_one": lambda: [one(i) for i in range(states)],
    }
    return in_turns(forms, rounds=3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", default=RUN)
    run = parser.parse_args().run
    with tempfile.TemporaryDirectory() as scratch:
        folder, cache = Path(scratch) / "diagnosis", Path(scratch) / "cache"
        seconds, processor = command(run, folder, cache)
        again, processor_again = command(run, folder, cache)
        figures = len(list(folder.glob("*.png")))
    sides = maps(run, states=64)
    report(
        run=run,
        seconds=seconds,
        processor_seconds=processor,
        seconds_again=again,
        processor_seconds_again=processor_again,
        figures=figures,
        maps_together=sides["together"],
        maps_one_by_one=sides["one_by_one"],
        ratio=sides["one_by_one"] / sides["together"],
    )


if __name__ == "__main__":
    main()
