"""What the table shows of a job: its launcher's word for its state, and for the rest its run folders and heartbeat."""

import time
from dataclasses import dataclass
from pathlib import Path

from dcp.grid.heartbeat import read_beat
from dcp.grid.jobs import Job
from dcp.grid.launchers.interface import State, Status
from dcp.grid.plan import Entry
from dcp.grid.standing import Row, changed_at, last_row

STALE = 600.0  # seconds after which a heartbeat tells no speed any more


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    name: str
    state: State
    done: int  # environment steps of each of its seeds
    total: int
    seeds: int = 1
    attempt: int = 1
    speed: float | None = None  # environment steps a second, of each of its seeds
    left: float | None = None  # seconds
    row: Row | None = None  # the last evaluation; of several seeds the first one's
    why: str = ""
    where: str = ""


class Watch:
    """Reads a folder again only when its metrics have changed."""

    def __init__(self) -> None:
        self._rows: dict[Path, tuple[float, Row | None]] = {}

    def settled(self, entry: Entry) -> Line:
        """A run that is no job: finished before, or broken."""
        found = entry.standing
        state: State = "finished" if found.kind == "finished" else "failed"
        row = self._row(entry.folder)
        return Line(entry.run.path, state, found.done, found.total, attempt=0, row=row, why=found.why)

    def line(self, job: Job, status: Status, attempt: int, begun_at: int) -> Line:
        """`begun_at`: environment steps that its folder held when the grid began."""
        run = job.settings
        total = run.num_unrolls * run.env_steps_per_unroll
        row = self._row(job.folders[0])
        beat = read_beat(job.progress) if status.state in ("running", "stopped", "failed") else None
        done = max(begun_at, int(row["env_steps"]) if row else 0, beat.env_steps if beat else 0)
        speed, left = None, None
        if status.state == "running" and beat is not None and time.time() - beat.at < STALE:
            speed, left = beat.steps_per_second, beat.seconds_left
        if status.state == "finished":
            done = total
        seeds = len(job.seeds)
        told = {"attempt": attempt, "row": row, "why": status.why, "where": status.where}
        return Line(job.name, status.state, min(done, total), total, seeds, speed=speed, left=left, **told)

    def _row(self, folder: Path) -> Row | None:
        changed = changed_at(folder)
        if folder not in self._rows or self._rows[folder][0] != changed:
            self._rows[folder] = (changed, last_row(folder))
        return self._rows[folder][1]
