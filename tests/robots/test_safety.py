"""The gate to the actuators, with threads that meet in it, and signals that wait for a send."""

import signal
import threading

import numpy as np
import pytest

from dcp.robots.safety import Gate, SignalGuard, cause
from dcp.robots.timing import Clock, Watchdog
from tests.support.fake_robot import FakeClock

ACT, SAFE = np.ones(1), np.zeros(1)


class Bus:
    """Keeps whoever comes first inside until it is released."""

    def __init__(self):
        self.sent: list[float] = []
        self.inside, self.release = threading.Event(), threading.Event()

    def __call__(self, action: np.ndarray) -> None:
        self.inside.set()
        assert self.release.wait(30.0)
        self.sent.append(float(action[0]))


def gate(send, patience: float = 30.0) -> Gate:
    return Gate(send, lambda last: SAFE, Clock(), period=0.01, hold=0.0, patience=patience)


def thread(function, *arguments) -> threading.Thread:
    started = threading.Thread(target=function, args=arguments, daemon=True)
    started.start()
    return started


def test_a_closed_gate_lets_nothing_through():
    sent: list[np.ndarray] = []
    door = gate(sent.append)
    assert door.send(ACT) and door.close("why") and not door.send(ACT) and not door.close("again")
    np.testing.assert_array_equal(sent, [ACT, SAFE])
    assert (door.reason, door.outcome) == ("why", "the safe action was sent")


def test_an_action_that_waited_for_its_turn_is_refused_if_the_stop_came_meanwhile():
    door = gate(bus := Bus())
    first = thread(door.send, ACT)
    bus.inside.wait(30.0)
    results: list[bool] = []
    second = thread(lambda: results.append(door.send(ACT)))
    closer = thread(door.close, "stop")
    while door.reason is None:
        pass
    bus.release.set()
    for each in (first, second, closer):
        each.join(30.0)
    assert results == [False] and bus.sent == [1.0, 0.0]


def test_a_second_caller_of_close_returns_after_the_safe_action_is_out():
    door = gate(bus := Bus())
    first = thread(door.close, "first")
    bus.inside.wait(30.0)
    seen: list[list[float]] = []
    second = thread(lambda: (door.close("second"), seen.append(list(bus.sent))))
    second.join(0.05)
    assert second.is_alive()
    bus.release.set()
    first.join(30.0)
    second.join(30.0)
    assert seen == [[0.0]] and door.reason == "first"


def test_a_closer_that_is_interrupted_leaves_the_safe_action_to_the_next():
    sent: list[np.ndarray] = []
    door, lock = gate(sent.append), threading.Lock()

    class Interrupted:
        def acquire(self, timeout: float) -> bool:
            door._lock = lock
            raise KeyboardInterrupt

    door._lock = Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        door.close("Ctrl-C")
    assert not sent and "NOT sent" in door.outcome
    assert not door.close("the end")
    np.testing.assert_array_equal(sent, [SAFE])
    assert (door.reason, door.outcome) == ("Ctrl-C", "the safe action was sent")


def test_a_stop_during_the_safe_action_by_its_own_sender_does_not_wait_for_itself():
    door = gate(lambda action: door.close("once more"))
    assert door.close("why")
    assert door.outcome == "the safe action was sent"


def test_a_signal_waits_for_the_end_of_a_send_and_the_third_does_not():
    guard = SignalGuard()
    with pytest.raises(KeyboardInterrupt), guard.held():
        guard._handle(signal.SIGINT, None)
        guard._handle(signal.SIGTERM, None)
        reached = True
    assert reached and guard.busy  # the way out is not interrupted
    guard = SignalGuard()
    with pytest.raises(SystemExit) as ended, guard.held():
        for _ in range(3):
            guard._handle(signal.SIGTERM, None)
        pytest.fail("a send that hangs could not be ended")
    assert ended.value.code == 143


def test_the_cause_is_read_off_the_exception():
    errors = [None, KeyboardInterrupt(), SystemExit(143), SystemExit(0), SystemExit("bye"), KeyError("x")]
    assert [cause(error) for error in errors] == [
        "the with block ended", "Ctrl-C", "SIGTERM", "the program exits", "the program exits",
        "an exception left the loop (KeyError)",
    ]  # fmt: skip


class Raced(Watchdog):
    """Its start ends in another thread just after `overdue` has read the last beat."""

    racing = False

    @property
    def last(self) -> float:
        value = self._last
        if self.racing:
            self.racing = False
            self.start_is_over()
        return value

    @last.setter
    def last(self, value: float) -> None:
        self._last = value


def test_a_start_that_ends_while_the_watchdog_looks_is_no_alarm():
    clock = FakeClock()
    watchdog = Raced(clock, start_timeout=60.0, stale_after=0.2, trip=print)
    clock.sleep(5.0)  # of a start that may take 60
    watchdog.racing = True
    assert watchdog.overdue() is None
    clock.sleep(0.3)
    sentence = watchdog.overdue()
    assert sentence is not None and "no step has begun for 0.3 s (stale_after is 0.2 s)" in sentence
