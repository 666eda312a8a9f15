"""Environment steps a second through Gymnasium: one environment by `make`, against N of them by `make_vec`.

Random actions, from the median time of a step; both forms of an environment are measured in turns.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import gymnasium
from timing import report

import dcp.gym  # noqa: F401  (registers the ids)

CASES = {"PointUMaze": 1024, "AntUMaze": 512}  # N of the vectorised form
TURNS, STEPS = 5, 40


def stepper(env: Any) -> Callable[[], float]:
    """Seconds of one step, the median of a turn."""
    env.reset(seed=0)
    env.action_space.seed(0)

    def one() -> float:
        action = env.action_space.sample()
        before = time.perf_counter()
        result = env.step(action)
        seconds = time.perf_counter() - before
        if isinstance(result[2], bool) and (result[2] or result[3]):  # a vectorised one resets itself
            env.reset()
        return seconds

    one()  # compiles
    return lambda: statistics.median(one() for _ in range(STEPS))


def measured(name: str, count: int) -> dict[str, float]:
    turns = {1: stepper(gymnasium.make(f"dcp/{name}-v0")), count: stepper(gymnasium.make_vec(f"dcp/{name}-v0", count))}
    found = {n: statistics.median(turn() for _ in range(TURNS)) for n, turn in turns.items()}
    return {
        f"{name}_steps_per_second": round(1 / found[1]),
        f"{name}_vector_{count}_steps_per_second": round(count / found[count]),
        f"{name}_ratio": round(count * found[1] / found[count], 1),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(CASES))
    report(**{key: value for name in parser.parse_args().names for key, value in measured(name, CASES[name]).items()})
