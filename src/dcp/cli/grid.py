"""`dcp grid`: many runs from a grid file or a built-in grid, here or on a cluster, and a report at the end."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.grid_check import check_options
from dcp.cli.main import COMMANDS, EXIT_CODES, EXIT_FAULT, EXIT_INTERRUPTED, EXIT_REQUEUE
from dcp.errors import RunError, UserError
from dcp.grid.launchers.options import RayOptions, SlurmOptions
from dcp.grid.launchers.table import LauncherName
from dcp.grid.plan import SeedsAs

if TYPE_CHECKING:
    from dcp.grid.jobs import Job, Resources
    from dcp.grid.plan import Entry
    from dcp.grid.room import Room
    from dcp.grid.watch import Line

MOST_FAILURES = 8  # told one by one


@dataclass(frozen=True)
class GridOptions:
    file: Annotated[tuple[Path, ...], POSITIONAL] = ()
    """A grid file (TOML); see docs/grid.md."""
    preset: str | None = None
    """A built-in grid in place of a file: see above."""
    where: tuple[str, ...] = ()
    """Only runs with KEY=VALUE, such as env=ant_* seed=0,1."""
    runs_dir: Path = Path("runs")
    """Results go to <runs-dir>/<env>/<method>/seed_<n>/; on a cluster, a folder that all machines share."""
    own_env: tuple[str, ...] = ()
    """Environments named as module:factory in the file that may be loaded: they are code."""
    launcher: LauncherName = "local"
    """local: processes here. ray: tasks of a Ray cluster. slurm: array jobs, through submitit."""
    seeds_as: SeedsAs | None = None
    """vmapped: seeds of a cell as one program. processes: one each. Default: vmapped on a GPU."""
    retries: int = 2
    """Times that a run which failed or was killed goes on from its checkpoint."""
    max_runs: int | None = None
    """At most so many at once. Default: as many as cores, memory and GPUs allow."""
    cores_per_run: int = 1
    """Cores of each run: they decide its bits. One is the most efficient where there are many runs."""
    memory: str | None = None
    """Memory for all runs at once here, such as 12GB. Default: nine tenths of what is free."""
    gpus_per_run: float | None = None
    """GPUs of each run, or a share of one, such as 0.25. Default: 1 where there are any."""
    dry_run: bool = False
    """Print the runs, how they stand and what they will take, and run nothing."""
    calibration: bool = True
    """With --dry-run: measure what kinds of runs take that have not been measured on this machine."""
    calibrate: bool = False
    """With --dry-run: measure all kinds anew."""
    report: bool = True
    """End with `dcp report`, in <runs-dir>/report."""
    ray: RayOptions = field(default_factory=RayOptions)
    slurm: SlurmOptions = field(default_factory=SlurmOptions)


def main(argv: list[str]) -> int:
    options = parse(GridOptions(), argv, "dcp grid", _description())
    check_options(options)
    environ = dict(os.environ)  # of the runs: what this process does to its own is not theirs
    _leave_gpus_alone()
    entries = _survey(options)
    from dcp.grid.plan import make_jobs

    each, seeds_as = _each(options)
    jobs = make_jobs(entries, options.runs_dir.absolute(), each, seeds_as, Path.cwd())
    room = _room(options)
    if options.dry_run:
        from dcp.cli.grid_forecast import dry_run

        return dry_run(options, entries, jobs, room, each, environ)
    return _run(options, entries, jobs, room, environ)


def _description() -> str:
    from dcp.grid.builtin import PURPOSES

    rows = [f"  {name:<8}{purpose}" for name, purpose in PURPOSES.items()]
    codes = {**EXIT_CODES, 0: "every run is finished", EXIT_FAULT: "some runs failed: see the sentences"}
    codes |= {EXIT_REQUEUE: "stopped by SIGINT or SIGTERM, with checkpoints: run it again"}
    codes |= {EXIT_INTERRUPTED: "(or 143) stopped before any run began, or by a third signal; the checkpoints are good"}
    told = [f"  {code:<8}{meaning}" for code, meaning in codes.items()]
    return "\n".join([COMMANDS["grid"], "", "grids (--preset):", *rows, "", "exit codes:", *told])


def _leave_gpus_alone() -> None:
    """This process only looks at shapes. JAX would take most of a GPU's memory, which is the runs'."""
    import jax

    jax.config.update("jax_platforms", "cpu")


def _survey(options: GridOptions) -> "list[Entry]":
    from dcp.grid.builtin import builtin_grid
    from dcp.grid.expansion import check_runs, expand
    from dcp.grid.file import read_grid
    from dcp.grid.plan import survey

    grid = read_grid(options.file[0]) if options.file else builtin_grid(options.preset or "")
    return survey(check_runs(expand(grid, options.where), options.own_env), options.runs_dir)


def _each(options: GridOptions) -> "tuple[Resources, SeedsAs]":
    from dcp.grid.jobs import Resources
    from dcp.grid.machine import gpus

    share = options.gpus_per_run
    if share is None:
        share = 1.0 if options.launcher == "local" and gpus() else 0.0
    seeds_as = options.seeds_as or ("vmapped" if share > 0 else "processes")
    return Resources(options.cores_per_run, 0, share), seeds_as


def _room(options: GridOptions) -> "Room":
    from dcp.checks import machine_memory
    from dcp.devices import cores
    from dcp.grid.machine import gpus, memory_bytes
    from dcp.grid.room import Room

    free = machine_memory()
    amount = memory_bytes(options.memory) if options.memory else None if free is None else int(0.9 * free)
    if options.memory and free is not None and amount is not None and amount > free:
        raise UserError(
            f"--memory {options.memory} is more than the {free / 1e9:.1f} GB that are free here: ask for less"
        )
    return Room(cores(), amount, {gpu.index: 1.0 for gpu in gpus()}, options.max_runs)


def _run(
    options: GridOptions, entries: "Sequence[Entry]", jobs: "Sequence[Job]", room: "Room", environ: dict[str, str]
) -> int:
    from dcp.grid.driver import Driver
    from dcp.grid.launchers.table import make_launcher
    from dcp.grid.machine import gpus
    from dcp.grid.memory import require_gpu_memory
    from dcp.grid.table import make_table

    if options.launcher == "local":
        require_gpu_memory(jobs, [gpu.memory_bytes for gpu in gpus()])
    launcher = make_launcher(options.launcher, jobs, room, options.ray, options.slurm, environ)
    if jobs:
        launcher.require()
        _require_writable(options.runs_dir)
    with make_table() as table:
        driver = Driver(launcher, entries, jobs, table, options.retries)
        lines = driver.run()
    if driver.stopped:
        print("Stopped. The same command goes on where it was.")
        return EXIT_REQUEUE
    return _ended(options, lines)


def _require_writable(runs_dir: Path) -> None:
    from dcp.grid.jobs import GRID_DIR

    try:
        (runs_dir / GRID_DIR).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {runs_dir} ({error.strerror}): choose another --runs-dir") from error


def _attempts(number: int) -> str:
    return f" at attempt {number}" if number > 1 else ""


def _ended(options: GridOptions, lines: "Sequence[Line]") -> int:
    failed = [line for line in lines if line.state != "finished"]
    for line in failed[:MOST_FAILURES]:
        print(f"{line.name} {line.state}{_attempts(line.attempt)}: {line.why}", file=sys.stderr)
    if failed:
        rest = f"{len(failed) - MOST_FAILURES} more failed; " if len(failed) > MOST_FAILURES else ""
        logs = options.runs_dir / "grid" / "logs"
        print(f"{rest}logs are in {logs}; the same command tries them again.", file=sys.stderr)
    if options.report and any(line.row is not None for line in lines):
        _report(options.runs_dir)
    return EXIT_FAULT if failed else 0


def _report(runs_dir: Path) -> None:
    from dcp.cli.report import main as report

    try:
        report([str(runs_dir), "--out", str(runs_dir / "report")])
    except UserError as error:  # not of this command, whose runs are what they are
        raise RunError(f"the runs have ended, but there is no report: {error}") from error
