"""A short training, to know what a long one takes: `python -m dcp.grid.measuring JOB.json PARENT`, in a process.

Two unrolls that fill the replay and two iterations, at the run's own sizes; the first of each compiles. The programs
are the run's, so what was compiled here need not be compiled again there. Prints one line of JSON.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dcp.config import Config
from dcp.errors import EXIT_FAULT
from dcp.grid.cores import pin
from dcp.grid.jobs import Job
from dcp.grid.parent import end_with
from dcp.named_code import looked_for_in


def measure(config: Config, cores: int) -> dict[str, float]:
    import jax

    from dcp import compiling
    from dcp.training.stages import Stages
    from dcp.training.trainer import make_trainer

    compiling.enable_cache()
    stages = Stages(make_trainer(config))
    run = jax.block_until_ready(stages.init())
    # On one core the processor's time is what an idle machine would take, whatever else goes on here meanwhile.
    clock = time.process_time if cores == 1 and jax.default_backend() == "cpu" else time.perf_counter
    run, first_unroll = _timed(stages.prefill, run, clock)
    run, unroll = _timed(stages.prefill, run, clock)
    (run, _), first_iteration = _timed(stages.iteration, run, clock)
    (run, _), iteration = _timed(stages.iteration, run, clock)
    compiling = max(0.0, first_unroll - unroll) + max(0.0, first_iteration - iteration)
    seconds = {"compile_seconds": compiling, "unroll_seconds": unroll, "iteration_seconds": iteration}
    return {**seconds, "peak_bytes": peak_bytes()}


def peak_bytes() -> int:
    """Of this process alone. On Linux `ru_maxrss` begins with what the parent had when it started us."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii").split()
        return int(status[status.index("VmHWM:") + 1]) * 1024
    except (OSError, ValueError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _timed(program: Any, run: Any, clock: Callable[[], float]) -> tuple[Any, float]:
    import jax

    since = clock()
    after = jax.block_until_ready(program(run))
    return after, clock() - since


def main(argv: list[str]) -> int:
    file, parent = argv
    if not end_with(int(parent)):
        return EXIT_FAULT
    job = Job.from_json(Path(file).read_text(encoding="utf-8"))
    pin(job.resources.cores)
    with looked_for_in(job.code):
        print(json.dumps(measure(Config(**asdict(job.settings)), job.resources.cores)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
