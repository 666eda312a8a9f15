"""Jobs as arrays of SLURM's, through submitit. SLURM queues, runs and requeues them.

They outlive this process. So their numbers are written down, and a grid that is started again watches what there is.
"""

import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from dcp.errors import EXIT_MISTAKE, UserError
from dcp.grid.jobs import GRID_DIR, Job
from dcp.grid.launchers.interface import Status
from dcp.grid.launchers.notes import read_note, write_note
from dcp.grid.launchers.options import SlurmOptions
from dcp.grid.launchers.slurm_work import SLURM_DIR, Told, Work, read_told

TIMEOUTS = 1_000  # times that a run may go on after its time was up
NOTICE = 300  # seconds before the end of its time at which a job is told: one iteration and a checkpoint must fit
LAG = 300.0  # seconds after submission in which SLURM's accounting need not know a job yet
GRACE = 15.0  # seconds in which the last words of a job that has ended may still be on their way through a network
WAIT = 2.0


class SlurmLauncher:
    def __init__(
        self,
        jobs: Sequence[Job],
        options: SlurmOptions,
        most: int | None = None,
        cluster: Literal["slurm", "local"] = "slurm",
    ):
        """`most`: jobs of an array at once. `cluster`: submitit's own imitation of one here, for tests."""
        self._planned, self._options, self._most, self._cluster = list(jobs), options, most, cluster
        self._jobs: dict[str, tuple[Job, Any]] = {}  # by name, with submitit's handle on the latest attempt
        self._ended: dict[str, Status] = {}
        self._silent_since: dict[str, float] = {}

    def require(self) -> None:
        self._submitit()
        for job in self._planned:
            if job.resources.gpus % 1:
                raise UserError(
                    f"SLURM gives whole GPUs, not {job.resources.gpus:g}: use --gpus-per-run 1, "
                    "and --seeds-as vmapped to fill it"
                )
        missing = [name for name in ("sbatch", "srun", "sacct", "scancel") if not shutil.which(name)]
        if self._cluster == "slurm" and missing:
            raise UserError(
                f"there is no SLURM here ({missing[0]} is not found): run it on a login node of the cluster, "
                "or use --launcher local"
            )

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._ended.pop(job.name, None)
            self._silent_since.pop(job.name, None)
        adopted = self._adopt(jobs)
        fresh = [job for job in jobs if job.name not in adopted]
        kinds = sorted({(job.resources.cores, job.resources.gpus) for job in fresh})
        for kind in kinds:  # an array's jobs are all of one kind
            self._submit_array([job for job in fresh if (job.resources.cores, job.resources.gpus) == kind])

    def poll(self) -> dict[str, Status]:
        return {name: self._status(job, handle) for name, (job, handle) in self._jobs.items()}

    def stop(self) -> None:
        """What waits is taken out of the queue; what runs is sent SIGTERM, and takes the time that it needs."""
        running = {name: handle for name, (_, handle) in self._jobs.items() if name not in self._ended}
        if not running:
            return
        numbers = [handle.job_id for handle in running.values()]
        if self._cluster == "local":
            for number in numbers:
                with suppress(ProcessLookupError):
                    os.kill(int(number), signal.SIGTERM)
        else:
            subprocess.run(["scancel", "--state=PENDING", *numbers], check=False)
            subprocess.run(["scancel", "--state=RUNNING", "--signal=TERM", *numbers], check=False)
        while not all(handle.done(force_check=True) for handle in running.values()):
            time.sleep(WAIT)
        for name in running:
            self._ended[name] = Status("stopped", "stopped with the grid")

    def close(self) -> None:
        """Jobs in the queue stay there: they are SLURM's."""

    def _submitit(self) -> Any:
        try:
            import submitit
        except ImportError as error:
            raise UserError(f"--launcher slurm needs submitit ({error}): pip install 'dcp[slurm]'") from error
        return submitit

    def _submit_array(self, jobs: list[Job]) -> None:
        executor = self._submitit().AutoExecutor(
            folder=self._folder(jobs[0]) / "submitit", cluster=self._cluster, slurm_max_num_timeout=TIMEOUTS
        )
        executor.update_parameters(**self._parameters(jobs))
        try:
            handles = executor.submit_array([Work(str(job.save())) for job in jobs])
        except (OSError, RuntimeError) as error:
            told = " ".join(str(error).split())[:300]
            raise UserError(
                f"SLURM did not take the jobs ({told}): see --slurm-partition and its neighbours"
            ) from error
        self._jobs |= {job.name: (job, handle) for job, handle in zip(jobs, handles, strict=True)}
        self._write_down(jobs)

    def _parameters(self, jobs: list[Job]) -> dict[str, Any]:
        options, needed = self._options, jobs[0].resources
        memory = max(job.resources.memory_bytes for job in jobs)
        asked = {
            "name": "dcp",
            "timeout_min": options.slurm_time,
            "cpus_per_task": needed.cores,
            "gpus_per_node": int(needed.gpus) or None,
            "mem_gb": math.ceil(memory / 2**30) or None,
            "slurm_partition": options.slurm_partition,
            "slurm_constraint": options.slurm_constraint,
            "slurm_account": options.slurm_account,
            "slurm_array_parallelism": self._most or len(jobs),
            "slurm_signal_delay_s": min(NOTICE, options.slurm_time * 60 // 4),
            "slurm_srun_args": [f"--cpus-per-task={needed.cores}"],  # srun no longer takes sbatch's number
            "slurm_additional_parameters": {"requeue": True},  # when a node is lost
        }
        return {name: value for name, value in asked.items() if value is not None}

    def _status(self, job: Job, handle: Any) -> Status:
        if job.name not in self._ended:
            status = self._look(job, handle)
            if status.state in ("waiting", "running"):
                return status
            self._ended[job.name] = status
        return self._ended[job.name]

    def _look(self, job: Job, handle: Any) -> Status:
        """The job's own word on how it ended; SLURM's, where it has none."""
        where = f"SLURM job {handle.job_id}"
        told = _of(handle, read_told(job))
        if told is not None and told.code is not None:
            return Status("failed" if told.code else "finished", told.why, where, told.code)
        state = str(handle.state).upper()
        if handle.done():
            if state.startswith("CANCELLED"):  # somebody's wish: no other attempt
                return Status("stopped", "cancelled in SLURM", where, EXIT_MISTAKE)
            since = self._silent_since.setdefault(job.name, time.monotonic())
            if time.monotonic() - since > GRACE:
                return Status("failed", f"SLURM ended it ({state}); see {job.log}", where)
        if told is None or state in ("PENDING", "REQUEUED"):
            return Status("running" if state == "RUNNING" else "waiting", where=where)
        return Status("running", where=f"{where} on {told.host}")

    def _adopt(self, jobs: Sequence[Job]) -> set[str]:
        """Jobs of an earlier process of this grid that SLURM still has. -> their names"""
        if self._cluster == "local" or not jobs:
            return set()
        record, folder = self._record(jobs[0]), self._folder(jobs[0]) / "submitit"
        known = {job.name: record[job.name] for job in jobs if job.name in record and job.name not in self._jobs}
        submitit = self._submitit()
        handles = {name: submitit.SlurmJob(folder, entry["id"]) for name, entry in known.items()}  # then asked at once
        for job in jobs:
            if job.name in handles and self._lives(job, handles[job.name], known[job.name]["at"]):
                self._jobs[job.name] = (job, handles[job.name])
        return {name for name in handles if name in self._jobs}

    def _lives(self, job: Job, handle: Any, submitted_at: float) -> bool:
        told = _of(handle, read_told(job))
        if (told is not None and told.code is not None) or handle.done():
            return False
        return str(handle.state).upper() != "UNKNOWN" or time.time() - submitted_at < LAG

    def _folder(self, job: Job) -> Path:
        return job.runs_dir / GRID_DIR / SLURM_DIR

    def _record(self, job: Job) -> dict[str, Any]:
        return read_note(self._folder(job) / "jobs.json")

    def _write_down(self, jobs: Sequence[Job]) -> None:
        numbers = {job.name: {"id": self._jobs[job.name][1].job_id, "at": time.time()} for job in jobs}
        write_note(self._folder(jobs[0]) / "jobs.json", self._record(jobs[0]) | numbers)


def _of(handle: Any, told: Told | None) -> Told | None:
    """Of this attempt and no earlier one."""
    return told if told is not None and told.id == handle.job_id else None
