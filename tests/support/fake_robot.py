"""Stand-ins for a robot and for time, for the controller's tests."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from dcp.robots import Controller
from dcp.robots.timing import Clock

SAFE = np.array([0.25, -0.25])


class FakeClock(Clock):
    """Time passes when somebody sleeps, or when a test says so."""

    def __init__(self):
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += max(seconds, 1e-6)


class FakeRobot:
    """Two joints. `at[n]` is called at the n-th read of a state, warm-up not counted, and may give the state."""

    def __init__(self, clock: Clock | None = None, warm_up: int = 0):
        self.clock = clock
        self.reads = -warm_up
        self.at: dict[int, Callable[[], Any]] = {}
        self.state: Any = np.zeros(2)
        self.goal: Any = np.ones(2)
        self.sent: list[np.ndarray] = []
        self.senders: list[str] = []
        self.read_times: list[float] = []
        self.send_fails = 0  # so many sends raise
        self._inside = threading.Lock()
        self.overlapped = False

    def read_state(self) -> Any:
        number, self.reads = self.reads, self.reads + 1
        if self.clock is not None and number >= 0:
            self.read_times.append(self.clock.now())
        given = self.at[number]() if number in self.at else None
        return self.state if given is None else given

    def read_goal(self) -> Any:
        return self.goal

    def send_action(self, action: np.ndarray) -> None:
        if not self._inside.acquire(blocking=False):
            self.overlapped = True
            return
        try:
            if self.send_fails > 0:
                self.send_fails -= 1
                raise OSError("bus off")
            self.sent.append(action)
            self.senders.append(threading.current_thread().name)
        finally:
            self._inside.release()

    def controller(
        self, policy: Callable[..., Any] = lambda state, goal: 0.1 * (goal - state), **settings
    ) -> Controller:
        defaults: dict[str, Any] = {"rate_hz": 100, "safe_action": SAFE, "warm_up": 0, "clock": self.clock}
        calls = (self.read_state, self.read_goal, self.send_action)
        return Controller(policy, *calls, **{**defaults, **settings})

    @property
    def ordinary(self) -> list[np.ndarray]:
        return [action for action in self.sent if not np.array_equal(action, SAFE)]

    def ended_safely(self) -> bool:
        """The safe action came last, and it came once."""
        safe = [np.array_equal(action, SAFE) for action in self.sent]
        return not self.overlapped and safe[-1:] == [True] and sum(safe) == 1
