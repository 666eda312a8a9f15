"""Run jobs on this machine: one process for each, on its own cores, as many at once as fit."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dcp.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_REQUEUE
from dcp.grid.jobs import Job
from dcp.grid.launcher import State, Status, stop_waiting
from dcp.grid.pausing import UNPAUSE, is_paused
from dcp.grid.resources import FreeResources, gpu_variables, require_fit

STOPPED = (EXIT_REQUEUE, EXIT_INTERRUPTED, 128 + signal.SIGTERM)
_TAIL = 4_000  # bytes at the end of a log in which the last line is looked for


@dataclass
class _Child:
    job: Job
    process: subprocess.Popen[bytes]
    gpus: tuple[str, ...]


class LocalLauncher:
    """Run jobs as child processes. When this process ends, the kernel sends them SIGTERM: they write a checkpoint."""

    def __init__(self, free: FreeResources, jobs: Sequence[Job] = (), environ: Mapping[str, str] | None = None):
        self._free, self._planned = free, list(jobs)
        self._environ = dict(os.environ if environ is None else environ)
        self._waiting: list[Job] = []
        self._children: dict[str, _Child] = {}
        self._statuses: dict[str, Status] = {}

    def require(self) -> None:
        require_fit(self._free, self._planned)

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._waiting.append(job)
            self._statuses[job.name] = Status("waiting")

    def poll(self) -> dict[str, Status]:
        for name, child in list(self._children.items()):
            if child.process.poll() is not None:
                self._ended(name, child)
            else:
                self._statuses[name] = _status("running", child.job, f"process {child.process.pid}")
        for job in list(self._waiting):  # the first that fits: a small one may overtake a large one
            self._statuses[job.name] = status = _status("waiting", job)
            if status.state == "paused":
                continue
            gpus = self._free.take(job.resources)
            if gpus is not None:
                self._waiting.remove(job)
                self._start(job, gpus)
        return dict(self._statuses)

    def stop(self) -> None:
        """Stop the children. A second KeyboardInterrupt ends them at once; checkpoints are complete at any moment."""
        stop_waiting(self._waiting, self._statuses)
        try:
            self._terminate()
        except KeyboardInterrupt:
            self._terminate()

    def close(self) -> None:
        """Stop what still runs, also after an error."""
        self._waiting.clear()
        if self._children:
            self.stop()

    def _start(self, job: Job, gpus: tuple[str, ...]) -> None:
        try:
            job.save()
            # In its own session: Ctrl-C goes to the grid, which passes it on.
            variables = gpu_variables(gpus, job.resources.gpus, bool(self._free.gpus))
            process = start_worker(job, self._environ | variables, start_new_session=True)
        except OSError as error:  # a full disk, or too many processes: this job has failed, the others continue
            self._free.give_back(job.resources, gpus)
            self._statuses[job.name] = Status("failed", f"it cannot be started ({error})", code=EXIT_FAULT)
            return
        self._children[job.name] = _Child(job, process, gpus)
        self._statuses[job.name] = Status("running", where=f"process {process.pid}")

    def _ended(self, name: str, child: _Child) -> None:
        del self._children[name]
        self._free.give_back(child.job.resources, child.gpus)
        self._statuses[name] = ended(child.process.returncode, child.job.log)

    def _terminate(self) -> None:
        for child in self._children.values():
            with suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGTERM)
                child.process.send_signal(signal.SIGCONT)  # a paused process gets SIGTERM only once it continues
        for name, child in list(self._children.items()):
            child.process.wait()
            self._ended(name, child)


def _status(state: State, job: Job, where: str = "") -> Status:
    return Status("paused", UNPAUSE, where) if is_paused(job) else Status(state, where=where)


def start_worker(
    job: Job,
    environ: Mapping[str, str],
    start_new_session: bool = False,
    preexec_fn: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start the process of a saved job. What it prints is appended to the job's log."""
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("ab") as log:
        return subprocess.Popen(
            job.command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environ,
            start_new_session=start_new_session,
            preexec_fn=preexec_fn,
        )


def ended(returncode: int, log: Path) -> Status:
    """Return the status of a job whose process ended with this code."""
    if returncode == 0:
        return Status("finished", code=0)
    if returncode < 0:
        name = signal.Signals(-returncode).name if -returncode in set(signal.Signals) else f"signal {-returncode}"
        state = "stopped" if -returncode == signal.SIGTERM else "failed"
        return Status(state, f"ended by {name}", code=128 - returncode)
    return Status("stopped" if returncode in STOPPED else "failed", last_line(log), code=returncode)


def last_line(log: Path) -> str:
    """Return the last line that is not empty."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
