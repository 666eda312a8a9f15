"""When a run is checkpointed: after evaluations, after minutes, when a signal asks it to stop, and at its end."""

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dcp.errors import UserError
from dcp.training.hosts import agreed
from dcp.training.loop import Moment
from dcp.training.signals import StopRequest


@dataclass(frozen=True)
class Cadence:
    """A checkpoint every so many evaluations and, between them, every so many minutes. 0: not by this clock."""

    evals: int = 1
    minutes: float = 15.0

    def __post_init__(self) -> None:
        if self.evals < 0 or not 0 <= self.minutes < float("inf"):
            raise UserError("checkpoint-evals and checkpoint-minutes must be 0 or more (0: not by this clock)")

    @property
    def never(self) -> bool:
        return not self.evals and not self.minutes


class Interrupted(KeyboardInterrupt):
    """Stopped by a signal. The folder holds what there was; without anything to keep there is none."""

    def __init__(self, folder: Path, evaluations: int, env_steps: int | None):
        super().__init__(f"stopped after {evaluations} evaluations")
        self.folder, self.evaluations = folder, evaluations
        self.env_steps = env_steps  # of the checkpoint that the run can go on from; None without one


class Saves(Protocol):
    def save(self, moment: Moment) -> None: ...

    def check(self) -> None: ...

    def wait(self) -> None: ...


class Locks(Protocol):
    def require(self) -> None: ...


class Keeper:
    """Called at every boundary of the loop. Several hosts save and stop together: all, when one is told to."""

    def __init__(self, saver: Saves, lock: Locks, cadence: Cadence, stop: StopRequest, evaluations: int):
        self._saver, self._lock, self._cadence = saver, lock, cadence
        self._stop, self._evaluations = stop, evaluations
        self._seen: int | None = None  # evaluations at the last boundary
        self._saved = time.monotonic()

    def __call__(self, moment: Moment) -> None:
        self._lock.require()
        self._saver.check()
        ended = len(moment.rows) == self._evaluations
        number, due = agreed([self._stop.signal or 0, self._is_due(moment, ended)])
        if number and not ended:
            self._saver.save(moment)
            self._saver.wait()
            raise KeyboardInterrupt(signal.Signals(number).name)
        if due:
            self._saver.save(moment)
            self._saved = time.monotonic()
        self._seen = len(moment.rows)

    def _is_due(self, moment: Moment, ended: bool) -> bool:
        cadence = self._cadence
        if cadence.never:
            return False
        evaluated = self._seen is not None and len(moment.rows) > self._seen
        by_evaluations = evaluated and cadence.evals > 0 and len(moment.rows) % cadence.evals == 0
        by_minutes = cadence.minutes > 0 and time.monotonic() - self._saved >= 60 * cadence.minutes
        return by_evaluations or by_minutes or ended
