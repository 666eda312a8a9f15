"""Keep time on a robot: a clock, deadlines, a watchdog for a loop that hangs, and a record of each step's time."""

import csv
import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import IO, Any

import numpy as np

SPIN = 0.0003  # seconds before a deadline without sleep, because Linux oversleeps by about 0.1 ms
TIMINGS = ("period", "compute", "read", "policy", "send")
VECTORS = ("state", "goal", "action", "sent")

START, STATE, GOAL, POLICY, SEND = "the start", "read_state", "read_goal", "the policy", "send_action"
BETWEEN, WAIT = "your code between two steps", "the wait for the next step"
ADVICE = {  # part of a step in which the loop hangs -> advice
    START: "find out what takes so long, or raise start_timeout",
    STATE: "check the sensor and its connection",
    GOAL: "check where the goal comes from",
    POLICY: "use a faster policy, such as one of `dcp export`, or a lower rate",
    SEND: "check the actuators and their connection",
    WAIT: "give the loop a core of its own, or raise stale_after",
    BETWEEN: "call step() more often, or use run()",
}


class Clock:
    """Give monotonic seconds from an arbitrary origin. A test passes its own clock."""

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Pacer:
    """Keep deadlines at start + k * period, so that the error of one wait does not carry over to the next."""

    def __init__(self, period: float, clock: Clock):
        self.period, self.clock = period, clock
        self.start, self.k = clock.now(), 0

    @property
    def elapsed(self) -> float:
        """Return the seconds from the start to the current deadline."""
        return self.k * self.period

    def missed(self) -> int:
        """Skip the deadlines that passed since the last wait and return their number: late steps never bunch up."""
        passed = math.floor((self.clock.now() - self.start) / self.period) - self.k
        self.k += max(passed, 0)
        return max(passed, 0)

    def wait(self) -> None:
        """Sleep until shortly before the next deadline, then poll the clock."""
        self.k += 1
        moment = self.start + self.k * self.period
        while (left := moment - self.clock.now()) > SPIN:
            self.clock.sleep(left - SPIN)
        while self.clock.now() < moment:
            self.clock.sleep(0.0)  # lets other threads take Python's lock


class Watchdog(threading.Thread):
    """Call `trip` with a sentence when the loop hangs, because a blocked loop cannot notice that itself.

    It is not a daemon: if the loop's thread ends without a stop, Python waits for this thread, which then trips.
    """

    def __init__(self, clock: Clock, start_timeout: float, stale_after: float, trip: Callable[[str], object]):
        super().__init__(name="dcp-watchdog", daemon=False)
        self._clock, self._stale_after, self._trip = clock, stale_after, trip
        self._limit, self._part = (start_timeout, "start_timeout"), START
        self._ended = threading.Event()
        self.between = BETWEEN  # where the loop is after a step
        self.last = clock.now()

    def beat(self) -> float:
        """Record that a step begins, and return the time."""
        self.last = self._clock.now()
        return self.last

    def start_is_over(self) -> None:
        """End the start phase: from now on `stale_after` is the limit."""
        self._part = self.between
        self.beat()
        self._limit = self._stale_after, "stale_after"

    def enter(self, part: str) -> None:
        if self._part != START:  # the start lasts until `start_is_over`
            self._part = part

    def overdue(self) -> str | None:
        """Return a sentence if no step has begun for too long."""
        # Read in this order, a beat or the end of the start in between delays the alarm instead of causing one.
        limit, setting = self._limit
        now = self._clock.now()
        age, part = now - self.last, self._part
        if age <= limit:
            return None
        return f"no step has begun for {age:.3g} s ({setting} is {limit:.3g} s), the loop is in {part}: {ADVICE[part]}"

    def run(self) -> None:
        while not self._ended.wait(max(self._stale_after / 20, 0.001)):
            if sentence := self.overdue():
                self._trip(sentence)
                return

    def end(self) -> None:
        self._ended.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join()


@dataclass(slots=True)
class Step:
    """Hold one step, filled in as it proceeds, so that a failed step shows how far it got. Times in seconds."""

    number: int
    time: float  # since the first step
    period: float = math.nan  # since the previous step
    read: float = math.nan
    policy: float = math.nan
    send: float = math.nan
    compute: float = math.nan  # these three and our checks
    state: np.ndarray | None = None
    goal: np.ndarray | None = None
    action: np.ndarray | None = None  # the policy's
    sent: np.ndarray | None = None  # after the limits
    clipped: bool = False
    rate_limited: bool = False
    flips: int = 0  # joints whose sent command has another sign than before


@dataclass(frozen=True)
class Spread:
    """Hold percentiles in milliseconds; None before the first value."""

    p50: float | None = None
    p99: float | None = None
    max: float | None = None

    def __str__(self) -> str:
        return "".join(f"{'-':>10}" if x is None else f"{x:>10.3f}" for x in (self.p50, self.p99, self.max))


@dataclass(frozen=True)
class Report:
    """Hold a controller's measurements."""

    rate_hz: float
    steps: int
    seconds: float
    period: Spread  # from the start of a step to the start of the next
    compute: Spread  # a whole step: read, policy, send and our own checks
    read: Spread
    policy: Spread
    send: Spread
    overruns: int  # steps that missed the next deadline
    skipped_periods: int  # deadlines skipped because of them
    clipped: int  # actions that the limits changed
    rate_limited: int  # actions that max_change changed
    flips: float | None  # share of the joints' commands that change sign from one step to the next
    history: int  # p50 and p99 cover at most this many last steps; max and counts cover all
    ended: str
    safe_action: str
    black_box: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)

    def __str__(self) -> str:
        lines = [
            f"{'milliseconds':<14}{'p50':>10}{'p99':>10}{'max':>10}",
            *(f"{name:<14}{getattr(self, name)}" for name in TIMINGS),
            f"{self.steps} steps in {self.seconds:.2f} s at {self.rate_hz:g} Hz",
            f"{self.overruns} overruns, {self.skipped_periods} periods skipped,"
            f" {self.clipped} actions clipped, {self.rate_limited} limited in change",
            *(
                []
                if self.flips is None
                else [f"{self.flips:.1%} of the joints' commands change sign between two steps"]
            ),
            f"ended: {self.ended}; {self.safe_action}",
        ]
        return "\n".join([*lines, self.black_box] if self.black_box else lines)


class Recorder:
    """Record the last steps in full, the timings of many more, and counts of all, in constant memory."""

    def __init__(self, history: int, black_box_steps: int):
        self.rows: deque[Step] = deque(maxlen=black_box_steps)
        self.counts = dict.fromkeys(("steps", "overruns", "skipped_periods", "clipped", "rate_limited"), 0)
        self._signs: Any = 0.0  # [A]: of each joint's last command that was not zero
        self._flips = self._commands = 0
        self._seconds = 0.0
        self._ring = np.full((history, len(TIMINGS)), np.nan)
        self._max = np.full(len(TIMINGS), -np.inf)

    def finish(self, step: Step) -> None:
        timing = np.array([getattr(step, name) for name in TIMINGS])
        self._ring[self.counts["steps"] % len(self._ring)] = timing
        self._max = np.fmax(self._max, timing)
        self._seconds = step.time + step.compute
        self._count_flips(step)
        self.counts["steps"] += 1
        self.counts["clipped"] += step.clipped
        self.counts["rate_limited"] += step.rate_limited

    def _count_flips(self, step: Step) -> None:
        assert step.sent is not None
        signs = np.sign(step.sent)  # a command of zero between two signs hides no flip
        step.flips = int(np.sum(signs * self._signs < 0))
        self._signs = np.where(signs, signs, self._signs)
        self._flips += step.flips
        self._commands += np.size(signs) * (self.counts["steps"] > 0)

    def spreads(self) -> dict[str, Spread]:
        """Return percentiles over the last steps, and the maximum over all steps."""
        return {name: _spread(self._ring[:, i], self._max[i]) for i, name in enumerate(TIMINGS)}

    def report(self, **more: Any) -> Report:
        flips = self._flips / self._commands if self._commands else None
        history = len(self._ring)
        return Report(seconds=self._seconds, history=history, flips=flips, **self.counts, **self.spreads(), **more)

    def write(self, file: IO[str], reason: str) -> None:
        """Write the last steps as CSV, oldest first; the last row says why the run ended."""
        rows = list(self.rows)
        sizes = {name: max((np.size(x) for row in rows if (x := getattr(row, name)) is not None), default=0)
                 for name in VECTORS}  # fmt: skip
        columns = [(name, i) for name, size in sizes.items() for i in range(size)]
        writer = csv.writer(file)
        vectors = [f"{name}_{i}" for name, i in columns]
        writer.writerow(["step", "time", *(f"{name}_ms" for name in TIMINGS), *vectors, "flips", "ended"])
        for row in rows:
            times = [f"{getattr(row, name) * 1e3:.4f}" for name in TIMINGS]
            values = [*(_cell(getattr(row, name), i) for name, i in columns), row.flips]
            writer.writerow([row.number, f"{row.time:.6f}", *times, *values, reason if row is rows[-1] else ""])
        file.flush()


def _spread(values: np.ndarray, maximum: float) -> Spread:
    values = values[~np.isnan(values)]
    if not len(values):
        return Spread()
    p50, p99 = np.percentile(values, (50, 99)) * 1e3
    return Spread(float(p50), float(p99), float(maximum) * 1e3)


def _cell(vector: np.ndarray | None, i: int) -> str:
    return "" if vector is None or i >= len(vector) else repr(float(vector[i]))
