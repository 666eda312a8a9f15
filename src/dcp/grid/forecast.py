"""Forecast how long a grid will take: each job's time, where that number comes from, and the total.

The best source is a finished run of the same kind on this machine; otherwise a calibration, which is a short training
that is measured once and kept. `python -m dcp.grid.forecast JOB.json PARENT` is the process that measures; it prints
one line of JSON.
"""

import heapq
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from dcp.config import Config, Settings
from dcp.errors import EXIT_FAULT, RunError, UserError
from dcp.files.run_folder import CONFIG_FILE, read_config_file
from dcp.grid.jobs import GRID_DIR, Entry, Job, last_row, read_json, write_json
from dcp.grid.resources import FreeResources, Resources
from dcp.grid.worker import begin_child
from dcp.machine import compiling
from dcp.named_code import user_import_path

NOT_MEASURED = "not measured"
FILE = "calibration.json"
# Settings with little or no effect on the time of a step. The method has some effect, but calibrating each method would
# take three times as long: docs/grid_forecast.md.
_FREE = ("method", "seed", "steps", "eval_env", "num_evals", "eval_episodes", "actor_goal", "score", "discount")
_FREE += ("final_goal_share", "logsumexp_penalty", "target_entropy_scale", "min_replay_rows", "pool_refresh_steps")
_FREE += ("actor_learning_rate", "critic_learning_rate", "alpha_learning_rate", "energy", "contrastive_loss")


@dataclass(frozen=True)
class Cost:
    seconds: float | None  # of the steps that are left
    how: str  # where the number comes from


@dataclass(frozen=True)
class Measured:
    """Hold the time and memory of one process with one seed, alone on its cores."""

    compile_seconds: float  # of the training programs; short if they were in the cache on disk
    unroll_seconds: float
    iteration_seconds: float  # an unroll and its updates
    peak_bytes: float
    at: str = ""  # date

    def seconds(self, run: Settings) -> float:
        """Return the seconds of a whole run. Evaluation's program takes about as long to compile as training's."""
        evaluation = self.unroll_seconds * run.eval_episodes * (run.episode_length or 0) / run.env_steps_per_unroll
        unrolls = run.num_prefill_unrolls * self.unroll_seconds + run.num_iterations * self.iteration_seconds
        return 2 * self.compile_seconds + unrolls + run.num_evals * evaluation


def kind(settings: Settings, on: Resources, processor: str) -> str:
    """Return a key: runs with the same key take the same time per step."""
    sizes = {name: value for name, value in asdict(settings).items() if name not in _FREE}
    return json.dumps([[socket.gethostname(), processor, on.cores, on.gpus], sizes], sort_keys=True)


@dataclass
class Forecaster:
    """`paces`: seconds per step of finished runs; `measured`: calibrations. Both by `kind`."""

    processor: str
    file: Path
    paces: dict[str, tuple[float, Path]]
    measured: dict[str, Measured]

    @classmethod
    def of(cls, entries: Sequence[Entry], on: Resources, processor: str, file: Path) -> "Forecaster":
        paces: dict[str, tuple[float, Path]] = {}
        for entry in entries:
            pace = _pace(entry, on, processor) if entry.status.kind == "finished" else None
            if pace is not None:
                paces.setdefault(kind(entry.run.settings, on, processor), (pace, entry.folder))
        return cls(processor, file, paces, read_calibrations(file))

    def unknown(self, jobs: Sequence[Job], anew: bool) -> list[Job]:
        """Return one job of each kind to be measured. `anew`: include kinds that were measured before."""
        found = {self._kind(job): job for job in reversed(jobs)}
        known = () if anew else (*self.paces, *self.measured)
        return [job for name, job in reversed(found.items()) if name not in known]

    def calibrate(self, job: Job, environ: Mapping[str, str] | None = None) -> Measured:
        measured = measure(job, environ)
        self.measured[self._kind(job)] = measured
        self.paces.pop(self._kind(job), None)  # the user asked for a new measurement
        save_calibration(self.file, self._kind(job), measured)
        return measured

    def cost(self, job: Job, share: float = 1.0) -> Cost:
        """`share`: of its steps that are left."""
        run, seeds = job.settings, len(job.seeds)
        if found := self.paces.get(self._kind(job)):
            pace, folder = found
            seconds = pace * run.num_unrolls * run.env_steps_per_unroll
            return Cost(seconds * seeds * share, f"as long as {folder} took")
        if measured := self.measured.get(self._kind(job)):
            return Cost(measured.seconds(run) * seeds * share, f"calibrated on {measured.at}")
        return Cost(None, NOT_MEASURED)

    def _kind(self, job: Job) -> str:
        return kind(job.settings, job.resources, self.processor)


def _pace(entry: Entry, on: Resources, processor: str) -> float | None:
    """Return seconds per step of all that a run does; None if it ran elsewhere, or on another number of cores."""
    try:
        machine = read_config_file(entry.folder / CONFIG_FILE)["machine"]
    except UserError:
        return None
    row = last_row(entry.folder)
    if row is None or (machine.get("processor"), machine.get("cores")) != (processor, str(on.cores)):
        return None
    # The time of each seed of a program is that of all its seeds. Only the job files of this grid say how many.
    path = PurePosixPath(entry.run.path)
    runs_dir = entry.folder.parents[len(path.parts) - 1]
    files = (runs_dir / GRID_DIR / "jobs" / path.parent).glob("seeds_*.json")
    groups = [file.stem.removeprefix("seeds_").split("-") for file in files]
    together = max((len(seeds) for seeds in groups if str(entry.run.settings.seed) in seeds), default=1)
    return row["wall_seconds"] / row["env_steps"] / together


def total_seconds(jobs: Sequence[Job], seconds: Callable[[Job], float], free: FreeResources) -> float:
    """Return when the last job ends if jobs start as under the local launcher: in order, as soon as one fits."""
    free, waiting, now = deepcopy(free), list(jobs), 0.0
    running: list[tuple[float, int, Job, tuple[str, ...]]] = []
    while waiting or running:
        for job in list(waiting):
            gpus = free.take(job.resources)
            if gpus is not None:
                waiting.remove(job)
                heapq.heappush(running, (now + seconds(job), len(waiting), job, gpus))
        now, _, job, gpus = heapq.heappop(running)
        free.give_back(job.resources, gpus)
    return now


def calibration_file() -> Path:
    given = os.environ.get(compiling.VARIABLE)
    return (Path(given).expanduser() if given and given != compiling.OFF else compiling.default_folder().parent) / FILE


def read_calibrations(path: Path) -> dict[str, Measured]:
    """Return what was measured, by kind; nothing if the file is damaged or of another version."""
    try:
        return {key: Measured(**values) for key, values in read_json(path).items()}
    except TypeError:
        return {}


def save_calibration(path: Path, key: str, measured: Measured) -> None:
    write_json(path, {name: asdict(value) for name, value in {**read_calibrations(path), key: measured}.items()})


def measure(job: Job, environ: Mapping[str, str] | None = None) -> Measured:
    """Measure a job in its own process, on as many cores as a run has; raise RunError if that fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(replace(job, seeds=job.seeds[:1]).to_json(), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "dcp.grid.forecast", str(path), str(os.getpid())]
        done = subprocess.run(command, capture_output=True, text=True, env=environ and dict(environ))
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        raise RunError(f"a calibration of {job.settings.env} failed ({lines[-1]}): use --no-calibration")
    return Measured(**json.loads(done.stdout.splitlines()[-1]), at=datetime.now().strftime("%Y-%m-%d"))


def _measure_here(config: Config, cores: int) -> dict[str, float]:
    """Time two unrolls that fill the replay and two iterations, at the run's own sizes; the first of each compiles.

    The programs are the run's, so it finds them in the cache.
    """
    import jax

    from dcp.algorithm import make_algorithm
    from dcp.machine.programs import Programs

    compiling.enable_cache()
    stages = Programs(make_algorithm(config))
    run = jax.block_until_ready(stages.init())
    # On one core, processor time is what an idle machine would take, even if other processes run now.
    clock = time.process_time if cores == 1 and jax.default_backend() == "cpu" else time.perf_counter

    def timed(program: Any, run: Any) -> tuple[Any, float]:
        since = clock()
        after = jax.block_until_ready(program(run))
        return after, clock() - since

    run, first_unroll = timed(stages.prefill, run)
    run, unroll = timed(stages.prefill, run)
    (run, _), first_iteration = timed(stages.iteration, run)
    (run, _), iteration = timed(stages.iteration, run)
    compile_seconds = max(0.0, first_unroll - unroll) + max(0.0, first_iteration - iteration)
    seconds = {"compile_seconds": compile_seconds, "unroll_seconds": unroll, "iteration_seconds": iteration}
    return {**seconds, "peak_bytes": peak_bytes()}


def peak_bytes() -> int:
    """Return this process's own peak. On Linux `ru_maxrss` starts with what the parent had when it started us."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii").split()
        return int(status[status.index("VmHWM:") + 1]) * 1024
    except (OSError, ValueError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main(argv: list[str]) -> int:
    file, parent = argv
    job = Job.read(file)
    if not begin_child(int(parent), job.resources.cores):
        return EXIT_FAULT
    with user_import_path(job.code, job.imports):
        print(json.dumps(_measure_here(Config(**asdict(job.settings)), job.resources.cores)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
