"""The one door to the actuators: a single caller at a time, and nothing after the stop but the safe action."""

import logging
import threading
from collections.abc import Callable

import numpy as np

from dcp.deploy.control.clock import Clock
from dcp.deploy.control.faults import line
from dcp.deploy.control.limits import Safe

LOG = logging.getLogger("dcp.controller")
ATTEMPTS = 3  # a bus may lose one packet


class Gate:
    """Closed once, for ever, by whoever is first: the loop, the watchdog, or a user's `stop()`. That one sends."""

    def __init__(
        self,
        send: Callable[[np.ndarray], object],
        safe: Safe,
        clock: Clock,
        period: float,
        hold: float,  # seconds in which the safe action is sent again and again
        patience: float,  # seconds to wait for a send_action that does not return, before we say so
        after: Callable[[], None] = lambda: None,  # called once, when the safe action is out or has failed
    ):
        self.last: np.ndarray | None = None  # what the actuators were told last
        self.reason: str | None = None  # why it is closed
        self.outcome = "no safe action was needed yet"
        self._send, self._safe, self._clock = send, safe, clock
        self._period, self._hold, self._patience, self._after = period, hold, patience, after
        self._lock = threading.Lock()  # around every call of send_action
        self._first = threading.Lock()  # around the decision who closes
        self._sender: int | None = None  # the thread inside send_action
        self._tried = False  # to send the safe action
        self._owed = False  # send_action itself asked for the stop: the safe action follows when it returns
        self._done = threading.Event()  # whoever closed it is through, or was interrupted

    def send(self, action: np.ndarray) -> bool:
        """False, and nothing sent, if the gate is closed."""
        with self._lock:
            if self.reason is not None:
                return False
            self._sender = threading.get_ident()
            try:
                self._send(action.copy())
                self.last = action
            finally:
                self._sender = None
                if self._owed:
                    self._send_safe()
        return True

    def close(self, reason: str) -> bool:
        """True for the caller that closed it. For all: the safe action has been sent, or tried, on return."""
        with self._first:
            first = self.reason is None
            if first:
                self.outcome = "the safe action was NOT sent: use the emergency stop"
                self.reason = reason
        if self._sender == threading.get_ident():
            self._owed = self._owed or first
            return first
        if not first:
            self._done.wait()
        if first or not self._tried:  # the first may have been interrupted before it could
            self._take_turn()
        return first

    def _take_turn(self) -> None:
        try:
            if not self._lock.acquire(timeout=self._patience):
                LOG.critical("send_action has not returned: the safe action cannot be sent: use the emergency stop")
                self._lock.acquire()  # the moment it returns, the safe action goes out
            try:
                self._send_safe()
            finally:
                self._lock.release()
        finally:
            self._done.set()

    def _send_safe(self) -> None:
        """Once, or for the time to hold it. Never raises an Exception: what went wrong is in `outcome`."""
        self._tried, self._sender = True, threading.get_ident()
        try:
            action = self._safe(self.last)
            self._try(action)
            end = self._clock.now() + self._hold
            while self._clock.now() < end:
                self._clock.sleep(self._period)
                self._try(action)
            self.outcome = "the safe action was sent"
        except Exception as error:
            self.outcome = f"the safe action could NOT be sent ({line(error)}): use the emergency stop"
            LOG.critical(self.outcome)
        finally:
            self._after()
            self._sender = None
            self._done.set()

    def _try(self, action: np.ndarray) -> None:
        for attempt in range(ATTEMPTS):
            try:
                self._send(action.copy())
                self.last = action
                return
            except Exception:
                if attempt == ATTEMPTS - 1:
                    raise
