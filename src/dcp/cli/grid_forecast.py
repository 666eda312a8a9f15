"""`dcp grid --dry-run`: the runs, how they stand, and what they will take on this machine."""

import sys
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from dcp.cli.report import count
from dcp.grid import calibration
from dcp.grid.forecast import NOT_MEASURED, Cost, Forecaster, total_seconds
from dcp.grid.jobs import Job, Resources
from dcp.grid.launchers.local import gpu_variables
from dcp.grid.plan import Entry
from dcp.grid.room import Room, require_room
from dcp.runs.checkpoint import machine
from dcp.runs.display import clock

if TYPE_CHECKING:
    from dcp.cli.grid import GridOptions


def dry_run(
    options: "GridOptions",
    entries: Sequence[Entry],
    jobs: Sequence[Job],
    room: Room,
    each: Resources,
    environ: dict[str, str],
) -> int:
    if options.launcher == "local":
        require_room(room, list(jobs))
    forecaster = Forecaster.of(entries, each, machine()["processor"], calibration.file())
    if options.calibration:
        chosen = tuple(room.gpus)[: ceil(each.gpus)]  # no more than a run will see
        environ = environ | gpu_variables(chosen, each.gpus, bool(room.gpus))
        _calibrate(forecaster, forecaster.unknown(jobs, options.calibrate), environ)
    costs = {job.name: forecaster.cost(job, _share_left(job, entries, options)) for job in jobs}
    _print_runs(entries, jobs, costs, options)
    _print_total(options, entries, jobs, costs, room)
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


def _share_left(job: Job, entries: Sequence[Entry], options: "GridOptions") -> float:
    standing = {entry.run.path: entry.standing for entry in entries}
    found = standing[job.folders[0].relative_to(job.runs_dir).as_posix()]
    return 1.0 - found.done / found.total


def _print_runs(entries: Sequence[Entry], jobs: Sequence[Job], costs: dict[str, Cost], options: "GridOptions") -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("run", "state", "steps", "time", "memory", "how the time is known"):
        table.add_column(title, no_wrap=True, justify="right" if title in ("steps", "time", "memory") else "left")
    for entry in entries:
        if entry.standing.kind in ("finished", "broken"):
            state = "finished" if entry.standing.kind == "finished" else "failed"
            table.add_row(entry.run.path, state, f"{entry.standing.total:,}", "-", "-", entry.standing.why)
    standing = {entry.run.path: entry.standing for entry in entries}
    for job in jobs:
        found = standing[job.folders[0].relative_to(job.runs_dir).as_posix()]
        state = "new" if found.kind == "new" else f"goes on from {found.done:,}"
        cost = costs[job.name]
        time = NOT_MEASURED if cost.seconds is None else clock(round(cost.seconds))
        memory = f"{job.resources.memory_bytes / 1e9:.2f} GB"
        table.add_row(job.name, state, f"{found.total:,}", time, memory, cost.how if cost.seconds is not None else "")
    # No markup: a sentence may have [brackets].
    Console(width=None if sys.stdout.isatty() else 200, soft_wrap=True, markup=False).print(table)


def _print_total(
    options: "GridOptions", entries: Sequence[Entry], jobs: Sequence[Job], costs: dict[str, Cost], room: Room
) -> None:
    finished = sum(entry.standing.kind == "finished" for entry in entries)
    runs = sum(len(job.seeds) for job in jobs)
    print(f"\n{count(len(entries), 'run')}: {finished} finished, {runs} to do as {count(len(jobs), 'job')}")
    missing = sum(cost.seconds is None for cost in costs.values())
    if missing:
        print(f"Time: {count(missing, 'job')} not measured: run it without --no-calibration")
        return
    seconds = {name: cost.seconds or 0.0 for name, cost in costs.items()}
    work = sum(seconds[job.name] * job.resources.cores for job in jobs)
    print(f"Work: {work / 3600:,.1f} core-hours as this machine computes")
    if options.launcher == "local" and jobs:
        total = total_seconds(jobs, lambda job: seconds[job.name], room)
        bound = f"{room.cores} cores, {'?' if room.memory_bytes is None else f'{room.memory_bytes / 1e9:.1f}'} GB"
        gpus = f", {len(room.gpus)} GPUs" if room.gpus else ""
        print(f"Time: {clock(round(total))} here, on {bound}{gpus}")
