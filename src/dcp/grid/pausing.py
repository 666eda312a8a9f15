"""Pause a grid's processes on this machine, and let them continue.

A file next to the runs lists those that are paused here. No launcher on this machine starts them, and a worker that has
just been started waits, so none is missed. A process that already works is stopped by SIGSTOP. The grid's own process
is not: it shows what is paused, and Ctrl-C still stops it.
"""

import os
import signal
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dcp.errors import UserError
from dcp.grid.jobs import GRID_DIR, Job, holder, read_json, write_json
from dcp.runs.folder import owner

UNPAUSE = "paused: `dcp grid ... --unpause` lets it continue"
PROC = Path("/proc")  # elsewhere than on Linux only processes that hold a folder's lock are found


class Signalled(NamedTuple):
    runs: list[str]  # whose processes got the signal
    refused: list[str]  # one sentence for each process that this user may not signal


def pause(runs_dir: Path, runs: Sequence[str]) -> Signalled:
    """Pause these runs (paths below `runs_dir`) on this machine, also those that have not begun."""
    _list_as_paused(runs_dir, _listed(runs_dir) | set(runs))  # first: what starts from now on sees it and waits
    return _send(signal.SIGSTOP, runs_dir, runs)


def unpause(runs_dir: Path, runs: Sequence[str]) -> Signalled:
    """Let these runs start and continue on this machine."""
    _list_as_paused(runs_dir, _listed(runs_dir) - set(runs))
    return _send(signal.SIGCONT, runs_dir, runs)


def is_paused(job: Job) -> bool:
    """Return whether the job may not start here, or whether the process that writes to its folder is stopped."""
    writer = holder(job)
    if writer is not None:
        number = _process_here(writer)
        return number is not None and is_stopped(number)
    return not _listed(job.runs_dir).isdisjoint(_runs(job))


def is_stopped(process: int) -> bool:
    """Return whether a signal has stopped this process, as SIGSTOP and Ctrl-Z do."""
    try:
        return (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):  # it has ended, or this is not Linux
        return False


def _file(runs_dir: Path) -> Path:
    return runs_dir / GRID_DIR / "paused" / f"{socket.gethostname()}.json"


def _listed(runs_dir: Path) -> set[str]:
    runs = read_json(_file(runs_dir)).get("runs", ())
    return {run for run in runs if isinstance(run, str)} if isinstance(runs, list) else set()


def _list_as_paused(runs_dir: Path, runs: Iterable[str]) -> None:
    file, listed = _file(runs_dir), sorted(runs)
    try:
        if listed:
            write_json(file, {"runs": listed})
        else:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {file} ({error.strerror}): pause the grid as the user who started it") from error


def _send(number: signal.Signals, runs_dir: Path, runs: Sequence[str]) -> Signalled:
    told: set[str] = set()
    refused: list[str] = []
    for process, its_runs in _processes(runs_dir, set(runs)).items():
        try:
            os.kill(process, number)
            told |= its_runs
        except ProcessLookupError:  # it has just ended
            continue
        except PermissionError:
            names = ", ".join(sorted(its_runs))
            refused.append(f"process {process} ({names}) is another user's: ask that user")
    return Signalled(sorted(told), refused)


def _processes(runs_dir: Path, runs: set[str]) -> dict[int, set[str]]:
    """Find the processes here that work on these runs: workers, also before they lock a folder, and lock holders."""
    found: dict[int, set[str]] = {}
    for process, job in _workers(runs_dir):
        if its_runs := runs & set(_runs(job)):
            found[process] = its_runs
    for run in runs:
        process = _process_here(owner(runs_dir / run) or "")
        if process is not None:
            found.setdefault(process, set()).add(run)
    return found


def _workers(runs_dir: Path) -> Iterator[tuple[int, Job]]:
    """Find `python -m dcp.grid.worker JOB PARENT` whose job is one of this folder's."""
    jobs = (runs_dir / GRID_DIR / "jobs").resolve()
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError, UserError):  # it has ended, or its job cannot be read: then it will not train
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "dcp.grid.worker" in words[:-2]:
                file = Path(words[words.index("dcp.grid.worker") + 1])
                if file.resolve().is_relative_to(jobs):
                    yield int(folder.name), Job.read(file)


def _runs(job: Job) -> list[str]:
    return [folder.relative_to(job.runs_dir).as_posix() for folder in job.folders]


def _process_here(writer: str) -> int | None:
    """Return 12 for "process 12 on host" if that is this machine; `owner` says so of a lock."""
    words = writer.split()
    ours = len(words) == 4 and words[1].isdecimal() and words[3] == socket.gethostname()
    return int(words[1]) if ours else None
