"""A job inside a Ray worker. Where that was killed, Ray runs the task again, and the folder's checkpoint does the rest.

Nothing here imports Ray: it decides where and when, not what.
"""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dcp.errors import EXIT_INTERRUPTED, EXIT_MISTAKE, EXIT_REQUEUE
from dcp.grid.jobs import GRID_DIR, Job
from dcp.grid.launchers.notes import write_note
from dcp.grid.launchers.variables import variables
from dcp.grid.work import run_job


class StoppedError(Exception):
    """A signal stopped the worker, and the run has its checkpoint: Ray may run the task elsewhere."""


def started_file(job: Job) -> Path:
    return job.runs_dir / GRID_DIR / "ray" / f"{job.name}.json"


def run_task(text: str, marker: str, ticket: str) -> tuple[int, str]:
    """In a worker of its own. `marker`: a file that the grid's process wrote. -> exit code, and why it is not 0"""
    job = Job.from_json(text)
    if not Path(marker).exists():
        return EXIT_MISTAKE, (
            f"the node {socket.gethostname()} does not see {job.runs_dir}: "
            "name a --runs-dir on storage that all nodes share"
        )
    write_note(started_file(job), {"ticket": ticket, "process": os.getpid(), "host": socket.gethostname()})
    os.environ.update(variables(job.resources))
    if job.code is not None:
        with suppress(OSError):  # the run will say what it misses
            os.chdir(job.code)  # files that its settings name are looked for there; the worker is its own
    with _printing_to(job.log):
        outcome = run_job(job)
        if outcome.why:
            print(outcome.why, flush=True)
    if outcome.code in (EXIT_REQUEUE, EXIT_INTERRUPTED):
        raise StoppedError(outcome.why)
    return outcome.code, outcome.why


@contextmanager
def _printing_to(log: Path) -> Iterator[None]:
    """Also what C++ prints: XLA's last words are not to be lost in a folder of Ray's on another machine."""
    log.parent.mkdir(parents=True, exist_ok=True)
    before = {number: os.dup(number) for number in (1, 2)}
    with log.open("ab") as file:
        for number in before:
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, old in before.items():
            os.dup2(old, number)
            os.close(old)
