"""What a robot says, checked before a policy sees it."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dcp.deploy.control.clock import Clock
from dcp.deploy.control.faults import Fault, line


class Reading(NamedTuple):
    """A value and when it was measured: a time, or a counter. Only its changes matter, so any clock will do."""

    value: Any
    time: float


def call(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        raise Fault(f"{name} failed ({line(error)}): repair that, then start again") from error


def vector(name: str, value: Any, size: int | None) -> np.ndarray:
    """Our own copy, [size]: what a sensor's thread overwrites meanwhile does not reach the policy."""
    try:
        numbers = np.array(value, float)
    except (TypeError, ValueError, OverflowError) as error:
        raise Fault(f"{name} gave a {type(value).__name__} that is no list of numbers: return one array") from error
    if numbers.ndim != 1 or (size is not None and len(numbers) != size):
        wanted = "one row of numbers" if size is None else f"{size} numbers"
        raise Fault(f"{name} gave shape {numbers.shape}, not {wanted}: check what it returns and in which order")
    return numbers


def finite(name: str, numbers: np.ndarray) -> np.ndarray:
    if not np.isfinite(numbers).all():
        first = int(np.flatnonzero(~np.isfinite(numbers))[0])
        what = f"number {first + 1} of {len(numbers)} is {numbers[first]}"
        raise Fault(f"{name} gave a value that is not finite ({what}): find out where it comes from before you restart")
    return numbers


class Freshness:
    """A reading is stale when its time has not changed for longer than `stale_after`, by our own clock."""

    def __init__(self, stale_after: float, clock: Clock):
        self.stale_after, self.clock = stale_after, clock
        self.time: float | None = None
        self.since = 0.0

    def check(self, reading: Reading) -> None:
        try:
            time = float(reading.time)
        except (TypeError, ValueError) as error:
            raise Fault("read_state gave a Reading whose time is no number: give seconds or a counter") from error
        if not math.isfinite(time):  # NaN differs from itself: it would look new for ever
            raise Fault(f"read_state gave a Reading whose time is {time}: give seconds or a counter")
        now = self.clock.now()
        if time != self.time:
            self.time, self.since = time, now
        elif now - self.since > self.stale_after:
            raise Fault(
                f"the state is stale: its time has not changed for {now - self.since:.3g} s"
                f" (stale_after is {self.stale_after:.3g} s): check that the sensor still measures"
            )
