"""Drive a grid: submit its jobs, resume failed ones from their checkpoints, and show how far all of them are."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from dcp.errors import EXIT_MISTAKE
from dcp.grid.grid_display import Line, LineReader
from dcp.grid.jobs import Entry, Job
from dcp.grid.launcher import NOT_BEGUN, Launcher, Status

POLL = 0.5  # seconds
ENDED = ("finished", "failed", "stopped")
STOPPING = "stopping: every run writes a checkpoint first (a second signal stops them at once)"


class GridDisplay(Protocol):
    def update(self, lines: Sequence[Line]) -> None: ...

    def note(self, sentence: str) -> None: ...


@dataclass
class Driver:
    launcher: Launcher
    entries: Sequence[Entry]
    jobs: Sequence[Job]
    shown: GridDisplay
    retries: int = 2
    poll: float = POLL
    stopped: bool = False  # by a signal
    _attempts: dict[str, int] = field(default_factory=dict)
    _reader: LineReader = field(default_factory=LineReader)

    def run(self) -> list[Line]:
        """Return once every job has ended, or once a signal has stopped them with checkpoints."""
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
        begun = {entry.run.path: entry.status.done for entry in self.entries}
        lines = [self._reader.of_entry(e) for e in self.entries if e.status.kind in ("finished", "broken")]
        for job in self.jobs:
            start = begun.get(job.folders[0].relative_to(job.runs_dir).as_posix(), 0)
            status = statuses.get(job.name, NOT_BEGUN)  # Ctrl-C while they were submitted
            lines.append(self._reader.of_job(job, status, self._attempts.get(job.name, 0), start))
        return lines


def retriable(code: int | None) -> bool:
    """Return whether another attempt may end differently: not after success, nor after a user's mistake."""
    return code not in (0, EXIT_MISTAKE)


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt at Ctrl-C, and at SIGTERM, which schedulers send."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signals = [one for one in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, interrupt) for one in signals}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
