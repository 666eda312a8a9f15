"""`dcp grid`: run a grid file or a built-in grid, here or on a cluster, and write a report at the end."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS, EXIT_CODES, EXIT_FAULT, EXIT_INTERRUPTED, EXIT_REQUEUE
from dcp.cli.report import main as report
from dcp.cli.working import count
from dcp.config import cores
from dcp.errors import RunError, UserError, printable
from dcp.grid.driver import Driver
from dcp.grid.forecast import NOT_MEASURED, Cost, Forecaster, calibration_file, total_seconds
from dcp.grid.grid_display import Line, lines_from_folders, make_table, plain_line, summary
from dcp.grid.grid_file import PURPOSES, builtin_grid, check_runs, expand, read_grid
from dcp.grid.jobs import GRID_DIR, Entry, Job, SeedsAs, make_jobs, survey
from dcp.grid.launcher import LauncherName, RayOptions, SlurmOptions, make_launcher
from dcp.grid.pausing import pause, unpause
from dcp.grid.resources import (
    FreeResources,
    Resources,
    gpu_variables,
    gpus,
    parse_memory,
    require_fit,
    require_gpu_memory,
)
from dcp.machine.checks import machine_memory
from dcp.named_code import imported_modules
from dcp.runs.checkpoint import machine
from dcp.runs.terminal import clock

MOST_FAILURES = 8  # reported one by one


@dataclass(frozen=True)
class GridOptions:
    file: Annotated[tuple[Path, ...], POSITIONAL] = ()
    """A grid file (TOML); see docs/grid.md."""
    preset: str | None = None
    """A built-in grid instead of a file: see above."""
    where: tuple[str, ...] = ()
    """Only runs with KEY=VALUE, such as env=ant_* seed=0,1."""
    runs_dir: Path = Path("runs")
    """Results go to <runs-dir>/<env>/<method>/seed_<n>/; on a cluster, a folder that all machines share."""
    own_code: tuple[str, ...] = ()
    """Environments and parts that the file names as module:name and that may be loaded. They are code."""
    launcher: LauncherName = "local"
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
    gpus_per_run: float | None = None
    """GPUs per run, or a share of one, such as 0.25. Default: 1 if this machine has any; 0 with ray and slurm."""
    dry_run: bool = False
    """Print the runs, their state and what they will take, and run nothing."""
    calibration: bool = True
    """With --dry-run: measure the time of runs whose kind has not been measured on this machine."""
    calibrate: bool = False
    """With --dry-run: measure all kinds again."""
    status: bool = False
    """Print how far the grid is, from its folders, and run nothing. For a second terminal."""
    pause: bool = False
    """Pause the grid's runs on this machine (SIGSTOP) and start none until --unpause; run nothing."""
    unpause: bool = False
    """Let paused runs continue and start, and run nothing."""
    report: bool = True
    """End with `dcp report`, in <runs-dir>/report."""
    ray: RayOptions = field(default_factory=RayOptions)
    slurm: SlurmOptions = field(default_factory=SlurmOptions)


def main(argv: list[str]) -> int:
    options = parse(GridOptions(), argv, "dcp grid", _description())
    check_options(options)
    environ = dict(os.environ)  # the runs get it without this process's own changes
    _leave_gpus_alone()
    grid = read_grid(options.file[0]) if options.file else builtin_grid(options.preset or "")
    entries = survey(check_runs(expand(grid, options.where), options.own_code), options.runs_dir)
    each, seeds_as = _each(options)
    jobs = make_jobs(entries, options.runs_dir.absolute(), each, seeds_as, Path.cwd(), imported_modules())
    if options.status or options.pause or options.unpause:
        return _look(options, entries, jobs)
    free = _free(options)
    if options.dry_run:
        return _dry_run(options, entries, jobs, free, each, environ)
    return _run(options, entries, jobs, free, environ)


def _description() -> str:
    rows = [f"  {name:<8}{purpose}" for name, purpose in PURPOSES.items()]
    codes = {**EXIT_CODES, 0: "every run is finished", EXIT_FAULT: "some runs failed: see the sentences"}
    codes |= {EXIT_REQUEUE: "stopped by SIGINT or SIGTERM, with checkpoints: run it again"}
    codes |= {EXIT_INTERRUPTED: "(or 143) stopped before any run began, or by a third signal; the checkpoints are good"}
    told = [f"  {code:<8}{meaning}" for code, meaning in codes.items()]
    return "\n".join([COMMANDS["grid"], "", "grids (--preset):", *rows, "", "exit codes:", *told])


def check_options(options: GridOptions) -> None:
    """Raise UserError for flags that are wrong in themselves, before any file is read."""
    if len(options.file) > 1:
        raise UserError(f"one grid file at a time: {options.file[1]} is the second")
    if bool(options.file) == (options.preset is not None):
        swallowed = not options.file and any("=" not in condition for condition in options.where)
        where = "; --where takes all that follows it, so write the file before it" if swallowed else ""
        raise UserError(f"name a grid file or a --preset (paper, smoke), and only one of them{where}")
    least = {"retries": 0, "cores_per_run": 1, "max_runs": 1, "slurm_time": 1}
    for name, number in least.items():
        given = getattr(options.slurm if name == "slurm_time" else options, name)
        if given is not None and given < number:
            raise UserError(f"--{name.replace('_', '-')} is {given}: use at least {number}")
    share = options.gpus_per_run
    if share is not None and not (0 <= share < float("inf") and (share <= 1 or share == int(share))):
        raise UserError(f"--gpus-per-run is {share}: use a share from 0 to 1, or a whole number of GPUs")
    for launcher, given, default in (("ray", options.ray, RayOptions()), ("slurm", options.slurm, SlurmOptions())):
        for name, value in vars(given).items():
            if options.launcher != launcher and value != getattr(default, name):
                raise UserError(f"--{name.replace('_', '-')} goes with --launcher {launcher}, not {options.launcher}")
    if options.dry_run + options.status + options.pause + options.unpause > 1:
        raise UserError("choose one of --dry-run, --status, --pause and --unpause")
    for flag, given in (("--calibrate", options.calibrate), ("--no-calibration", not options.calibration)):
        if given and not options.dry_run:
            raise UserError(f"{flag} goes with --dry-run: nothing else measures")


def _leave_gpus_alone() -> None:
    """Keep JAX off the GPUs: this process only needs shapes, and JAX would take most of the runs' GPU memory."""
    import jax

    jax.config.update("jax_platforms", "cpu")


def _each(options: GridOptions) -> tuple[Resources, SeedsAs]:
    share = options.gpus_per_run
    if share is None:
        share = 1.0 if options.launcher == "local" and gpus() else 0.0
    seeds_as = options.seeds_as or ("vmapped" if share > 0 else "processes")
    return Resources(options.cores_per_run, 0, share), seeds_as


def _free(options: GridOptions) -> FreeResources:
    free = machine_memory()
    amount = parse_memory(options.memory) if options.memory else None if free is None else int(0.9 * free)
    if options.memory and free is not None and amount is not None and amount > free:
        raise UserError(
            f"--memory {options.memory} is more than the {free / 1e9:.1f} GB that are free here: ask for less"
        )
    return FreeResources(cores(), amount, {gpu.index: 1.0 for gpu in gpus()}, options.max_runs)


def _run(
    options: GridOptions, entries: Sequence[Entry], jobs: Sequence[Job], free: FreeResources, environ: dict[str, str]
) -> int:
    if options.launcher == "local":
        require_gpu_memory(jobs, [gpu.memory_bytes for gpu in gpus()])
    launcher = make_launcher(options.launcher, jobs, free, options.ray, options.slurm, environ)
    if jobs:
        launcher.require()
        try:
            (options.runs_dir / GRID_DIR).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot write to {options.runs_dir} ({error.strerror}): choose another --runs-dir"
            ) from error
    with make_table() as table:
        driver = Driver(launcher, entries, jobs, table, options.retries)
        lines = driver.run()
    if driver.stopped:
        print("Stopped. The same command resumes the runs.")
        return EXIT_REQUEUE
    return _ended(options, lines)


def _ended(options: GridOptions, lines: Sequence[Line]) -> int:
    failed = [line for line in lines if line.state != "finished"]
    for line in failed[:MOST_FAILURES]:
        attempt = f" at attempt {line.attempt}" if line.attempt > 1 else ""
        print(f"{line.name} {line.state}{attempt}: {line.why}", file=sys.stderr)
    if failed:
        rest = f"{len(failed) - MOST_FAILURES} more failed; " if len(failed) > MOST_FAILURES else ""
        logs = options.runs_dir / GRID_DIR / "logs"
        print(f"{rest}logs are in {logs}; the same command tries them again.", file=sys.stderr)
    if options.report and any(line.row is not None for line in lines):
        try:
            report([str(options.runs_dir), "--out", str(options.runs_dir / "report")])
        except UserError as error:  # the runs are done: exit code 2 would say that nothing ran
            raise RunError(f"the runs have ended, but there is no report: {error}") from error
    return EXIT_FAULT if failed else 0


def _look(options: GridOptions, entries: Sequence[Entry], jobs: Sequence[Job]) -> int:
    """Print the grid's status, read from its folders; or pause its runs, or let them continue."""
    if options.pause or options.unpause:
        send, word = (pause, "paused") if options.pause else (unpause, "continued")
        told = send(options.runs_dir, [entry.run.path for entry in entries])
        if told.runs or not told.refused:
            print(f"{word} {', '.join(told.runs)}" if told.runs else "no process of this grid runs on this machine")
        if options.pause:
            print("none of its runs starts on this machine until --unpause")
        for sentence in told.refused:
            print(sentence, file=sys.stderr)
        return EXIT_FAULT if told.refused else 0
    for line in lines_from_folders(entries, jobs):
        print(printable(plain_line(line)))
        if line.notice:
            print(f"  {printable(line.notice)}")
    print(summary(lines_from_folders(entries, jobs)))
    return 0


def _dry_run(
    options: GridOptions,
    entries: Sequence[Entry],
    jobs: Sequence[Job],
    free: FreeResources,
    each: Resources,
    environ: dict[str, str],
) -> int:
    """Print the runs, their state, and what they need on this machine."""
    if options.launcher == "local":
        require_fit(free, jobs)
    forecaster = Forecaster.of(entries, each, machine()["processor"], calibration_file())
    if options.calibration:
        chosen = tuple(free.gpus)[: ceil(each.gpus)]  # as many as one run gets
        environ = environ | gpu_variables(chosen, each.gpus, bool(free.gpus))
        _calibrate(forecaster, forecaster.unknown(jobs, options.calibrate), environ)
    by_path = {entry.run.path: entry.status for entry in entries}
    statuses = {job.name: by_path[job.folders[0].relative_to(job.runs_dir).as_posix()] for job in jobs}
    costs = {job.name: forecaster.cost(job, 1.0 - statuses[job.name].done / statuses[job.name].total) for job in jobs}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("run", "state", "steps", "time", "memory", "how the time is known"):
        table.add_column(title, no_wrap=True, justify="right" if title in ("steps", "time", "memory") else "left")
    for entry in entries:
        if entry.status.kind in ("finished", "broken"):
            state = "finished" if entry.status.kind == "finished" else "failed"
            table.add_row(entry.run.path, state, f"{entry.status.total:,}", "-", "-", entry.status.why)
    for job in jobs:
        status, cost = statuses[job.name], costs[job.name]
        state = "new" if status.kind == "new" else f"resumes from {status.done:,}"
        time = NOT_MEASURED if cost.seconds is None else clock(round(cost.seconds))
        memory = f"{job.resources.memory_bytes / 1e9:.2f} GB"
        table.add_row(job.name, state, f"{status.total:,}", time, memory, cost.how if cost.seconds is not None else "")
    # Without markup, because a sentence may contain [brackets].
    Console(width=None if sys.stdout.isatty() else 200, soft_wrap=True, markup=False).print(table)
    _print_total(options, entries, jobs, costs, free)
    return 0


def _calibrate(forecaster: Forecaster, jobs: Sequence[Job], environ: dict[str, str]) -> None:
    for at, job in enumerate(jobs, 1):
        what = f"calibration {at} of {len(jobs)}: {job.settings.env}"
        print(f"{what} (compiling may take a minute)", file=sys.stderr, flush=True)
        measured = forecaster.calibrate(job, environ)
        speed = job.settings.env_steps_per_unroll / measured.iteration_seconds
        print(
            f"{what}: {speed:,.0f} steps/s, compiled in {measured.compile_seconds:.0f} s, "
            f"peak {measured.peak_bytes / 1e9:.2f} GB",
            file=sys.stderr,
            flush=True,
        )


def _print_total(
    options: GridOptions, entries: Sequence[Entry], jobs: Sequence[Job], costs: dict[str, Cost], free: FreeResources
) -> None:
    finished = sum(entry.status.kind == "finished" for entry in entries)
    runs = sum(len(job.seeds) for job in jobs)
    print(f"\n{count(len(entries), 'run')}: {finished} finished, {runs} to do as {count(len(jobs), 'job')}")
    missing = sum(cost.seconds is None for cost in costs.values())
    if missing:
        print(f"Time: {count(missing, 'job')} not measured: run it without --no-calibration")
        return
    seconds = {name: cost.seconds or 0.0 for name, cost in costs.items()}
    work = sum(seconds[job.name] * job.resources.cores for job in jobs)
    print(f"Work: {work / 3600:,.1f} core-hours on this machine")
    if options.launcher == "local" and jobs:
        total = total_seconds(jobs, lambda job: seconds[job.name], free)
        bound = f"{free.cores} cores, {'?' if free.memory_bytes is None else f'{free.memory_bytes / 1e9:.1f}'} GB"
        there = f", {len(free.gpus)} GPUs" if free.gpus else ""
        print(f"Time: {clock(round(total))} here, on {bound}{there}")
