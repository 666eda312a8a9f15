"""Jobs of the longer tiny run, and a display that disturbs them. As many cores as this process has: the same programs,
so nothing is compiled twice, and the same bits as `longer_run`."""

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dcp.config import cores
from dcp.grid.grid_display import Line
from dcp.grid.grid_file import check_runs, expand, parse_grid
from dcp.grid.jobs import Entry, Job, SeedsAs, make_jobs, survey
from dcp.grid.resources import Resources
from tests.support.tiny import LONGER

EACH = Resources(cores(), memory_bytes=1)


def content(**product: list) -> dict:
    return {"preset": "smoke", "set": {"depth": 1, **LONGER}, "product": product}


def as_toml(path: Path, **product: list) -> Path:
    """The same grid as a file."""
    table = content(**product)
    lines = ['preset = "smoke"', "[set]", *(f"{name} = {value}" for name, value in table["set"].items()), "[product]"]
    path.write_text("\n".join([*lines, *(f"{name} = {json.dumps(values)}" for name, values in product.items())]))
    return path


def planned(runs_dir: Path, seeds_as: SeedsAs = "processes", **product: list) -> tuple[list[Entry], list[Job]]:
    runs = check_runs(expand(parse_grid(content(**product), "test")))
    entries = survey(runs, runs_dir)
    return entries, make_jobs(entries, runs_dir, EACH, seeds_as, Path.cwd())


class Killer:
    """Ends the process of one job, once, when its folder has some evaluations."""

    def __init__(self, name: str | None = None, after: int = 3, number: int = signal.SIGKILL):
        self.name, self.after, self.number = name, after, number
        self.notes: list[str] = []
        self.seen: set[str] = set()

    def update(self, lines: Sequence[Line]) -> None:
        self.seen |= {f"{line.name} {line.state}" for line in lines}
        for line in lines:
            if line.name == self.name and line.state == "running" and line.row and line.row["evaluation"] >= self.after:
                self.name = None
                os.kill(int(line.where.split()[-1]), self.number)

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


def files(folder: Path) -> dict[Path, int]:
    """Every file with the time of its last change."""
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}


def with_cores(jobs: Sequence[Job], count: int) -> list[Job]:
    return [replace(job, resources=replace(job.resources, cores=count)) for job in jobs]
