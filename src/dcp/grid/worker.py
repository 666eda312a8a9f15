"""Run one job in this process, for every launcher. `python -m dcp.grid.worker JOB.json PARENT` is a child process.

The folder decides what happens: an empty one starts a run; a run that was stopped or killed resumes from its checkpoint
and ends with the same bits; a finished run is not touched.
"""

import ctypes
import fcntl
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from dcp.config import Config
from dcp.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_MISTAKE, EXIT_REQUEUE, RunError, UserError
from dcp.grid.jobs import Job, holder, run_status
from dcp.grid.pausing import UNPAUSE, is_paused
from dcp.named_code import user_import_path

WAIT = 2.0  # seconds between two looks at a folder that another process writes to
PR_SET_PDEATHSIG = 1  # linux/prctl.h
_held: list[int] = []  # descriptors of the locks on this process's cores, held until it ends


class Outcome(NamedTuple):
    code: int  # an exit code of `dcp train`
    why: str = ""  # one sentence, unless the code is 0


def run_job(job: Job, say: Callable[[str], None] = print) -> Outcome:
    """Train or resume. SIGTERM and SIGINT write a checkpoint first; then the code is 75. Raises only `SystemExit`."""
    from dcp.runs.stopping import Interrupted

    try:
        with user_import_path(job.code, job.imports):
            _train_when_free(job, say)
        return Outcome(0)
    except Interrupted as stop:
        if stop.env_steps is None:
            return Outcome(EXIT_INTERRUPTED, "stopped before its first checkpoint")
        return Outcome(EXIT_REQUEUE, f"stopped with a checkpoint at {stop.env_steps:,} environment steps")
    except KeyboardInterrupt:
        return Outcome(EXIT_INTERRUPTED, "stopped before training began")
    except (UserError, RunError) as error:
        return Outcome(EXIT_MISTAKE if isinstance(error, UserError) else EXIT_FAULT, " ".join(str(error).split()))
    except Exception as error:
        traceback.print_exc()
        return Outcome(EXIT_FAULT, f"{type(error).__name__}: {' '.join(str(error).split())}")


def _train_when_free(job: Job, say: Callable[[str], None]) -> None:
    """Wait while the job is paused or a process of an earlier grid still writes to the folder, then train."""
    told = None
    while True:
        while reason := _reason_to_wait(job):
            if reason != told:
                told = reason
                say(f"{job.name}: {reason}")
            time.sleep(WAIT)
        try:
            return _train(job)
        except UserError:
            if holder(job) is None:
                raise  # otherwise another process was faster, and the error was about its lock


def _reason_to_wait(job: Job) -> str:
    writer, paused = holder(job), is_paused(job)
    if writer is None:
        return UNPAUSE if paused else ""
    return f"waiting for {writer}, which writes to its folder" + (f" and is {UNPAUSE}" if paused else "")


def _train(job: Job) -> None:
    from dcp.grid.grid_display import heartbeat
    from dcp.runs.seeds import train_seeds
    from dcp.runs.training import resume, train

    settings, folder, display = job.settings, job.folders[0], heartbeat(job.progress)
    if len(job.seeds) > 1:
        train_seeds(Config(**asdict(settings)), job.seeds, runs_dir=job.root, resume=True, display=display)
        return
    status = run_status(folder, settings)
    if status.kind in ("other", "broken"):
        raise UserError(status.why)
    if status.kind == "new":
        train(Config(**asdict(settings)), runs_dir=job.root, display=display)
    if status.kind == "interrupted":
        resume(folder, steps=status.steps, code=settings.code.values(), display=display)


def begin_child(parent: int, cores: int) -> bool:
    """Pin this process to its own cores, and make it end with its parent. Return False if the parent has ended.

    The kernel sends SIGTERM when the parent ends, however it ends.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return False
    keep_priority()
    pin(cores)
    return True


def keep_priority(file: Path = Path("/proc/self/autogroup")) -> None:
    """Give this session the priority of its process, so that `nice -n 19 dcp grid` is nice to other sessions.

    A worker has its own session, and Linux shares the processor among sessions first (autogroups). Without this,
    niceness would only count within the session.
    """
    for _ in range(50):
        try:
            file.write_text(f"{os.nice(0)}\n")
        except BlockingIOError:  # the kernel takes one change per 0.1 s from all ordinary users
            time.sleep(0.1)
        except OSError:  # a kernel without autogroups
            return
        else:
            return


def pin(count: int) -> None:
    """Keep this process on this many of its cores; call it before JAX starts.

    The number of cores decides how XLA rounds. Each core has a file, and the process that computes on it holds the
    file's lock until it ends. So the jobs of several grids and launchers on one machine do not share a core while
    another one is free.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    allowed = sorted(os.sched_getaffinity(0))
    if count >= len(allowed):
        return
    chosen = _claim(allowed, count)
    if len(chosen) < count:  # there are more jobs than cores: some must share
        shift = os.getpid() % len(allowed)
        rest = [core for core in allowed[shift:] + allowed[:shift] if core not in chosen]
        chosen += rest[: count - len(chosen)]
    os.sched_setaffinity(0, chosen)


def _claim(allowed: list[int], count: int) -> list[int]:
    """Lock at most `count` free cores; none if their files cannot be written."""
    folder = Path(tempfile.gettempdir()) / f"dcp-cores-{os.getuid()}"
    claimed: list[int] = []
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            return []
        for core in allowed:
            if len(claimed) == count:
                break
            descriptor = os.open(folder / str(core), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                continue
            _held.append(descriptor)
            claimed.append(core)
    except OSError:
        pass
    return claimed


def main(argv: list[str]) -> int:
    """Run the job of a file, as a child of the named process."""
    file, parent = argv
    try:
        job = Job.read(file)
    except UserError as error:
        print(error, file=sys.stderr, flush=True)
        return EXIT_MISTAKE
    if not begin_child(int(parent), job.resources.cores):
        return EXIT_REQUEUE
    outcome = run_job(job)
    if outcome.why:
        print(outcome.why, file=sys.stderr, flush=True)
    return outcome.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
