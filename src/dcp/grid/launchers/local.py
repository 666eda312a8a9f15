"""Jobs on this machine: a process each, on cores of its own, as many at once as there is room for."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dcp.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_REQUEUE
from dcp.grid.jobs import Job
from dcp.grid.launchers.interface import Status
from dcp.grid.launchers.variables import memory_share
from dcp.grid.room import Room, require_room

STOPPED = (EXIT_REQUEUE, EXIT_INTERRUPTED, 128 + signal.SIGTERM)
_TAIL = 4_000  # bytes of a log in which its last line is looked for


@dataclass
class _Child:
    job: Job
    process: subprocess.Popen[bytes]
    gpus: tuple[str, ...]


class LocalLauncher:
    """Children end with this process: the kernel sends them SIGTERM, and they leave a checkpoint (see grid/work.py)."""

    def __init__(self, room: Room, jobs: Sequence[Job] = (), environ: Mapping[str, str] | None = None):
        self._room, self._planned = room, list(jobs)
        self._environ = dict(os.environ if environ is None else environ)
        self._waiting: list[Job] = []
        self._children: dict[str, _Child] = {}
        self._statuses: dict[str, Status] = {}

    def require(self) -> None:
        require_room(self._room, self._planned)

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._waiting.append(job)
            self._statuses[job.name] = Status("waiting")

    def poll(self) -> dict[str, Status]:
        for name, child in list(self._children.items()):
            if child.process.poll() is not None:
                self._ended(name, child)
        for job in list(self._waiting):  # the first that fits: a small one may go before a large one
            gpus = self._room.take(job.resources)
            if gpus is not None:
                self._waiting.remove(job)
                self._try(job, gpus)
        return dict(self._statuses)

    def stop(self) -> None:
        """Another KeyboardInterrupt meanwhile ends the children at once: their checkpoints are whole at any moment."""
        for job in self._waiting:
            self._statuses[job.name] = Status("stopped", "it had not begun")
        self._waiting.clear()
        self._signal()
        try:
            self._wait()
        except KeyboardInterrupt:
            self._signal()
            self._wait()

    def close(self) -> None:
        """After a fault of our own, too."""
        self._waiting.clear()
        if self._children:
            self.stop()

    def _try(self, job: Job, gpus: tuple[str, ...]) -> None:
        """A full disk, or no process more: this job's failure, and the others go on."""
        try:
            self._start(job, gpus)
        except OSError as error:
            self._room.give_back(job.resources, gpus)
            self._statuses[job.name] = Status("failed", f"it cannot be started ({error})", code=EXIT_FAULT)

    def _start(self, job: Job, gpus: tuple[str, ...]) -> None:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        # -P: a module of the present folder is never taken for one of Python's
        command = [sys.executable, "-P", "-m", "dcp.grid.work", str(job.save()), str(os.getpid())]
        with job.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the grid, which passes it on
                env=self._environ | gpu_variables(gpus, job.resources.gpus, bool(self._room.gpus)),
            )
        self._children[job.name] = _Child(job, process, gpus)
        self._statuses[job.name] = Status("running", where=f"process {process.pid}")

    def _ended(self, name: str, child: _Child) -> None:
        del self._children[name]
        self._room.give_back(child.job.resources, child.gpus)
        self._statuses[name] = ended(child.process.returncode, child.job.log)

    def _signal(self) -> None:
        for child in self._children.values():
            with suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGTERM)

    def _wait(self) -> None:
        for name, child in list(self._children.items()):
            child.process.wait()
            self._ended(name, child)


def ended(returncode: int, log: Path) -> Status:
    """What a process's end says of its job."""
    if returncode == 0:
        return Status("finished", code=0)
    if returncode < 0:
        name = signal.Signals(-returncode).name if -returncode in set(signal.Signals) else f"signal {-returncode}"
        state = "stopped" if -returncode == signal.SIGTERM else "failed"
        return Status(state, f"ended by {name}", code=128 - returncode)
    return Status("stopped" if returncode in STOPPED else "failed", last_line(log), code=returncode)


def last_line(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def gpu_variables(gpus: tuple[str, ...], share: float, there: bool) -> dict[str, str]:
    """For a process that has these GPUs; `there`: whether the machine has any, which a run without one must not use."""
    if not gpus:
        return {"JAX_PLATFORMS": "cpu"} if there else {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus), **memory_share(share)}
