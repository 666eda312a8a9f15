"""Run jobs as SLURM's array jobs, through submitit. SLURM queues, runs and requeues them.

Jobs outlive this process. So their numbers are stored, and a grid that is started again watches the jobs that exist.
Within a job, a parent process runs the worker as its child and handles SLURM's signals:
SIGUSR2 (the time is nearly up, or the node is needed): the run writes a checkpoint and ends with 75; submitit requeues.
SIGTERM (somebody cancels the job, or SLURM itself will requeue it): the run writes a checkpoint and ends with 75.
"""

import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dcp.errors import EXIT_INTERRUPTED, EXIT_MISTAKE, EXIT_REQUEUE, UserError, install_hint, one_line
from dcp.grid.jobs import Job, JobStatus, read_json, write_json
from dcp.grid.launcher import last_line, start_worker
from dcp.grid.worker import read_report, write_report

TIMEOUTS = 1_000  # times that a run may be requeued after its time was up
NOTICE = 300  # seconds before its time is up at which a job gets a signal: one iteration and a checkpoint must fit
LAG = 300.0  # seconds after submission in which SLURM's accounting may not know a job yet
GRACE = 15.0  # seconds that the report of a job that has ended may take to arrive on a network file system
WAIT = 2.0
ENDS = (signal.SIGTERM, signal.SIGINT)
REQUEUES = (signal.SIGUSR1, signal.SIGUSR2)  # submitit listens to the second by default


@dataclass(frozen=True)
class SlurmOptions:
    """The launcher's flags."""

    slurm_partition: str | None = None
    """SLURM: the partition. Default: the cluster's."""
    slurm_time: int = 24 * 60
    """SLURM: minutes that a job may take; a run that needs longer is requeued and resumes."""
    slurm_constraint: str | None = None
    """SLURM: features that a node must have."""
    slurm_account: str | None = None
    """SLURM: the account that is charged."""


class SlurmLauncher:
    def __init__(
        self,
        options: SlurmOptions,
        most: int | None = None,
        cluster: Literal["slurm", "local"] = "slurm",
    ):
        """`most`: jobs of an array at once. `cluster`: "local" is submitit's own imitation, for tests."""
        self._options, self._most, self._cluster = options, most, cluster
        self._jobs: dict[str, tuple[Job, Any]] = {}  # by name, with submitit's handle on the latest attempt
        self._ended: dict[str, JobStatus] = {}
        self._silent_since: dict[str, float] = {}

    def require(self) -> None:
        self._submitit()
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
        for kind in kinds:  # all jobs of an array have the same resources
            self._submit_array([job for job in fresh if (job.resources.cores, job.resources.gpus) == kind])

    def poll(self) -> dict[str, JobStatus]:
        return {name: self._status(job, handle) for name, (job, handle) in self._jobs.items()}

    def stop(self) -> None:
        """Take waiting jobs out of the queue; send SIGTERM to running ones, and wait as long as they need."""
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
            self._ended[name] = JobStatus("stopped", "stopped with the grid")

    def close(self) -> None:
        """Leave jobs in the queue: they are SLURM's."""

    def _submitit(self) -> Any:
        try:
            import submitit
        except ImportError as error:
            raise UserError(f"--launcher slurm needs submitit ({error}): {install_hint('slurm')}") from error
        return submitit

    def _submit_array(self, jobs: list[Job]) -> None:
        for job in jobs:
            job.save()
        executor = self._submitit().AutoExecutor(
            folder=_folder(jobs[0]) / "submitit", cluster=self._cluster, slurm_max_num_timeout=TIMEOUTS
        )
        executor.update_parameters(**self._parameters(jobs))
        try:
            handles = executor.submit_array([SlurmTask(str(job.file)) for job in jobs])
        except (OSError, RuntimeError) as error:
            raise UserError(
                f"SLURM did not accept the jobs ({one_line(error)}): see --slurm-partition and the other --slurm flags"
            ) from error
        self._jobs |= {job.name: (job, handle) for job, handle in zip(jobs, handles, strict=True)}
        numbers = {job.name: {"id": self._jobs[job.name][1].job_id, "at": time.time()} for job in jobs}
        record = _folder(jobs[0]) / "jobs.json"
        write_json(record, read_json(record) | numbers)

    def _parameters(self, jobs: list[Job]) -> dict[str, Any]:
        options, needed = self._options, jobs[0].resources
        memory = max(job.resources.memory_bytes for job in jobs)
        asked = {
            "name": "dcp",
            "timeout_min": options.slurm_time,
            "cpus_per_task": needed.cores,
            "gpus_per_node": needed.gpus or None,
            "mem_gb": math.ceil(memory / 2**30) or None,
            "slurm_partition": options.slurm_partition,
            "slurm_constraint": options.slurm_constraint,
            "slurm_account": options.slurm_account,
            "slurm_array_parallelism": self._most or len(jobs),
            "slurm_signal_delay_s": min(NOTICE, options.slurm_time * 60 // 4),
            "slurm_srun_args": [f"--cpus-per-task={needed.cores}"],  # srun no longer inherits sbatch's number
            "slurm_additional_parameters": {"requeue": True},  # when a node is lost
        }
        return {name: value for name, value in asked.items() if value is not None}

    def _status(self, job: Job, handle: Any) -> JobStatus:
        if job.name not in self._ended:
            status = self._ask(job, handle)
            if status.state in ("waiting", "running"):
                return status
            self._ended[job.name] = status
        return self._ended[job.name]

    def _ask(self, job: Job, handle: Any) -> JobStatus:
        """Return the job's own report on how it ended; without one, SLURM's accounting."""
        where = f"SLURM job {handle.job_id}"
        report = read_report(job, handle.job_id)
        if report is not None and report.code is not None:
            return JobStatus("failed" if report.code else "finished", report.why, where, report.code)
        state = str(handle.state).upper()
        if handle.done():
            if state.startswith("CANCELLED"):  # on purpose: no other attempt
                return JobStatus("stopped", "cancelled in SLURM", where, EXIT_MISTAKE)
            since = self._silent_since.setdefault(job.name, time.monotonic())
            if time.monotonic() - since > GRACE:
                return JobStatus("failed", f"SLURM ended it ({state}); see {job.log}", where)
        if report is None or state in ("PENDING", "REQUEUED"):
            return JobStatus("running" if state == "RUNNING" else "waiting", where=where)
        return JobStatus("running", where=f"{where} on {report.host}")

    def _adopt(self, jobs: Sequence[Job]) -> set[str]:
        """Take over the jobs of an earlier process of this grid that SLURM still has. -> their names"""
        if self._cluster == "local" or not jobs:
            return set()
        record, folder = read_json(_folder(jobs[0]) / "jobs.json"), _folder(jobs[0]) / "submitit"
        known = {job.name: record[job.name] for job in jobs if job.name in record and job.name not in self._jobs}
        submitit = self._submitit()
        # Make all handles first, so that submitit asks about them in one call.
        handles = {name: submitit.SlurmJob(folder, entry["id"]) for name, entry in known.items()}
        for job in jobs:
            if job.name in handles and _exists(job, handles[job.name], known[job.name]["at"]):
                self._jobs[job.name] = (job, handles[job.name])
        return {name for name in handles if name in self._jobs}


def _exists(job: Job, handle: Any, submitted_at: float) -> bool:
    """Return whether SLURM still has this job, waiting or running."""
    report = read_report(job, handle.job_id)
    if (report is not None and report.code is not None) or handle.done():
        return False
    return str(handle.state).upper() != "UNKNOWN" or time.time() - submitted_at < LAG


def _folder(job: Job) -> Path:
    return job.grid_dir / "slurm"


class SlurmTask:
    """Hold what submitit pickles: a path. The method `checkpoint` tells submitit that the job may be requeued."""

    def __init__(self, file: str):
        self.file = file

    def __call__(self) -> int:
        import submitit

        job = Job.read(self.file)
        number = submitit.JobEnvironment().job_id
        requeue = _requeue()
        write_report(job, number)
        code, cancelled = _run_worker(job)
        if code in (EXIT_REQUEUE, EXIT_INTERRUPTED):
            if not cancelled:
                requeue()
            raise SystemExit(EXIT_REQUEUE)  # a cluster may requeue by this code: slurm.conf, RequeueExit=75
        write_report(job, number, code, last_line(job.log) if code else "")
        return code

    def checkpoint(self) -> Any:
        """Answer submitit before it requeues; the run's own checkpoint has been written by then."""
        import submitit

        return submitit.helpers.DelayedSubmission(SlurmTask(self.file))


def _run_worker(job: Job) -> tuple[int, bool]:
    """Return the worker's exit code, and whether it should not be requeued."""
    signals: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _: object) -> None:
        signals.append(number)
        if child is not None and len(signals) == 1:  # a second signal would end it at once
            child.send_signal(signal.SIGINT)

    for number in (*ENDS, *REQUEUES):
        signal.signal(number, pass_on)
    child = start_worker(job, os.environ | job.variables, preexec_fn=_ignore_signals)
    if signals:
        child.send_signal(signal.SIGINT)
    code = child.wait()
    return (128 - code if code < 0 else code), any(number in ENDS for number in signals)


def _ignore_signals() -> None:
    """Ignore SLURM's signals to every process of a job: the worker obeys its parent's SIGINT (machine/signals.py)."""
    for number in (signal.SIGTERM, *REQUEUES):
        signal.signal(number, signal.SIG_IGN)


def _requeue() -> Callable[[], None]:
    """Return submitit's own handler of these signals: it calls `checkpoint`, requeues, and exits."""
    for number in REQUEUES:
        handler = signal.getsignal(number)
        if callable(handler):
            return lambda: handler(number, None)
    raise RuntimeError("not within a submitit job")
