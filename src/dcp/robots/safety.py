"""Guard what reaches the actuators: check inputs, apply limits, send through one gate, hold signals during a send."""

import logging
import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from dcp.errors import RunError, UserError
from dcp.robots.timing import STATE, Clock

if TYPE_CHECKING:
    from dcp.robots.timing import Report

LOG = logging.getLogger("dcp.controller")
ATTEMPTS = 3  # at sending the safe action, because a bus may lose a packet
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")  # SIGHUP: the ssh session has ended; SIGQUIT: Ctrl-\\
INSISTENT = 3  # this many signals end even a send_action that hangs

Safe = Callable[[np.ndarray | None], np.ndarray]  # last action sent -> safe action


class Fault(Exception):  # noqa: N818
    """Report a fault within a step in one sentence, which stops the controller."""


class Stopped(RunError):  # noqa: N818
    """Report that the controller stopped. `reason` says why and what to do; `report` holds its measurements."""

    def __init__(self, reason: str, report: "Report"):
        super().__init__(f"{reason}; {report.safe_action}")
        self.reason, self.report = reason, report


class Reading(NamedTuple):
    """Hold a value and its time, or a counter. Only changes of the time matter, so any clock works."""

    value: Any
    time: float


def in_one_line(error: BaseException) -> str:
    """Return an error as one line, with its class name unless the class is ours."""
    text = " ".join(str(error).split())
    if isinstance(error, Fault | UserError) and text:
        return text
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


# Inputs


def call(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        raise Fault(f"{name} failed ({in_one_line(error)}): repair that, then start again") from error


def vector(name: str, value: Any, size: int | None) -> np.ndarray:
    """Return a copy of the value as [size], so that a sensor's thread cannot overwrite it under the policy."""
    try:
        numbers = np.array(value, float)
    except (TypeError, ValueError, OverflowError) as error:
        raise Fault(f"{name} gave a {type(value).__name__} that is not a list of numbers: return one array") from error
    if numbers.ndim != 1 or (size is not None and len(numbers) != size):
        shape = "one row of numbers" if size is None else f"{size} numbers"
        raise Fault(f"{name} gave shape {numbers.shape}, not {shape}: check what it returns and in which order")
    return numbers


def finite(name: str, numbers: np.ndarray) -> np.ndarray:
    if not np.isfinite(numbers).all():
        first = int(np.flatnonzero(~np.isfinite(numbers))[0])
        what = f"number {first + 1} of {len(numbers)} is {numbers[first]}"
        raise Fault(f"{name} gave a value that is not finite ({what}): find out where it comes from before you restart")
    return numbers


class Freshness:
    """Refuse a reading whose time has not changed for longer than `stale_after` by our own clock."""

    def __init__(self, stale_after: float, clock: Clock):
        self._stale_after, self._clock = stale_after, clock
        self._time: float | None = None
        self._since = 0.0

    def check(self, reading: Reading) -> None:
        try:
            time = float(reading.time)
        except (TypeError, ValueError) as error:
            raise Fault(f"{STATE} gave a Reading whose time is not a number: give seconds or a counter") from error
        if not math.isfinite(time):  # NaN differs from itself, so it would always look new
            raise Fault(f"{STATE} gave a Reading whose time is {time}: give seconds or a counter")
        now = self._clock.now()
        if time != self._time:
            self._time, self._since = time, now
        elif now - self._since > self._stale_after:
            raise Fault(
                f"the state is stale: its time has not changed for {now - self._since:.3g} s"
                f" (stale_after is {self._stale_after:.3g} s): check that the sensor still measures"
            )


# Limits


@dataclass(frozen=True)
class Limits:
    low: np.ndarray  # [A]
    high: np.ndarray  # [A]
    max_change: np.ndarray | None = None  # [A]: between two steps
    smooth: float = 0.0  # share of the last action in the next one: a first-order low-pass filter

    @classmethod
    def make(cls, size: int, low: Any, high: Any, max_change: Any, smooth: float = 0.0) -> "Limits":
        low, high = per_joint("action_low", low, size), per_joint("action_high", high, size)
        if (low > high).any():
            raise UserError(f"action_low {_shown(low)} exceeds action_high {_shown(high)}: exchange them")
        if not 0.0 <= smooth < 1.0:
            raise UserError(f"smooth is {smooth}, the share of the last action in the next: use 0 to 0.9")
        if max_change is None:
            return cls(low, high, smooth=smooth)
        max_change = per_joint("max_change", max_change, size)
        if (max_change <= 0).any():
            raise UserError(f"max_change must be positive, not {_shown(max_change)}: leave it out for no limit")
        return cls(low, high, max_change, smooth)

    def clip(self, action: np.ndarray) -> np.ndarray:
        return np.clip(action, self.low, self.high)

    def apply(self, action: np.ndarray, last: np.ndarray | None) -> tuple[np.ndarray, bool, bool]:
        """Return the action to send, whether the limits changed it, and whether max_change did."""
        clipped = smoothed = allowed = self.clip(action)
        if self.smooth and last is not None:
            smoothed = allowed = self.clip(self.smooth * last + (1.0 - self.smooth) * clipped)
        if self.max_change is not None and last is not None:
            with np.errstate(over="ignore"):  # bounds may be infinite
                allowed = np.clip(smoothed, last - self.max_change, last + self.max_change)
            allowed = self.clip(allowed)  # low and high take precedence over max_change
        return allowed, bool((clipped != action).any()), bool((allowed != smoothed).any())

    def require(self, name: str, action: np.ndarray) -> np.ndarray:
        """Return the action, or refuse it if it is outside the limits."""
        if (self.clip(action) != action).any():
            limit = f"{_shown(self.low)} to {_shown(self.high)}"
            raise UserError(f"{name} {_shown(action)} is outside the limits {limit}: bring it inside first")
        return action


def per_joint(name: str, value: Any, size: int) -> np.ndarray:
    """Return one number for all joints, or one per joint, as [A]."""
    try:
        numbers = np.array(value, float)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{name} is neither a number nor a list of numbers: give one, or one per joint") from error
    if numbers.shape not in ((), (size,)):
        raise UserError(f"{name} has shape {numbers.shape}: give one number, or {size}, one per joint")
    if not np.isfinite(numbers).all():
        raise UserError(f"{name} must be finite, not {_shown(np.atleast_1d(numbers))}")
    return np.broadcast_to(numbers, (size,)).copy()


def _shown(numbers: np.ndarray) -> str:
    return f"[{', '.join(f'{x:g}' for x in numbers)}]"


def make_safe(safe_action: Any, limits: Limits) -> Safe:
    """Make the safe action from an array, "hold" (send the last action again) or a function of the last action."""
    size = len(limits.low)
    if isinstance(safe_action, str):
        if safe_action != "hold":
            raise UserError(f"safe_action is {safe_action!r}: give an array, a function of the last action, or 'hold'")
        return _require_last
    if callable(safe_action):
        return lambda last: limits.clip(
            finite("safe_action", vector("safe_action", safe_action(_require_last(last).copy()), size))
        )
    fixed = limits.require("safe_action", per_joint("safe_action", safe_action, size))
    return lambda last: fixed


def _require_last(last: np.ndarray | None) -> np.ndarray:
    if last is None:
        raise Fault("there is no last action: start_action was not known yet")
    return last


# Sending


class Gate:
    """Guard the only way to the actuators: one caller at a time, and after the stop only the safe action.

    Whichever closes the gate first (the loop, the watchdog or a user's `stop()`) sends the safe action. A closed gate
    stays closed.
    """

    def __init__(
        self,
        send: Callable[[np.ndarray], object],
        safe: Safe,
        clock: Clock,
        period: float,
        hold: float,  # seconds; until then the safe action is sent once per period
        patience: float,  # seconds to wait for a send_action that does not return before reporting it
        after: Callable[[], None] = lambda: None,  # called once, after the safe action was sent or failed
    ):
        self.last: np.ndarray | None = None  # the last action sent
        self.reason: str | None = None  # why it is closed
        self.outcome = "no safe action was needed yet"
        self._send, self._safe, self._clock = send, safe, clock
        self._period, self._hold, self._patience, self._after = period, hold, patience, after
        self._lock = threading.Lock()  # around every call of send_action
        self._first = threading.Lock()  # around the decision which caller closes the gate
        self._sender: int | None = None  # the thread inside send_action
        self._tried = False  # whether sending the safe action was tried
        self._owed = False  # send_action itself called stop(): send the safe action when it returns
        self._done = threading.Event()  # set when the closing caller has finished or was interrupted

    def send(self, action: np.ndarray) -> bool:
        """Send the action, or return False if the gate is closed."""
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
        """Close the gate, and return whether this call closed it. On return the safe action has been sent or tried."""
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
        if first or not self._tried:  # the first caller may have been interrupted before it tried
            self._take_turn()
        return first

    def _take_turn(self) -> None:
        try:
            if not self._lock.acquire(timeout=self._patience):
                LOG.critical("send_action has not returned: the safe action cannot be sent: use the emergency stop")
                self._lock.acquire()  # as soon as send_action returns, the safe action follows
            try:
                self._send_safe()
            finally:
                self._lock.release()
        finally:
            self._done.set()

    def _send_safe(self) -> None:
        """Send the safe action once, or for `hold` seconds. Raises no Exception: `outcome` says what went wrong."""
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
            self.outcome = f"the safe action could NOT be sent ({in_one_line(error)}): use the emergency stop"
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


class SignalGuard:
    """Delay signals while `busy`; otherwise let them raise in the loop, which ends reads and sleeps too.

    Use it as a context manager around more than the loop, such as an arm that must be released. `program_ends`: the
    program ends after the block, so that no second Ctrl-C interrupts its end.
    """

    def __init__(self, program_ends: bool = False):
        self.busy = False
        self._program_ends = program_ends
        self._count = 0
        self._pending: int | None = None
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if self._old or threading.current_thread() is not threading.main_thread():
            return self  # only the main thread gets signals, so it must call stop() itself
        for name in SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
                self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        over = self._program_ends and self._count > 0
        while self._old:
            number, handler = self._old.popitem()
            signal.signal(number, signal.SIG_IGN if over else handler or signal.SIG_DFL)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay signals until the end of the block."""
        if threading.current_thread() is not threading.main_thread():
            yield  # signals reach only the main thread, which owns `busy`
            return
        before, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = before
            if self._pending is not None and not before:
                self._raise(self._pending)

    def _handle(self, number: int, frame: object) -> None:
        self._count += 1
        if self.busy and self._count < INSISTENT:
            self._pending = self._pending or number
        else:
            self._raise(number)

    def _raise(self, number: int) -> None:
        self.busy, self._pending = True, None  # no second signal interrupts the stop
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)


def cause(error: BaseException | None) -> str:
    """Return in words what ended a loop, from the exception that left it."""
    if error is None:
        return "the with block ended"
    if isinstance(error, KeyboardInterrupt):
        return "Ctrl-C"
    if isinstance(error, SystemExit):
        numbers = {128 + getattr(signal, name): name for name in SIGNALS if hasattr(signal, name)}
        return numbers.get(error.code if isinstance(error.code, int) else 0, "the program exits")
    return f"an exception left the loop ({type(error).__name__})"
