"""Drives a grid: submits its jobs, tries failed ones again from their checkpoints, and tells how all of them stand."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from dcp.grid.jobs import Job
from dcp.grid.launchers.interface import Launcher, Status
from dcp.grid.plan import Entry
from dcp.grid.watch import Line, Watch
from dcp.grid.work import retriable

POLL = 0.5  # seconds
ENDED = ("finished", "failed", "stopped")
STOPPING = "stopping: every run writes a checkpoint first (once more: at once)"


class Shown(Protocol):
    def update(self, lines: Sequence[Line]) -> None: ...

    def note(self, sentence: str) -> None: ...


@dataclass
class Driver:
    launcher: Launcher
    entries: Sequence[Entry]
    jobs: Sequence[Job]
    shown: Shown
    retries: int = 2
    poll: float = POLL
    stopped: bool = False  # by a signal
    _attempts: dict[str, int] = field(default_factory=dict)
    _watch: Watch = field(default_factory=Watch)

    def run(self) -> list[Line]:
        """Until every job has ended, or until a signal has stopped them with checkpoints."""
        if not self.jobs:
            lines = self._lines({})
            self.shown.update(lines)
            return lines
        with _signals_interrupt():
            try:
                return self._until_ended()
            except KeyboardInterrupt:
                self.stopped = True
                self.shown.note(STOPPING)
                self.launcher.stop()
                lines = self._lines(self.launcher.poll())
                self.shown.update(lines)
                return lines
            finally:
                self.launcher.close()

    def _until_ended(self) -> list[Line]:
        self._submit(self.jobs)
        while True:
            statuses = self.launcher.poll()
            if again := [job for job in self.jobs if self._deserves_another(job, statuses[job.name])]:
                for job in again:
                    self.shown.note(f"{job.name}: trying again ({statuses[job.name].why})")
                self._submit(again)
                continue
            lines = self._lines(statuses)
            self.shown.update(lines)
            if all(line.state in ENDED for line in lines):
                return lines
            time.sleep(self.poll)

    def _submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._attempts[job.name] = self._attempts.get(job.name, 0) + 1
        self.launcher.submit(jobs)

    def _deserves_another(self, job: Job, status: Status) -> bool:
        ended = status.state in ("failed", "stopped")
        return ended and retriable(status.code) and self._attempts[job.name] <= self.retries

    def _lines(self, statuses: dict[str, Status]) -> list[Line]:
        begun = {entry.run.path: entry.standing.done for entry in self.entries}
        lines = [self._watch.settled(e) for e in self.entries if e.standing.kind in ("finished", "broken")]
        for job in self.jobs:
            start = begun[job.folders[0].relative_to(job.runs_dir).as_posix()]
            status = statuses.get(job.name, Status("stopped", "it had not begun"))  # Ctrl-C while they were submitted
            lines.append(self._watch.line(job, status, self._attempts.get(job.name, 0), start))
        return lines


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM, as a scheduler sends it, is Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
