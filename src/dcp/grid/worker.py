"""Train a job in this process, and tell others how far it is. `python -m dcp.grid.worker JOB.json PARENT` is a child.

The folder decides what happens: an empty one starts a run; a run that was stopped or killed resumes from its checkpoint
and ends with the same bits; a finished run is not touched.
"""

import ctypes
import fcntl
import os
import signal
import socket
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from dcp.config import Config
from dcp.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_MISTAKE, EXIT_REQUEUE, RunError, UserError
from dcp.grid.jobs import Job, Row, holder, read_record, run_status, write_json
from dcp.named_code import user_import_path
from dcp.runs.display import Display, Progress
from dcp.runs.plain_display import Pace

WAIT = 2.0  # seconds between two looks at a folder that another process writes to
BEAT = 1.0  # seconds between two heartbeats
PR_SET_PDEATHSIG = 1  # linux/prctl.h
_held: list[int] = []  # descriptors of the locks on this process's cores, held until it ends


class Outcome(NamedTuple):
    code: int  # an exit code of `dcp train`
    why: str = ""  # one sentence, unless the code is 0


def run_job(job: Job, say: Callable[[str], None] = print) -> Outcome:
    """Train or resume. SIGTERM and SIGINT write a checkpoint first; then the code is 75. Raises only `SystemExit`."""
    from dcp.machine.signals import Interrupted

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
    """Wait while a process of an earlier grid still writes to the folder, then train."""
    announced = None
    while True:
        while writer := holder(job):
            if writer != announced:
                announced = writer
                say(f"{job.name}: waiting for {writer}, which writes to its folder")
            time.sleep(WAIT)
        try:
            return _train(job)
        except UserError:
            if holder(job) is None:
                raise  # otherwise another process was faster, and the error was about its lock


def _train(job: Job) -> None:
    from dcp.runs.checkpoint import Cadence
    from dcp.runs.resuming import resume
    from dcp.runs.seeds import train_seeds
    from dcp.runs.training import train

    config, folder, options = Config(**asdict(job.settings)), job.folders[0], dict(vars(job.options))
    overwrite = options.pop("overwrite")
    options["cadence"] = Cadence(options.pop("checkpoint_evals"), options.pop("checkpoint_minutes"))
    options["display"] = heartbeat(job.progress)
    if len(job.seeds) > 1:
        train_seeds(config, job.seeds, runs_dir=job.root, resume=True, **options)
        return
    status = run_status(folder, job.settings)
    if overwrite or status.kind == "new":
        train(config, runs_dir=job.root, overwrite=overwrite, **options)
    elif status.kind == "interrupted":
        resume(folder, steps=status.steps, code=job.settings.code.values(), **options)
    elif status.kind != "finished":
        raise UserError(status.why)


@dataclass(frozen=True)
class Beat:
    """A heartbeat: how far a run is between two evaluations, in a small file."""

    env_steps: int
    total: int
    steps_per_second: float | None = None
    seconds_left: float | None = None
    at: float = 0.0  # time.time()


class Heartbeat(Display):
    """Write heartbeats and show nothing."""

    def __init__(self, config: Config, file: Path, clock: Callable[[], float] = time.monotonic):
        self._config, self._pace, self._file, self._clock = config, Pace(config), file, clock
        self._written: float | None = None

    def progress(self, progress: Progress) -> None:
        self._pace.update(progress)
        if self._written is None or self._clock() - self._written >= BEAT:
            self._write()

    def evaluated(self, rows: Sequence[Row]) -> None:
        self._pace.evaluated()
        self._write()

    def joined(self, seeds: Sequence[int], unrolls: int, evaluations: int) -> None:
        if unrolls:
            self._pace = Pace(self._config, unrolls, evaluations)
            self._write()

    def _write(self) -> None:
        self._written = self._clock()
        speed, left = self._pace.estimate() or (None, None)
        beat = Beat(self._pace.steps, self._pace.total, speed, left, time.time())
        with suppress(OSError):  # a run must not end because a number is missing in the table
            write_json(self._file, asdict(beat))


def heartbeat(file: Path) -> Callable[[Config, Path], Display]:
    """Return what `train(display=...)` takes. Removes the heartbeat of an earlier process."""
    with suppress(OSError):
        file.unlink(missing_ok=True)
    return lambda config, folder: Heartbeat(config, file)


def read_beat(file: Path) -> Beat | None:
    """Return the last heartbeat; None if none can be read."""
    return read_record(file, Beat)


@dataclass(frozen=True)
class Report:
    """What a process that Ray or SLURM started says about itself, in a JSON file: no pickle is loaded."""

    attempt: str  # which of the job's attempts: Ray's ticket, SLURM's number
    host: str
    process: int
    code: int | None = None  # None: it has not ended, or it will be requeued
    why: str = ""


def write_report(job: Job, attempt: str, code: int | None = None, why: str = "") -> None:
    """Say that this process works on the job, or with a code that it has ended."""
    write_json(job.report, asdict(Report(attempt, socket.gethostname(), os.getpid(), code, why)))


def read_report(job: Job, attempt: str | None = None) -> Report | None:
    """Return the job's report; with `attempt`, only if it belongs to that one."""
    report = read_record(job.report, Report)
    return None if report is None or attempt not in (None, report.attempt) else report


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
        about = folder.lstat()  # of a link itself, which somebody else may have left here
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
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
