"""Forecast how long a run takes here, from a short training of its kind: two unrolls and two iterations.

`python -m dcp.grid.forecast JOB.json PARENT` is the process that measures; it prints one line of JSON.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dcp.config import Config, Settings
from dcp.errors import EXIT_FAULT, RunError
from dcp.grid.jobs import Job
from dcp.grid.resources import FreeResources
from dcp.grid.worker import begin_child
from dcp.named_code import user_import_path

# Settings that do not change the time of a step, and the method, because measuring each would take three times as long.
_FREE = ("method", "seed", "steps", "eval_env", "num_evals", "eval_episodes")


@dataclass(frozen=True)
class Measured:
    """Hold the seconds of one process with one seed, alone on its cores."""

    compile_seconds: float  # of the training programs; short if they were in the cache on disk
    unroll_seconds: float
    iteration_seconds: float  # an unroll and its updates

    def run_seconds(self, run: Settings) -> float:
        """Return the seconds of a whole run. Evaluation's program takes about as long to compile as training's."""
        evaluation = self.unroll_seconds * run.eval_episodes * (run.episode_length or 0) / run.env_steps_per_unroll
        unrolls = run.num_prefill_unrolls * self.unroll_seconds + run.num_iterations * self.iteration_seconds
        return 2 * self.compile_seconds + unrolls + run.num_evals * evaluation


def kind(settings: Settings) -> str:
    """Return a key: runs with the same key take the same time per step. Rates and shares do not matter."""
    sizes = {n: v for n, v in asdict(settings).items() if n not in _FREE and not isinstance(v, float)}
    return json.dumps(sizes, sort_keys=True)


def measure(job: Job, environ: Mapping[str, str] | None = None) -> Measured:
    """Measure a job's kind in a process on as many cores as a run has."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(replace(job, seeds=job.seeds[:1]).to_json(), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "dcp.grid.forecast", str(path), str(os.getpid())]
        done = subprocess.run(command, capture_output=True, text=True, env=environ and dict(environ))
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        raise RunError(f"a calibration of {job.settings.env} failed ({lines[-1]}): use --no-calibration")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def total_seconds(jobs: Sequence[Job], seconds: Sequence[float], free: FreeResources) -> float:
    """Return the time of all jobs: shared evenly by as many as fit at once, and at least that of the longest."""
    at_once = min((free.count(job.resources) for job in jobs), default=1)
    return max([sum(seconds) / max(at_once, 1), *seconds])


def _measure_here(config: Config, cores: int) -> Measured:
    """Time two unrolls and two iterations at the run's own sizes, with its own programs; the first of each compiles."""
    import jax

    from dcp.algorithm import make_algorithm
    from dcp.machine import compiling
    from dcp.machine.programs import Programs

    compiling.enable_cache()
    programs = Programs(make_algorithm(config))
    run = jax.block_until_ready(programs.init())
    # On one core, processor time is what an idle machine would take, even if other processes run now.
    clock = time.process_time if cores == 1 and jax.default_backend() == "cpu" else time.perf_counter

    def timed(program: Any, run: Any) -> tuple[Any, float]:
        since = clock()
        after = jax.block_until_ready(program(run))
        return after, clock() - since

    run, first_unroll = timed(programs.prefill, run)
    run, unroll = timed(programs.prefill, run)
    (run, _), first_iteration = timed(programs.iteration, run)
    _, iteration = timed(programs.iteration, run)
    return Measured(max(0.0, first_unroll - unroll) + max(0.0, first_iteration - iteration), unroll, iteration)


def main(argv: list[str]) -> int:
    job = Job.read(argv[0])
    if not begin_child(int(argv[1]), job.resources.cores):
        return EXIT_FAULT
    with user_import_path(job.code, job.imports):
        print(json.dumps(asdict(_measure_here(Config(**asdict(job.settings)), job.resources.cores))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
