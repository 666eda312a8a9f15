"""Runs, the status of their folders, and jobs: a job is one run, or several seeds that train as one program.

A run's status is read only from its folder, so a grid that is started again, or on another machine, knows as much as
the first one did.
"""

import json
import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, Self, TypeVar

from msgspec import Struct, structs

from dcp.config import SCHEMA_VERSION, Settings
from dcp.errors import UserError, one_line
from dcp.files import FAULT_FILE, require_no_links_out, validation, write_whole
from dcp.files.run_folder import load_run
from dcp.files.validation import FormatError, Name, checked, parse_json
from dcp.grid.resources import Resources, run_memory
from dcp.runs.folder import holds_run
from dcp.runs.run_status import differing, how_far, is_finished, owner, read_plan
from dcp.runs.tracking import Tracking

GRID_DIR = "grid"  # next to the runs: jobs/, logs/, progress/
SeedsAs = Literal["vmapped", "processes"]
State = Literal["waiting", "running", "finished", "failed", "stopped"]
Row = dict[str, float]  # of metrics.csv
T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """One run of a grid."""

    settings: Settings
    subfolder: str = ""

    @property
    def path(self) -> str:
        """Return its folder below the grid's --runs-dir."""
        return (PurePosixPath(self.subfolder) / self.settings.run_path).as_posix()


@dataclass(frozen=True)
class RunStatus:
    """new: nothing is there. interrupted: it can resume. other: another run is there. broken: it cannot be read."""

    kind: Literal["new", "interrupted", "finished", "other", "broken"]
    done: int = 0  # environment steps from which it can resume
    total: int = 0
    why: str = ""  # one sentence, for other and broken
    steps: int = 0  # to resume with: what is asked, or what the run had if that is more


@dataclass(frozen=True)
class Entry:
    """A run of the grid and the status of its folder when the grid began."""

    run: Run
    folder: Path
    status: RunStatus


@dataclass(frozen=True)
class JobStatus:
    """The state of a job's latest attempt, according to its launcher."""

    state: State
    why: str = ""  # one sentence, for a job that failed or was stopped
    where: str = ""  # "process 123", "node a, process 5", "SLURM job 17_3"
    code: int | None = None  # its exit code, once it has ended


@dataclass(frozen=True)
class RunOptions:
    """The options of `dcp train` that change no number of the run, under the same names."""

    overwrite: bool = False
    tracking: Tracking = field(default_factory=Tracking)
    keep_policies: bool = False
    cache: str | None = None
    checkpoint_evals: int = 1
    checkpoint_minutes: float = 15.0


@dataclass(frozen=True)
class Job:
    """Hold everything that decides what a process does. Its file names follow from that, so a new grid finds them."""

    settings: Settings  # with the first of the seeds
    seeds: tuple[int, ...]
    runs_dir: Path  # the grid's; absolute, and on shared storage if jobs run on several machines
    subfolder: str = ""  # from the grid file's `folder`: separates cells whose env, method and seed agree
    resources: Resources = field(default_factory=Resources)
    code: Path | None = None  # the folder in which the user's modules, and a file of seeds, are looked for
    imports: tuple[str, ...] = ()  # the user's modules to import before the run begins
    options: RunOptions = field(default_factory=RunOptions)

    @property
    def root(self) -> Path:
        """Return what `dcp train` calls --runs-dir."""
        return self.runs_dir / self.subfolder

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the run folder of each seed."""
        return tuple(self.root / replace(self.settings, seed=seed).run_path for seed in self.seeds)

    @property
    def name(self) -> str:
        """ant_u_maze/dcp/seed_0, or ant_u_maze/dcp/seeds_0-1-2; after the subfolder. Unique in its grid."""
        cell = Path(self.subfolder) / Path(self.settings.run_path).parent
        seeds = "-".join(str(seed) for seed in self.seeds)
        return (cell / f"seed{'s' * (len(self.seeds) > 1)}_{seeds}").as_posix()

    @property
    def grid_dir(self) -> Path:
        return self.runs_dir / GRID_DIR

    @property
    def file(self) -> Path:
        """Return where `save` writes it."""
        return self.grid_dir / "jobs" / f"{self.name}.json"

    @property
    def log(self) -> Path:
        """Return the file with what its processes printed, one after another."""
        return self.grid_dir / "logs" / f"{self.name}.log"

    @property
    def progress(self) -> Path:
        """Return where its process writes how far it is: see `Heartbeat`."""
        return self.grid_dir / "progress" / f"{self.name}.json"

    @property
    def report(self) -> Path:
        """Return where its process on another machine writes who it is and how it ended: see `Report`."""
        return self.grid_dir / "reports" / f"{self.name}.json"

    def command(self) -> list[str]:
        """Return the command of a child process that runs the saved job."""
        # -P: a module in the current folder must not replace one of Python's
        return [sys.executable, "-P", "-m", "dcp.grid.worker", str(self.file), str(os.getpid())]

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables of a process that Ray or SLURM starts.

        XLA gets one thread per core of the run, not of the machine, because their number decides how a run rounds.
        """
        return {"NPROC": str(self.resources.cores)}

    def to_json(self) -> str:
        """Return the content of its file, which `dcp train --config` reads too."""
        job = asdict(self)
        content = {"schema_version": SCHEMA_VERSION, "config": job.pop("settings"), "job": job}
        return json.dumps(content, indent=2, default=str)  # a path becomes text

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` gave. Raises UserError."""
        try:
            content = checked(parse_json(text), _JobFile)
            settings = Settings(**content.config)
        except (FormatError, TypeError) as error:
            raise UserError(f"this is not a job of `dcp grid` ({one_line(error)}): start the grid again") from error
        code = None if content.job.code is None else Path(content.job.code)
        return cls(settings, **structs.asdict(content.job) | {"runs_dir": Path(content.job.runs_dir), "code": code})

    @classmethod
    def read(cls, file: str | Path) -> Self:
        """Read what `save` wrote. Raises UserError."""
        try:
            return cls.from_json(validation.read_text(file))
        except (OSError, FormatError) as error:
            raise UserError(f"cannot read the job {file} ({one_line(error)}): start the grid again") from error

    def save(self) -> None:
        write_whole(self.file, self.to_json().encode())  # a job of an earlier grid may be reading it


class _StoredJob(Struct):
    """A job in its file, next to the config."""

    seeds: tuple[int, ...]
    runs_dir: str
    subfolder: str
    resources: Resources
    code: str | None
    imports: tuple[Name, ...] = ()
    options: RunOptions = RunOptions()


class _JobFile(Struct):
    config: dict[str, Any]
    job: _StoredJob


def run_status(folder: Path, asked: Settings) -> RunStatus:
    """Find how far the run in this folder is. `asked`: resolved; it may ask for more steps than the run had."""
    total = asked.num_unrolls * asked.env_steps_per_unroll
    if not holds_run(folder):
        return RunStatus("new", 0, total)
    try:
        stored, earlier = read_plan(folder)
        if names := differing(stored, earlier, asked):
            differences = (f"{n} {getattr(stored, n)} where {getattr(asked, n)} is asked for" for n in names[:3])
            why = f"holds another run ({', '.join(differences)}): choose another --runs-dir, or move that run away"
            return RunStatus("other", why=f"{folder} {why}")
        if is_finished(folder, verified=False) and asked.num_unrolls <= stored.num_unrolls:
            return RunStatus("finished", total, total)
        return RunStatus("interrupted", how_far(folder)[0], total, steps=max(asked.steps, stored.steps))
    except UserError as error:
        return RunStatus("broken", 0, total, " ".join(str(error).split()))


def last_row(folder: Path) -> Row | None:
    """Return the last evaluation; None before there is one."""
    try:
        metrics = load_run(folder).metrics
        return {name: float(values[-1]) for name, values in metrics.items()}
    except (UserError, LookupError):
        return None


def holder(job: Job) -> str | None:
    """Say which process writes to the job's folders now: "process 12 on host"; None if none does."""
    return next((writer for folder in job.folders if (writer := owner(folder)) is not None), None)


def fault(job: Job) -> str:
    """Say which number was not finite when the job's last process ended; empty if none was."""
    for file in (folder / FAULT_FILE for folder in job.folders):
        if file.exists():
            content = read_json(file)
            metrics, steps = content.get("metrics"), content.get("env_steps")
            numbers = metrics.items() if isinstance(metrics, dict) else ()
            bad = [f"{name} is {value}" for name, value in numbers if isinstance(value, str)]  # "nan", "inf"
            when = f" at {steps:,} environment steps" if isinstance(steps, int) else ""
            return f"{bad[0] if bad else 'a parameter is not finite'}{when}: see {file}"
    return ""


def survey(runs: Sequence[Run], runs_dir: Path) -> list[Entry]:
    """Look into the folder of every run; raise UserError if one holds another run.

    Links that lead out of the grid's own folders are refused too: writing there would change other files.
    """
    for name in (GRID_DIR, "report"):
        require_no_links_out(runs_dir / name, of=runs_dir)
    entries = [Entry(run, runs_dir / run.path, run_status(runs_dir / run.path, run.settings)) for run in runs]
    if others := [entry.status.why for entry in entries if entry.status.kind == "other"]:
        more = f" ({len(others) - 1} more folders also hold other runs)" if len(others) > 1 else ""
        raise UserError(f"{others[0]}{more}")
    return entries


def make_jobs(
    entries: Sequence[Entry],
    runs_dir: Path,
    each: Resources,
    seeds_as: SeedsAs,
    cwd: Path,
    imports: Sequence[str] = (),
    options: RunOptions = RunOptions(),  # noqa: B008
) -> list[Job]:
    """Make jobs of the runs that are new or interrupted, in the grid's order. `each`: the resources of every job.

    Memory is estimated here unless `each` sets it. Vmapped: the seeds of a cell are one job; if their checkpoints are
    at different steps, they train one group after another. A cell has one folder above its seeds, so a folder template
    with {seed} makes each seed a separate cell.
    """
    groups: dict[tuple[str, Settings], list[Settings]] = {}
    for entry in entries:
        if entry.status.kind in ("new", "interrupted"):
            settings = entry.run.settings
            cell = replace(settings, seed=0) if seeds_as == "vmapped" else settings
            groups.setdefault((entry.run.subfolder, cell), []).append(settings)
    jobs = []
    for (subfolder, _), settings in groups.items():
        first, seeds = settings[0], tuple(s.seed for s in settings)
        memory = each.memory_bytes or run_memory(first, len(seeds), on_gpu=each.gpus > 0)
        code = cwd if first.code or first.pool_seed or first.data or imports else None
        resources = replace(each, memory_bytes=memory)
        jobs.append(Job(first, seeds, runs_dir, subfolder, resources, code, tuple(imports), options))
    return jobs


def make_grid_folder(runs_dir: Path) -> None:
    """Make the grid's own folder next to its runs."""
    try:
        (runs_dir / GRID_DIR).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {runs_dir} ({error.strerror}): choose another --runs-dir") from error


def open_log(log: Path) -> IO[bytes]:
    """Open a log to append to it, as an ordinary file: not through a link, and not a pipe, which could block."""
    log.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.fdopen(os.open(log, flags, 0o666), "ab")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{log} is not a regular file")
    return file


def write_json(file: Path, content: Any) -> None:
    """Write a small file that a grid and its jobs share; a reader finds either the old content or the new."""
    write_whole(file, json.dumps(content, indent=2).encode(), durable=False)


def read_json(file: Path) -> dict[str, Any]:
    """Return what `write_json` wrote; an empty dictionary if the file is missing or cannot be read."""
    try:
        content = validation.read_json(file)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def read_record(file: Path, schema: type[T]) -> T | None:
    """Return a dataclass that `write_json` wrote; None if the file is missing or damaged."""
    try:
        return checked(validation.read_json(file), schema)
    except (OSError, ValueError):
        return None
