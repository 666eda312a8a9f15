"""Run a grid's jobs: the driver, what it needs of a launcher, and the launcher for this machine.

A launcher does not know how far a run is; run folders do.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dcp.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_MISTAKE, EXIT_REQUEUE
from dcp.files.validation import open_regular
from dcp.grid.grid_display import Line, LineReader, LiveTable, PlainTable
from dcp.grid.jobs import Entry, Job, JobStatus, open_log
from dcp.grid.resources import FreeResources, gpu_variables, require_fit

POLL = 0.5  # seconds
ENDED = ("finished", "failed", "stopped")
STOPPED = (EXIT_REQUEUE, EXIT_INTERRUPTED, 128 + signal.SIGTERM)
STOPPING = "stopping: every run writes a checkpoint first (a second signal stops them at once)"
NOT_STARTED = JobStatus("stopped", "it had not begun")
_TAIL = 4_000  # bytes at the end of a log in which the last line is looked for


class Launcher(Protocol):
    """Run each job in its own process, by `worker.run_job`.

    A job that is submitted again is another attempt; the driver does that for jobs whose latest attempt has ended.
    If jobs of an earlier process of the same grid still run, the launcher adopts them, or `run_job` waits for them.
    """

    def require(self) -> None:
        """Raise UserError, before anything starts, if a package, a cluster or resources for a job are missing."""
        ...

    def submit(self, jobs: Sequence[Job]) -> None: ...

    def poll(self) -> dict[str, JobStatus]:
        """Return at once the status of every job that was ever submitted, by name."""
        ...

    def stop(self) -> None:
        """Ask every job to stop with a checkpoint (SIGTERM), and wait for it. Waiting jobs never start."""
        ...

    def close(self) -> None:
        """Release what `require` and `submit` opened. Called once, whatever happened."""
        ...


@dataclass
class Driver:
    """Submit a grid's jobs, resume failed ones from their checkpoints, and show how far all of them are."""

    launcher: Launcher
    entries: Sequence[Entry]
    jobs: Sequence[Job]
    display: PlainTable | LiveTable
    retries: int = 2
    poll: float = POLL
    stopped: bool = False  # by a signal
    lines: list[Line] = field(default_factory=list)  # of the table, as shown last
    _attempts: dict[str, int] = field(default_factory=dict)
    _reader: LineReader = field(default_factory=LineReader)

    def run(self) -> list[Line]:
        """Return once every job has ended, or once a signal has stopped them with checkpoints."""
        if not self.jobs:
            return self._show({})
        with signals_interrupt():
            try:
                return self._until_ended()
            except KeyboardInterrupt:
                self.stopped = True
                self.display.note(STOPPING)
                self.launcher.stop()
                return self._show(self.launcher.poll())
            finally:
                self.launcher.close()

    def _until_ended(self) -> list[Line]:
        self._submit(self.jobs)
        while True:
            statuses = self.launcher.poll()
            if again := [job for job in self.jobs if self._deserves_another(job, statuses[job.name])]:
                for job in again:
                    self.display.note(f"{job.name}: trying again ({statuses[job.name].why})")
                self._submit(again)
                continue
            lines = self._show(statuses)
            if all(line.state in ENDED for line in lines):
                return lines
            time.sleep(self.poll)

    def _submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._attempts[job.name] = self._attempts.get(job.name, 0) + 1
        self.launcher.submit(jobs)

    def _deserves_another(self, job: Job, status: JobStatus) -> bool:
        ended = status.state in ("failed", "stopped")
        return ended and retriable(status.code) and self._attempts[job.name] <= self.retries

    def _show(self, statuses: Mapping[str, JobStatus]) -> list[Line]:
        # A job without a status: Ctrl-C came while they were submitted.
        states = {job.name: statuses.get(job.name, NOT_STARTED) for job in self.jobs}
        self.lines = self._reader.lines(self.entries, self.jobs, states, self._attempts)
        self.display.update(self.lines)
        return self.lines


def retriable(code: int | None) -> bool:
    """Return whether another attempt may end differently: not after success, nor after a user's mistake."""
    return code not in (0, EXIT_MISTAKE)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt at Ctrl-C, and at SIGTERM, which schedulers send."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signals = [one for one in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, interrupt) for one in signals}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


class JobQueue:
    """Hold the jobs that a launcher has not started yet, and the status of each job's latest attempt."""

    def __init__(self) -> None:
        self._waiting: list[Job] = []
        self._statuses: dict[str, JobStatus] = {}

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._waiting.append(job)
            self._statuses[job.name] = JobStatus("waiting")

    def stop(self) -> None:
        """Stop every job. A second KeyboardInterrupt ends them at once; checkpoints are complete at any moment."""
        self._statuses |= {job.name: NOT_STARTED for job in self._waiting}
        self._waiting.clear()
        try:
            self._end(at_once=False)
        except KeyboardInterrupt:
            self._end(at_once=True)

    def _end(self, at_once: bool) -> None:
        """End the jobs that run, and wait for them."""
        raise NotImplementedError


@dataclass
class _Child:
    job: Job
    process: subprocess.Popen[bytes]
    gpus: tuple[str, ...]


class LocalLauncher(JobQueue):
    """Run jobs on this machine: a process for each, on its own cores, as many at once as fit.

    When this process ends, the kernel sends its children SIGTERM, and they write a checkpoint.
    """

    def __init__(self, free: FreeResources, jobs: Sequence[Job] = (), environ: Mapping[str, str] | None = None):
        super().__init__()
        self._free, self._planned, self._has_gpus = free, list(jobs), bool(free.gpus)
        self._environ = dict(os.environ if environ is None else environ)
        self._children: dict[str, _Child] = {}

    def require(self) -> None:
        require_fit([self._free], self._planned)

    def poll(self) -> dict[str, JobStatus]:
        for name, child in list(self._children.items()):
            if child.process.poll() is not None:
                self._ended(name, child)
        for job in list(self._waiting):  # the first that fits: a small one may overtake a large one
            gpus = self._free.take(job.resources)
            if gpus is not None:
                self._waiting.remove(job)
                self._start(job, gpus)
        return dict(self._statuses)

    def end(self, names: Collection[str]) -> None:
        """Ask these jobs to stop with a checkpoint, and return at once: `poll` sees how they end."""
        for job in [job for job in self._waiting if job.name in names]:
            self._waiting.remove(job)
            self._statuses[job.name] = NOT_STARTED
        for child in (child for name, child in self._children.items() if name in names):
            with suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Stop what still runs, also after an error."""
        self._waiting.clear()
        if self._children:
            self.stop()

    def _start(self, job: Job, gpus: tuple[str, ...]) -> None:
        try:
            job.save()
            # In its own session: Ctrl-C goes to the grid, which passes it on.
            variables = gpu_variables(gpus, self._has_gpus)
            process = start_worker(job, self._environ | variables, start_new_session=True)
        except OSError as error:  # a full disk, or too many processes: this job has failed, the others continue
            self._free.give_back(job.resources, gpus)
            self._statuses[job.name] = JobStatus("failed", f"it cannot be started ({error})", code=EXIT_FAULT)
            return
        self._children[job.name] = _Child(job, process, gpus)
        self._statuses[job.name] = JobStatus("running", where=f"process {process.pid}")

    def _ended(self, name: str, child: _Child) -> None:
        del self._children[name]
        self._free.give_back(child.job.resources, child.gpus)
        self._statuses[name] = ended(child.process.returncode, child.job.log)

    def _end(self, at_once: bool) -> None:
        """Send SIGTERM, which a run obeys at once if it comes a second time."""
        for child in self._children.values():
            with suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGTERM)
        for name, child in list(self._children.items()):
            child.process.wait()
            self._ended(name, child)


def start_worker(
    job: Job,
    environ: Mapping[str, str],
    start_new_session: bool = False,
    preexec_fn: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start the process of a saved job. What it prints is appended to the job's log."""
    with open_log(job.log) as log:
        return subprocess.Popen(
            job.command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environ,
            start_new_session=start_new_session,
            preexec_fn=preexec_fn,
        )


def ended(returncode: int, log: Path) -> JobStatus:
    """Return the status of a job whose process ended with this code."""
    if returncode == 0:
        return JobStatus("finished", code=0)
    if returncode < 0:
        name = signal.Signals(-returncode).name if -returncode in set(signal.Signals) else f"signal {-returncode}"
        state = "stopped" if -returncode == signal.SIGTERM else "failed"
        return JobStatus(state, f"ended by {name}", code=128 - returncode)
    return JobStatus("stopped" if returncode in STOPPED else "failed", last_line(log), code=returncode)


def last_line(log: Path) -> str:
    """Return the last line that is not empty."""
    try:
        with open_regular(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read(_TAIL).decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
