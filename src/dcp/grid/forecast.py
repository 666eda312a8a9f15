"""What a grid will take: each job's time and where that number is from, and the time of all, as they would be started.

A finished run of the same kind on this machine says it best; else a calibration; else nobody knows.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dcp.errors import UserError
from dcp.grid.calibration import Measured, kind, measure, remember, remembered
from dcp.grid.jobs import GRID_DIR, Job, Resources
from dcp.grid.plan import Entry
from dcp.grid.room import Room
from dcp.grid.standing import last_row
from dcp.run_folder import CONFIG_FILE, read_config_file

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Cost:
    seconds: float | None  # of what is left to do
    how: str  # where the number is from


@dataclass
class Forecaster:
    """`paces`: of finished runs, seconds a step; `measured`: calibrations. Both by `kind`."""

    processor: str
    file: Path
    paces: dict[str, tuple[float, Path]]
    measured: dict[str, Measured]

    @classmethod
    def of(cls, entries: Sequence[Entry], on: Resources, processor: str, file: Path) -> "Forecaster":
        paces: dict[str, tuple[float, Path]] = {}
        for entry in entries:
            pace = _pace(entry.folder, on, processor) if entry.standing.kind == "finished" else None
            if pace is not None:
                pace /= _together(entry)  # the time of each seed of a program is that of all
                paces.setdefault(kind(entry.run.settings, on, processor), (pace, entry.folder))
        return cls(processor, file, paces, remembered(file))

    def unknown(self, jobs: Sequence[Job], anew: bool) -> list[Job]:
        """One job of each kind that is to be measured. `anew`: also those that were."""
        found = {self._kind(job): job for job in reversed(jobs)}
        known = () if anew else (*self.paces, *self.measured)
        return [job for name, job in reversed(found.items()) if name not in known]

    def calibrate(self, job: Job, environ: Mapping[str, str] | None = None) -> Measured:
        measured = measure(job, environ)
        self.measured[self._kind(job)] = measured
        self.paces.pop(self._kind(job), None)  # measured anew: that is what was wished for
        remember(self.file, self._kind(job), measured)
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


def _pace(folder: Path, on: Resources, processor: str) -> float | None:
    """Seconds a step, of everything that a run does; None where it ran elsewhere, or on another number of cores."""
    try:
        machine = read_config_file(folder / CONFIG_FILE)["machine"]
    except UserError:
        return None
    row = last_row(folder)
    if row is None or (machine.get("processor"), machine.get("cores")) != (processor, str(on.cores)):
        return None
    return row["wall_seconds"] / row["env_steps"]


def _together(entry: Entry) -> int:
    """Seeds that the run's program trained, by the job files of this grid: nothing in a run folder tells it."""
    path = PurePosixPath(entry.run.path)
    runs_dir = entry.folder.parents[len(path.parts) - 1]
    files = (runs_dir / GRID_DIR / "jobs" / path.parent).glob("seeds_*.json")
    groups = [file.stem.removeprefix("seeds_").split("-") for file in files]
    return max((len(seeds) for seeds in groups if str(entry.run.settings.seed) in seeds), default=1)


def total_seconds(jobs: Sequence[Job], seconds: Callable[[Job], float], room: Room) -> float:
    """When the last job ends, started as the local launcher would: in order, whenever one fits."""
    room, waiting, now = deepcopy(room), list(jobs), 0.0
    running: list[tuple[float, int, Job, tuple[str, ...]]] = []
    while waiting or running:
        for job in list(waiting):
            gpus = room.take(job.resources)
            if gpus is not None:
                waiting.remove(job)
                heapq.heappush(running, (now + seconds(job), len(waiting), job, gpus))
        now, _, job, gpus = heapq.heappop(running)
        room.give_back(job.resources, gpus)
    return now
