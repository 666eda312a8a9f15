"""Time, and how to wait for a moment of it. Injectable: the tests decide what time it is."""

import math
import time

SPIN = 0.0003  # seconds before a deadline in which we no longer trust sleep; Linux oversleeps by about 0.1 ms


class Clock:
    """Monotonic seconds of arbitrary origin."""

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def wait_until(clock: Clock, moment: float, spin: float = SPIN) -> None:
    """Sleep most of the way, then watch the clock."""
    while (left := moment - clock.now()) > spin:
        clock.sleep(left - spin)
    while clock.now() < moment:
        clock.sleep(0.0)  # lets other threads have Python's lock meanwhile


class Pacer:
    """Deadlines at start + k * period, for ever: an error of one wait is not carried into the next."""

    def __init__(self, period: float, clock: Clock, spin: float = SPIN):
        self.period, self.clock, self.spin = period, clock, spin
        self.start, self.k = clock.now(), 0

    @property
    def elapsed(self) -> float:
        """The time of the present deadline."""
        return self.k * self.period

    def missed(self) -> int:
        """How many deadlines have passed since the last wait. They are skipped: late steps never bunch up."""
        passed = math.floor((self.clock.now() - self.start) / self.period) - self.k
        self.k += max(passed, 0)
        return max(passed, 0)

    def wait(self) -> None:
        self.k += 1
        wait_until(self.clock, self.start + self.k * self.period, self.spin)
