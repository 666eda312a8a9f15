"""A job under SLURM, as submitit starts it: this process waits for `python -m dcp.grid.work` and hears SLURM's signals.

SIGUSR2 (its time is nearly up, or the node is wanted): the run writes its checkpoint and ends with 75, and submitit
requeues the job. SIGTERM (somebody cancels it, or SLURM itself will requeue it): a checkpoint and 75, and no more.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dcp.errors import EXIT_INTERRUPTED, EXIT_REQUEUE
from dcp.grid.jobs import GRID_DIR, Job
from dcp.grid.launchers.local import last_line
from dcp.grid.launchers.notes import read_note, write_note
from dcp.grid.launchers.variables import variables

SLURM_DIR = "slurm"
ENDS = (signal.SIGTERM, signal.SIGINT)
REQUEUES = (signal.SIGUSR1, signal.SIGUSR2)  # submitit listens to the second, unless it is told otherwise


@dataclass(frozen=True)
class Told:
    """What a job says of itself, in a file: how it ended is no pickle's to say."""

    id: str  # by SLURM
    host: str
    process: int
    code: int | None = None  # None: it has not ended, or it will go on
    why: str = ""


def told_file(job: Job) -> Path:
    return job.runs_dir / GRID_DIR / SLURM_DIR / "told" / f"{job.name}.json"


def read_told(job: Job) -> Told | None:
    note = read_note(told_file(job))
    return Told(**note) if note else None


class Work:
    """What submitit keeps for the job: a path. `checkpoint` by its name tells it that the job may be requeued."""

    def __init__(self, file: str):
        self.file = file

    def __call__(self) -> int:
        import submitit

        job = Job.from_json(Path(self.file).read_text(encoding="utf-8"))
        here = (submitit.JobEnvironment().job_id, socket.gethostname(), os.getpid())
        requeue = _requeue()
        _tell(job, Told(*here))
        code, cancelled = _run(job)
        if code in (EXIT_REQUEUE, EXIT_INTERRUPTED):
            if not cancelled:
                requeue()
            raise SystemExit(EXIT_REQUEUE)  # a cluster may requeue on it by itself: slurm.conf, RequeueExit=75
        _tell(job, Told(*here, code, last_line(job.log) if code else ""))
        return code

    def checkpoint(self) -> Any:
        """Called by submitit before it requeues; the run's own checkpoint has been written by then."""
        import submitit

        return submitit.helpers.DelayedSubmission(Work(self.file))


def _run(job: Job) -> tuple[int, bool]:
    """-> the run's exit code, and whether it was told to end for good"""
    heard: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _: object) -> None:
        heard.append(number)
        if child is not None and len(heard) == 1:  # a second would end it at once
            child.send_signal(signal.SIGINT)

    for number in (*ENDS, *REQUEUES):
        signal.signal(number, pass_on)
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "dcp.grid.work", str(job.file), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | variables(job.resources),
            preexec_fn=_deaf,
        )
    if heard:
        child.send_signal(signal.SIGINT)
    code = child.wait()
    return (128 - code if code < 0 else code), any(number in ENDS for number in heard)


def _deaf() -> None:
    """SLURM signals every process of a job. The run hears its parent alone, by SIGINT: see training/signals.py."""
    for number in (signal.SIGTERM, *REQUEUES):
        signal.signal(number, signal.SIG_IGN)


def _requeue() -> Callable[[], None]:
    """submitit's own handler, which it has set for one of these signals: calls `checkpoint`, requeues, and exits."""
    for number in REQUEUES:
        handler = signal.getsignal(number)
        if callable(handler):
            return lambda: handler(number, None)
    raise RuntimeError("not within a job of submitit's")


def _tell(job: Job, told: Told) -> None:
    write_note(told_file(job), asdict(told))
