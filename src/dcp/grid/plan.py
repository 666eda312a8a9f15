"""What is left to do: runs with their folders, and the unfinished ones as jobs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dcp.config import Settings
from dcp.errors import UserError
from dcp.grid.expansion import Run
from dcp.grid.jobs import Job, Resources
from dcp.grid.memory import run_memory
from dcp.grid.standing import Standing, standing
from dcp.runs.run_status import own_environments

SeedsAs = Literal["vmapped", "processes"]


@dataclass(frozen=True)
class Entry:
    """A run of the grid and how its folder stood when the grid began."""

    run: Run
    folder: Path
    standing: Standing


def survey(runs: Sequence[Run], runs_dir: Path) -> list[Entry]:
    """Raises where a folder holds another run: the grid would not be what its file says."""
    entries = []
    for run in runs:
        folder = runs_dir / run.path
        entries.append(Entry(run, folder, standing(folder, run.settings)))
    others = [entry.standing.why for entry in entries if entry.standing.kind == "other"]
    if others:
        more = f" ({len(others) - 1} more folders hold other runs, too)" if len(others) > 1 else ""
        raise UserError(f"{others[0]}{more}")
    return entries


def make_jobs(entries: Sequence[Entry], runs_dir: Path, each: Resources, seeds_as: SeedsAs, cwd: Path) -> list[Job]:
    """Of runs that are new or interrupted, in the grid's order. `each`: memory is estimated here, unless it is given.

    Vmapped: the seeds of a cell are one job; where they stand at different steps, those behind go first. A cell has
    one folder above its seeds: a template that names {seed} makes each a cell of its own.
    """
    groups: dict[tuple[str, Settings], list[Entry]] = {}
    for entry in entries:
        if entry.standing.kind in ("new", "interrupted"):
            cell = replace(entry.run.settings, seed=0) if seeds_as == "vmapped" else entry.run.settings
            groups.setdefault((entry.run.subfolder, cell), []).append(entry)
    return [_job([entry.run for entry in group], runs_dir, each, cwd) for group in groups.values()]


def _job(runs: list[Run], runs_dir: Path, each: Resources, cwd: Path) -> Job:
    first = runs[0].settings
    seeds = tuple(run.settings.seed for run in runs)
    memory = each.memory_bytes or run_memory(first, len(seeds), on_gpu=each.gpus > 0)
    code = cwd if own_environments(first) or first.pool_seed else None
    return Job(first, seeds, runs_dir, runs[0].subfolder, replace(each, memory_bytes=memory), code)
