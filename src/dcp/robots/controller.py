"""Run a policy on a robot at a fixed rate, within limits, and with a safe action whatever happens. Needs no JAX.

    controller = Controller(policy, read_state, read_goal, send_action, rate_hz=50, safe_action=np.zeros(6))
    print(controller.run(seconds=60))

docs/your_own_robot.md states the rules. Software cannot promise safety: keep the emergency stop within reach.
"""

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, NoReturn, Self

import numpy as np

from dcp.errors import UserError
from dcp.robots.safety import (
    LOG,
    Fault,
    Freshness,
    Gate,
    Limits,
    Reading,
    SignalGuard,
    Stopped,
    call,
    cause,
    finite,
    in_one_line,
    make_safe,
    vector,
)
from dcp.robots.timing import GOAL, POLICY, SEND, STATE, WAIT, Clock, Pacer, Recorder, Report, Step, Watchdog


class Controller:
    """Run a policy on a robot, once: after a stop or the end of a run, make a new controller."""

    def __init__(
        self,
        policy: Callable[[np.ndarray, np.ndarray], Any],  # state [S], goal [G] -> action [A]
        read_state: Callable[[], Any],  # [S], or a Reading, whose unchanged time means a stale state
        read_goal: Callable[[], Any],  # [G]; called each step, so a goal may change
        send_action: Callable[[np.ndarray], Any],  # never called by two threads at once
        *,
        rate_hz: float,
        safe_action: Any,  # an array, a function of the last action, or "hold" (only for position targets)
        action_low: Any = -1.0,  # one number, or one per joint
        action_high: Any = 1.0,
        max_change: Any = None,  # between two steps; one number, or one per joint
        smooth: float = 0.0,  # low-pass filter: the share of the last action in the next; 0.5 lags by about one step
        settle: float = 0.0,  # commands shrink with the distance to the goal below this; only if zero means no motion
        start_action: Any = None,  # what the actuators do before the first step: an array, or a function that reads it
        stale_after: float | None = None,  # seconds; None: five periods, but at least 0.2
        max_overruns: int | None = 10,  # stop after this many missed deadlines in a row; None: never
        hold_seconds: float = 0.0,  # keep sending the safe action for this long
        warm_up: int = 2,  # reads and policy calls before the first step, without sending: programs compile here
        start_timeout: float = 60.0,  # seconds for all that happens before the first step
        state_size: int | None = None,  # None: the policy's own, if it has one
        goal_size: int | None = None,
        action_size: int | None = None,
        history: int = 10_000,  # the percentiles cover this many steps
        black_box: str | Path | IO[str] | None = None,  # a CSV file of the last steps, written at the end
        black_box_steps: int = 500,
        clock: Clock | None = None,
        guard: SignalGuard | None = None,  # one that is in use already, around more than the loop
    ):
        calls = {"read_state": read_state, "read_goal": read_goal, "send_action": send_action}
        for name, function in {"policy": policy, **calls}.items():
            _require_callable(name, function)
        self.rate_hz = _positive("rate_hz", rate_hz)
        self.period = 1.0 / self.rate_hz
        self.stale_after = max(0.2, 5 / rate_hz) if stale_after is None else _positive("stale_after", stale_after)
        if self.stale_after < 2 / rate_hz:
            raise UserError(
                f"stale_after {stale_after:g} s is less than two periods of {rate_hz:g} Hz: raise it to {2 / rate_hz:g}"
            )
        self.action_size = _size("action_size", action_size, policy) or _length(
            safe_action, action_low, action_high, start_action, max_change
        )
        self.limits = Limits.make(self.action_size, action_low, action_high, max_change, smooth)
        self._safe = make_safe(safe_action, self.limits)
        follows_last = isinstance(safe_action, str) or callable(safe_action)
        if start_action is None and (max_change is not None or smooth or follows_last):
            raise UserError(
                "max_change, smooth and a safe_action that follows the last action need start_action: what they do"
                " before the first step, as an array or as a function that reads it"
            )
        self.max_overruns = None if max_overruns is None else _count("max_overruns", max_overruns, 1)
        self.warm_up = _count("warm_up", warm_up, 0)
        self.black_box = Path(black_box) if isinstance(black_box, str) else black_box
        self._policy, self._reads, self._start_action = policy, {STATE: read_state, GOAL: read_goal}, start_action
        # None: the size of the first value
        self._sizes = {STATE: _size("state_size", state_size, policy), GOAL: _size("goal_size", goal_size, policy)}
        self.settle = _positive("settle", settle, or_zero=True)
        self._goal_dims = _goal_dims(policy) if self.settle else []
        self.settling = False  # whether the last command shrank because the goal was near
        self._clock = clock or Clock()
        hold = _positive("hold_seconds", hold_seconds, or_zero=True)
        self._gate = Gate(
            send_action, self._safe, self._clock, self.period, hold, self.stale_after, after=self._write_black_box
        )
        timeout = _positive("start_timeout", start_timeout)
        self._watchdog = Watchdog(self._clock, timeout, self.stale_after, trip=self._trip)
        self._fresh = Freshness(self.stale_after, self._clock)
        self._record = Recorder(_count("history", history, 1), _count("black_box_steps", black_box_steps, 1))
        self._guard, self._borrowed = guard or SignalGuard(), guard is not None
        self._first = self._before = math.nan  # when the first step and the previous step began
        self._late = 0  # missed deadlines in a row
        self._entered = self._over = self._froze = False
        self._black_box_note = ""

    def run(self, seconds: float | None = None, steps: int | None = None) -> Report:
        """Run for this long or this many steps; without either, run until stopped. A fault raises `Stopped`."""
        for name, value in (("seconds", seconds), ("steps", steps)):
            if value is not None and not value > 0:
                raise UserError(f"{name} must be positive, not {value}: leave it out to run until something stops it")
        with nullcontext(self) if self._entered else self:
            try:
                self._watchdog.between = WAIT
                self._start()
                self._loop(math.inf if seconds is None else seconds, math.inf if steps is None else steps)
                self._end(f"completed its {self._record.counts['steps']} steps")
            except BaseException as error:
                self._end(cause(error))
                raise
        return self.report()

    def step(self) -> np.ndarray:
        """Read, decide and send once without waiting, for your own loop. -> the action that was sent, [A]"""
        self._start()
        step = self._round()
        self._judge(step.compute > self.period)
        assert step.sent is not None
        return step.sent.copy()

    def stop(self, reason: str = "stop() was called") -> None:
        """Stop, from any thread. When this returns the safe action has been sent, and no other action follows."""
        with self._guard.held():
            self._gate.close(reason)

    @property
    def last_steps(self) -> list[Step]:
        """Return what the black box holds: the last `black_box_steps` steps, oldest first."""
        return list(self._record.rows)

    def report(self) -> Report:
        return self._record.report(
            rate_hz=self.rate_hz,
            ended=self._gate.reason or "not yet",
            safe_action=self._gate.outcome,
            black_box=self._black_box_note,
        )

    def __enter__(self) -> Self:
        if self._entered:
            raise UserError("this controller is in use, or has ended: make a new one")
        self._entered = True
        if not self._borrowed:
            self._guard.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self._end(cause(error))
        finally:
            if not self._borrowed:
                self._guard.__exit__()

    def _start(self) -> None:
        """Do everything except sending once before the first step, so that faults show before anything moves."""
        if not self._entered:
            raise UserError("call step() inside `with controller:`, which sends the safe action when it ends")
        if self._over:
            raise UserError(f"this controller has ended ({self._gate.reason}): make a new one")
        if self._watchdog.ident is not None:
            return
        self._watchdog.beat()
        self._watchdog.start()
        with self._faults():
            if (start := self._start_action) is not None:
                value = call("start_action", start) if callable(start) else start
                action = finite("start_action", vector("start_action", value, self.action_size))
                self._gate.last = self.limits.require("start_action", action)
                call("safe_action", self._safe, self._gate.last)
            for _ in range(self.warm_up):
                self._decide(Step(0, 0.0))
            if self.warm_up and callable(reset := getattr(self._policy, "reset", None)):
                call("policy.reset", reset)  # a burst counts steps from here
            self._froze = freeze_garbage()
            self._check_stop()
        self._watchdog.start_is_over()

    def _loop(self, seconds: float, steps: float) -> None:
        pacer = Pacer(self.period, self._clock)
        while pacer.elapsed < seconds - 1e-9 and self._record.counts["steps"] < steps:
            self._round()
            missed = pacer.missed()
            self._record.counts["skipped_periods"] += missed
            self._judge(missed > 0)
            pacer.wait()

    def _round(self) -> Step:
        with self._faults():
            self._check_stop()
            now = self._watchdog.beat()
            self._first = now if math.isnan(self._first) else self._first
            step = Step(self._record.counts["steps"], now - self._first, period=now - self._before)
            self._before = now
            self._record.rows.append(step)
            action = self._decide(step)
            self._enter(SEND)  # do not send an action that was decided on a stale state
            self._send(step, action)
        step.compute = self._clock.now() - now
        self._record.finish(step)
        self._watchdog.enter(self._watchdog.between)
        return step

    def _decide(self, step: Step) -> np.ndarray:
        """Return the action to send, without sending it. `step` is filled in as far as it goes."""
        began = self._clock.now()
        reading, step.state = self._read(STATE)
        if isinstance(reading, Reading):
            self._fresh.check(reading)  # the goal's time is not checked, because a goal may stay unchanged
        finite(STATE, step.state)  # checked after it is stored in the step, so that the black box shows it
        _, step.goal = self._read(GOAL)
        finite(GOAL, step.goal)
        decided = self._clock.now()
        step.read = decided - began
        self._enter(POLICY)
        step.action = vector(POLICY, call(POLICY, self._policy, step.state, step.goal), self.action_size)
        finite(POLICY, step.action)
        command = step.action
        if self.settle:
            away = float(np.linalg.norm(np.take(step.state, self._goal_dims) - step.goal))
            self.settling = away < self.settle
            command = command * min(1.0, away / self.settle)
        allowed, step.clipped, step.rate_limited = self.limits.apply(command, self._gate.last)
        step.policy = self._clock.now() - decided
        return allowed

    def _read(self, name: str) -> tuple[Any, np.ndarray]:
        """Return what the call returned, and its numbers."""
        self._enter(name)
        value = call(name, self._reads[name])
        numbers = vector(name, value.value if isinstance(value, Reading) else value, self._sizes[name])
        self._sizes[name] = len(numbers)
        return value, numbers

    def _send(self, step: Step, action: np.ndarray) -> None:
        began = self._clock.now()
        with self._guard.held():
            if not call("send_action", self._gate.send, action):
                self._check_stop()
            step.sent = action
        step.send = self._clock.now() - began

    def _enter(self, part: str) -> None:
        self._check_stop()
        self._watchdog.enter(part)

    def _check_stop(self) -> None:
        """Raise if the controller was stopped, or if the watchdog is about to stop it."""
        if sentence := self._gate.reason or self._watchdog.overdue():
            raise Fault(sentence)

    def _judge(self, missed: bool) -> None:
        self._late = self._late + 1 if missed else 0
        self._record.counts["overruns"] += missed
        if self.max_overruns is not None and self._late >= self.max_overruns:
            spreads = self._record.spreads()
            slowest = max(("read", "policy", "send"), key=lambda name: spreads[name].p50 or 0.0)
            self._fail(
                f"too slow: {self._late} deadlines missed in a row (a step takes {spreads['compute'].p50:.3g} ms, most"
                f" of it {slowest}; the period is {self.period * 1e3:.3g} ms): lower rate_hz or make it faster"
            )

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (Fault, UserError) as fault:
            self._fail(str(fault), fault)

    def _fail(self, sentence: str, error: BaseException | None = None) -> NoReturn:
        self._end(sentence)
        raise Stopped(self._gate.reason or sentence, self.report()) from error

    def _trip(self, sentence: str) -> None:
        if self._gate.close(sentence):
            LOG.error("%s; %s", sentence, self._gate.outcome)  # the loop's thread may hang and never raise it

    def _end(self, reason: str) -> None:
        self._guard.busy = True  # for good: no signal interrupts the stop
        self._gate.close(reason)
        self._watchdog.end()
        if self._froze:
            gc.unfreeze()
        self._froze, self._over = False, True

    def _write_black_box(self) -> None:
        if (box := self.black_box) is None:
            return
        path = box if isinstance(box, Path) else getattr(box, "name", "its file")
        try:
            if isinstance(box, Path):
                box.parent.mkdir(parents=True, exist_ok=True)
            with box.open("w", newline="", encoding="utf-8") if isinstance(box, Path) else nullcontext(box) as file:
                self._record.write(file, self._gate.reason or "")
            self._black_box_note = f"black box: {path}"
        except Exception as error:
            self._black_box_note = f"the black box could not be written to {path} ({in_one_line(error)})"


def freeze_garbage() -> bool:
    """Exclude all objects made before the loop from garbage collection. -> whether the caller must undo it

    With JAX loaded, a full collection takes a tenth of a second or more.
    """
    gc.collect()
    ours = gc.get_freeze_count() == 0
    gc.freeze()
    return ours


def _require_callable(name: str, function: Any) -> None:
    if not callable(function):
        how = "policy(observation, goal)" if name == "policy" else f"{name}()"
        hint = "; give dcp.policies.wrappers.Stepper(policy)" if hasattr(function, "act") else ""
        raise UserError(f"{name} is a {type(function).__name__}, which cannot be called: it is used as {how}{hint}")


def _size(name: str, size: int | None, policy: Any) -> int | None:
    """Return the given size, else the policy's: an exported policy has sizes, one from dcp.load_policy has a spec."""
    if size is not None:
        return _count(name, size, 1)
    own = getattr(policy, name, getattr(getattr(policy, "spec", None), name, None))
    return own if isinstance(own, int) else None


def _goal_dims(policy: Any) -> list[int]:
    dims = getattr(policy, "goal_dims", getattr(getattr(policy, "spec", None), "goal_dims", None))
    if dims is None:
        raise UserError("settle needs a policy that says which numbers of the state its goal is of: its goal_dims")
    return list(dims)


def _length(*values: Any) -> int:
    """Return the number of joints from the first value that is a list, because the safe action may be sent first."""
    for value in values:
        if value is not None and not callable(value) and not isinstance(value, str) and np.ndim(value) == 1:
            return len(value)
    raise UserError("the number of joints is not known: give action_size, or safe_action as an array")


def _positive(name: str, value: Any, or_zero: bool = False) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} must be a number, not {value!r}") from error
    if not math.isfinite(number):
        raise UserError(f"{name} must be finite, not {value}")
    if number < 0 or (number == 0 and not or_zero):
        raise UserError(f"{name} must be {'0 or more' if or_zero else 'positive'}, not {value}")
    return number


def _count(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise UserError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)
