"""How far a job is between two evaluations: a small file that its process writes and the grid's table reads.

Run folders hold evaluations and checkpoints, which may lie half an hour apart under physics. This file is for the
table alone; nothing is decided by it, and it may be missing or old.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dcp.config import Config
from dcp.runs.display import Display, Pace, Progress, Row, Silent

EVERY = 1.0  # seconds


@dataclass(frozen=True)
class Beat:
    env_steps: int
    total: int
    steps_per_second: float | None = None
    seconds_left: float | None = None
    at: float = 0.0  # time.time()


class Heartbeat(Silent):
    """A display that writes for the table and shows nothing."""

    def __init__(self, config: Config, file: Path, clock: Callable[[], float] = time.monotonic):
        self._pace, self._file, self._clock = Pace(config), file, clock
        self._written: float | None = None

    def progress(self, progress: Progress) -> None:
        self._pace.update(progress)
        if self._written is None or self._clock() - self._written >= EVERY:
            self._write()

    def evaluation(self, row: Row) -> None:
        self._pace.evaluated()
        self._write()

    def resumed(self, unrolls: int, evaluations: int) -> None:
        self._pace.resumed(unrolls, evaluations)
        self._write()

    def _write(self) -> None:
        self._written = self._clock()
        speed, left = self._pace.estimate() or (None, None)
        beat = Beat(self._pace.steps, self._pace.total, speed, left, time.time())
        with suppress(OSError):  # a table without a number is no reason to end a run
            draft = self._file.with_name(f".{self._file.name}.{os.getpid()}.tmp")
            draft.write_text(json.dumps(asdict(beat)), encoding="utf-8")
            draft.replace(self._file)


def heartbeat(file: Path) -> Callable[[Config, Path], Display]:
    """For `train(display=...)`. What an earlier process left there is old: its run may have been moved away since."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
    return lambda config, folder: Heartbeat(config, file)


def read_beat(file: Path) -> Beat | None:
    try:
        return Beat(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
