"""What happened: the last steps in full, the timing of many more, and counts of all. Bounded, however long it runs."""

import csv
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dcp.deploy.control.report import TIMINGS, Spread


@dataclass(slots=True)
class Step:
    """One round, filled in as it goes: a step that failed shows how far it came."""

    number: int
    time: float  # seconds since the first step
    period: float = math.nan  # since the step before
    read: float = math.nan
    policy: float = math.nan
    send: float = math.nan
    compute: float = math.nan  # the three, and ours
    state: np.ndarray | None = None
    goal: np.ndarray | None = None
    action: np.ndarray | None = None  # the policy's
    sent: np.ndarray | None = None  # after the limits
    clipped: bool = False
    rate_limited: bool = False


class Recorder:
    def __init__(self, history: int, black_box_steps: int):
        self.rows: deque[Step] = deque(maxlen=black_box_steps)
        self.steps = self.overruns = self.skipped = self.clipped = self.rate_limited = 0
        self.seconds = 0.0
        self._ring = np.full((history, len(TIMINGS)), np.nan)
        self._max = np.full(len(TIMINGS), -np.inf)

    def begin(self, step: Step) -> None:
        self.rows.append(step)

    def finish(self, step: Step) -> None:
        timing = np.array([getattr(step, name) for name in TIMINGS])
        self._ring[self.steps % len(self._ring)] = timing
        self._max = np.fmax(self._max, timing)
        self.steps += 1
        self.seconds = step.time + step.compute
        self.clipped += step.clipped
        self.rate_limited += step.rate_limited

    def spreads(self) -> dict[str, Spread]:
        """Percentiles over the ring, the maximum over everything; in milliseconds."""
        return {name: _spread(self._ring[:, i], self._max[i]) for i, name in enumerate(TIMINGS)}

    def write(self, path: Path, reason: str) -> None:
        """The last steps as CSV, oldest first; the last row says why it ended."""
        rows = list(self.rows)
        sizes = {name: max((_size(getattr(row, name)) for row in rows), default=0) for name in _VECTORS}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            vectors = [f"{name}_{i}" for name, size in sizes.items() for i in range(size)]
            writer.writerow(["step", "time", *(f"{name}_ms" for name in TIMINGS), *vectors, "ended"])
            for row in rows:
                numbers = [f"{getattr(row, name) * 1e3:.4f}" for name in TIMINGS]
                values = [value for name, size in sizes.items() for value in _cells(getattr(row, name), size)]
                ended = reason if row is rows[-1] else ""
                writer.writerow([row.number, f"{row.time:.6f}", *numbers, *values, ended])


_VECTORS = ("state", "goal", "action", "sent")


def _spread(values: np.ndarray, maximum: float) -> Spread:
    values = values[~np.isnan(values)]
    if not len(values):
        return Spread()
    p50, p99 = np.percentile(values, (50, 99)) * 1e3
    return Spread(float(p50), float(p99), float(maximum) * 1e3)


def _size(vector: np.ndarray | None) -> int:
    return 0 if vector is None else len(vector)


def _cells(vector: np.ndarray | None, size: int) -> Iterator[str]:
    for i in range(size):
        yield "" if vector is None or i >= len(vector) else repr(float(vector[i]))
