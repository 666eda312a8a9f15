"""`dcp grid`: run a grid file or a built-in grid, here or on a cluster, and write a report at the end."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import jax

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS, EXIT_CODES, EXIT_FAULT, EXIT_INTERRUPTED, EXIT_REQUEUE
from dcp.cli.report import main as report
from dcp.config import Config
from dcp.errors import RunError, UserError
from dcp.grid import resources
from dcp.grid.grid_display import lines_from_folders, make_table, plain_line, summary
from dcp.grid.grid_file import PURPOSES, builtin_grid, check_runs, expand, read_grid
from dcp.grid.jobs import Entry, Job, SeedsAs, make_grid_folder, make_jobs, survey
from dcp.grid.launcher import Driver, Launcher, LocalLauncher
from dcp.grid.ray_launcher import RayLauncher, RayOptions
from dcp.grid.resources import FreeResources, Resources, free_here, gpus
from dcp.grid.slurm_launcher import SlurmLauncher, SlurmOptions
from dcp.machine.checks import machine_memory
from dcp.named_code import imported_modules
from dcp.runs.plain_display import in_words, rough_seconds

MOST_FAILURES = 8  # reported one by one


@dataclass(frozen=True)
class GridOptions:
    file: Annotated[tuple[Path, ...], POSITIONAL] = ()
    """A grid file (TOML): settings under [set], values to combine under [product], in step under [[zip]]."""
    preset: str | None = None
    """A built-in grid instead of a file: see above."""
    where: tuple[str, ...] = ()
    """Only runs with KEY=VALUE, such as env=ant_* seed=0,1."""
    runs_dir: Path = Path("runs")
    """Results go to <runs-dir>/<env>/<method>/seed_<n>/; on a cluster, a folder that all machines share."""
    own_code: tuple[str, ...] = ()
    """Environments and parts that the file names as module:name and that may be loaded. They are code."""
    launcher: Literal["local", "ray", "slurm"] = "local"
    """local: processes here. ray: tasks of a Ray cluster. slurm: array jobs, through submitit."""
    seeds_as: SeedsAs | None = None
    """vmapped: the seeds of a cell as one program. processes: one process per seed. Default: vmapped on a GPU."""
    retries: int = 2
    """How many times to resume a run that failed or was killed."""
    max_runs: int | None = None
    """At most this many runs at once. Default: as many as cores, memory and GPUs allow."""
    cores_per_run: int = 1
    """Cores per run. The number decides how results round; one is the most efficient for many runs."""
    memory: str | None = None
    """Memory for all runs at once here, such as 12GB. Default: nine tenths of what is free."""
    gpus_per_run: int | None = None
    """GPUs per run. Default: 1 if this machine has any; 0 with ray and slurm."""
    dry_run: bool = False
    """Print how far each run is and what the rest will take, and run nothing. Also while the grid runs elsewhere."""
    report: bool = True
    """End with `dcp report`, in <runs-dir>/report."""
    ray: RayOptions = field(default_factory=RayOptions)
    slurm: SlurmOptions = field(default_factory=SlurmOptions)


def main(argv: list[str]) -> int:
    options = parse(GridOptions(), argv, "dcp grid", _description())
    check_options(options)
    environ = dict(os.environ)  # the runs get it without this process's own changes
    jax.config.update("jax_platforms", "cpu")  # this process only needs shapes: the GPUs' memory is the runs'
    grid = read_grid(options.file[0]) if options.file else builtin_grid(options.preset or "")
    entries = survey(check_runs(expand(grid, options.where), options.own_code), options.runs_dir)
    each, seeds_as = _each(options)
    jobs = make_jobs(entries, options.runs_dir.absolute(), each, seeds_as, Path.cwd(), imported_modules())
    if options.dry_run:
        return _dry_run(options, entries, jobs)
    return _run(options, entries, jobs, _free(options), environ)


def _description() -> str:
    rows = [f"  {name:<8}{purpose}" for name, purpose in PURPOSES.items()]
    codes = {**EXIT_CODES, 0: "every run is finished", EXIT_FAULT: "some runs failed: see the sentences"}
    codes |= {EXIT_REQUEUE: "stopped by SIGINT or SIGTERM, with checkpoints: run it again"}
    codes |= {EXIT_INTERRUPTED: "(or 143) stopped before any run began, or by a third signal; the checkpoints are good"}
    meanings = [f"  {code:<8}{meaning}" for code, meaning in codes.items()]
    return "\n".join([COMMANDS["grid"], "", "grids (--preset):", *rows, "", "exit codes:", *meanings])


def check_options(options: GridOptions) -> None:
    """Raise UserError for flags that are wrong in themselves, before any file is read."""
    if len(options.file) > 1:
        raise UserError(f"one grid file at a time: {options.file[1]} is the second")
    if bool(options.file) == (options.preset is not None):
        swallowed = not options.file and any("=" not in condition for condition in options.where)
        where = "; --where takes all that follows it, so write the file before it" if swallowed else ""
        raise UserError(f"name a grid file or a --preset (paper, smoke), and only one of them{where}")
    least = {"retries": 0, "cores_per_run": 1, "max_runs": 1, "gpus_per_run": 0, "slurm_time": 1}
    for name, number in least.items():
        amount = getattr(options.slurm if name == "slurm_time" else options, name)
        if amount is not None and amount < number:
            raise UserError(f"--{name.replace('_', '-')} is {amount}: use at least {number}")
    for launcher, flags, default in (("ray", options.ray, RayOptions()), ("slurm", options.slurm, SlurmOptions())):
        for name, value in vars(flags).items():
            if options.launcher != launcher and value != getattr(default, name):
                raise UserError(f"--{name.replace('_', '-')} goes with --launcher {launcher}, not {options.launcher}")


def _each(options: GridOptions) -> tuple[Resources, SeedsAs]:
    each = options.gpus_per_run
    if each is None:
        each = 1 if options.launcher == "local" and gpus() else 0
    return Resources(options.cores_per_run, 0, each), options.seeds_as or ("vmapped" if each else "processes")


def _free(options: GridOptions) -> FreeResources:
    free = free_here(options.max_runs)
    if not options.memory:
        return free
    amount, free_memory = resources.parse_memory(options.memory), machine_memory()
    if free_memory is not None and amount > free_memory:
        raise UserError(
            f"--memory {options.memory} is more than the {free_memory / 1e9:.1f} GB that are free here: ask for less"
        )
    return replace(free, memory_bytes=amount)


def _run(
    options: GridOptions, entries: Sequence[Entry], jobs: Sequence[Job], free: FreeResources, environ: dict[str, str]
) -> int:
    if options.launcher == "local":
        resources.require_gpu_memory(jobs, [gpu.memory_bytes for gpu in gpus()])
    launcher = _launcher(options, jobs, free, environ)
    if jobs:
        launcher.require()
        make_grid_folder(options.runs_dir)
    with make_table() as table:
        driver = Driver(launcher, entries, jobs, table, options.retries)
        lines = driver.run()
    code = exit_code(driver, "the same command")
    if code != EXIT_REQUEUE and options.report and any(line.row is not None for line in lines):
        _report(options.runs_dir)
    return code


def _launcher(options: GridOptions, jobs: Sequence[Job], free: FreeResources, environ: dict[str, str]) -> Launcher:
    """Make the launcher. `free` limits what runs at once here; on a cluster only --max-runs does."""
    if options.launcher == "ray":
        return RayLauncher(jobs, options.ray, free)
    if options.launcher == "slurm":
        return SlurmLauncher(options.slurm, free.jobs)
    return LocalLauncher(free, jobs, environ)


def exit_code(driver: Driver, again: str) -> int:
    """Say which jobs failed, and return the command's exit code. `again`: the command that tries them again."""
    failed = [line for line in driver.lines if line.state != "finished"]
    if driver.stopped and failed:
        print(f"Stopped. {again.capitalize()} resumes the runs.")
        return EXIT_REQUEUE
    for line in failed[:MOST_FAILURES]:
        attempt = f" at attempt {line.attempt}" if line.attempt > 1 else ""
        print(f"{line.name} {line.state}{attempt}: {line.why}", file=sys.stderr)
    if failed:
        rest = f"{len(failed) - MOST_FAILURES} more failed; " if len(failed) > MOST_FAILURES else ""
        logs = f"logs are in {driver.jobs[0].grid_dir / 'logs'}; " if driver.jobs else ""
        print(f"{rest}{logs}{again} tries them again.", file=sys.stderr)
    return EXIT_FAULT if failed else 0


def _report(runs_dir: Path) -> None:
    try:
        report([str(runs_dir), "--out", str(runs_dir / "report")])
    except UserError as error:  # the runs are done: exit code 2 would say that nothing ran
        raise RunError(f"the runs have ended, but there is no report: {error}") from error


def _dry_run(options: GridOptions, entries: Sequence[Entry], jobs: Sequence[Job]) -> int:
    """Print how far each run is, what each job needs, and roughly how long the rest takes."""
    needs = {job.name: _needs(job, entries) for job in jobs}
    for line in lines_from_folders(entries, jobs):
        memory, seconds = needs.get(line.name, (None, None))
        time = "" if seconds is None else f", roughly {in_words(seconds)}"
        print(plain_line(line) + ("" if memory is None else f"; takes {memory / 1e9:.2f} GB{time}"))
    print(summary(lines_from_folders(entries, jobs)))
    whole = [seconds for _, seconds in needs.values() if seconds is not None]
    if whole:
        work = sum(seconds * job.resources.cores for seconds, job in zip(whole, jobs, strict=True))
        print(f"Work: roughly {work / 3600:,.1f} core-hours on this machine")
    if options.launcher == "local":
        free = _free(options)
        resources.require_fit([free], jobs)
        at_once = min((free.count(job.resources) for job in jobs), default=1)
        if whole:  # shared evenly by as many as fit at once, and at least the longest
            print(f"Time: roughly {in_words(max([sum(whole) / at_once, *whole]))} here")
    return 0


def _needs(job: Job, entries: Sequence[Entry]) -> tuple[int, float | None]:
    """Return a job's memory in bytes, and roughly its seconds on its cores; None on a GPU, which was never timed."""
    done = {entry.folder.absolute(): entry.status.done for entry in entries}[job.folders[0]]
    seconds = None if job.resources.gpus else rough_seconds(Config(**vars(job.settings)), job.resources.cores)
    total = job.settings.num_unrolls * job.settings.env_steps_per_unroll
    left = None if seconds is None else seconds * len(job.seeds) * (1.0 - done / total)
    return job.resources.memory_bytes, left
