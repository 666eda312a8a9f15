"""A policy on a robot: a fixed rate, limits, and a safe action whatever happens. NumPy alone; no JAX is imported.

    controller = Controller(policy, read_state, read_goal, send_action, rate_hz=50, safe_action=np.zeros(6))
    print(controller.run(seconds=60))

docs/controller.md has the rules. Software cannot promise safety: keep the emergency stop within reach.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np

from dcp.deploy.control.clock import Clock, Pacer
from dcp.deploy.control.decision import Decision
from dcp.deploy.control.faults import Fault, Stopped, line
from dcp.deploy.control.garbage import Garbage
from dcp.deploy.control.gate import LOG, Gate
from dcp.deploy.control.heartbeat import SEND, WAIT, Heartbeat
from dcp.deploy.control.inputs import Reading, call, finite, vector
from dcp.deploy.control.limits import within
from dcp.deploy.control.record import Recorder, Step
from dcp.deploy.control.report import Report
from dcp.deploy.control.settings import make_settings
from dcp.deploy.control.signals import SignalGuard, cause
from dcp.deploy.control.watchdog import Watchdog
from dcp.errors import UserError

__all__ = ["Controller", "Reading", "Report", "Stopped"]


class Controller:
    """Serves once: after a stop, or the end of a run, make a new one."""

    def __init__(
        self,
        policy: Callable[[np.ndarray, np.ndarray], Any],  # state [S], goal [G] -> action [A]
        read_state: Callable[[], Any],  # [S], or a Reading: then an unchanged time means a stale state
        read_goal: Callable[[], Any],  # [G]; called each step, so a goal may change
        send_action: Callable[[np.ndarray], Any],  # never by two threads at once
        *,
        rate_hz: float,
        safe_action: Any,  # an array, a function of the last action, or "hold": right for position targets only
        action_low: Any = -1.0,  # one number, or one a joint
        action_high: Any = 1.0,
        max_change: Any = None,  # between two steps; one number, or one a joint
        start_action: Any = None,  # what the actuators do before the first step: an array, or a function that reads it
        stale_after: float | None = None,  # seconds; None: five periods, but at least 0.2
        max_overruns: int | None = 10,  # so many missed deadlines in a row stop it; None: any number is borne
        hold_seconds: float = 0.0,  # keeps sending the safe action for so long
        warm_up: int = 2,  # reads and policy calls before the first step, with nothing sent: programs compile here
        start_timeout: float = 60.0,  # seconds for all that happens before the first step
        state_size: int | None = None,  # None: the policy's own, if it says so
        goal_size: int | None = None,
        action_size: int | None = None,
        history: int = 10_000,  # steps that the percentiles are over
        black_box: str | Path | None = None,  # a CSV file for the last steps, written when it ends
        black_box_steps: int = 500,
        clock: Clock | None = None,
    ):
        given = dict(locals())
        calls = {"read_state": read_state, "read_goal": read_goal, "send_action": send_action}
        self.settings = s = make_settings(policy, calls, given)
        self._clock = s.clock
        self._gate = Gate(
            send_action, s.safe, s.clock, s.period, s.hold_seconds, patience=s.stale_after, after=self._write_black_box
        )
        self._heart = Heartbeat(s.clock, s.start_timeout, s.stale_after)
        self._decision = Decision(policy, read_state, read_goal, s, self._enter)
        self._record = Recorder(s.history, s.black_box_steps)
        self._guard, self._garbage = SignalGuard(), Garbage()
        self._watchdog: Watchdog | None = None  # from the first step on
        self._first = self._before = math.nan  # when the first step and the one before began
        self._late = 0  # missed deadlines in a row
        self._entered = self._over = False
        self._black_box = ""

    def run(self, seconds: float | None = None, steps: int | None = None) -> Report:
        """Until the time or the steps are over, for ever if neither is given. A fault raises `Stopped`."""
        for name, value in (("seconds", seconds), ("steps", steps)):
            if value is not None and not value > 0:
                raise UserError(f"{name} must be positive, not {value}: leave it out to run until something stops it")
        with nullcontext(self) if self._entered else self:
            try:
                self._heart.between = WAIT
                self._start()
                self._loop(math.inf if seconds is None else seconds, math.inf if steps is None else steps)
                self._end(f"ran its course of {self._record.steps} steps")
            except BaseException as error:
                self._end(cause(error))
                raise
        return self.report()

    def step(self) -> np.ndarray:
        """One round at once, for a loop of your own: read, decide, send. Returns what was sent, [A]."""
        self._start()
        step = self._round()
        self._judge(step.compute > self.settings.period)
        assert step.sent is not None
        return step.sent.copy()

    def stop(self, reason: str = "stop() was called") -> None:
        """From any thread: the safe action is out when this returns, and no other action follows it."""
        with self._guard.held():
            self._gate.close(reason)

    def report(self) -> Report:
        r, s = self._record, self.settings
        return Report(
            rate_hz=s.rate_hz,
            steps=r.steps,
            seconds=r.seconds,
            **r.spreads(),
            overruns=r.overruns,
            skipped_periods=r.skipped,
            clipped=r.clipped,
            rate_limited=r.rate_limited,
            history=s.history,
            ended=self._gate.reason or "not yet",
            safe_action=self._gate.outcome,
            black_box=self._black_box,
        )

    def __enter__(self) -> Self:
        if self._entered:
            raise UserError("this controller is in use, or has ended: make a new one")
        self._entered = True
        self._guard.install()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self._end(cause(error))
        finally:
            self._guard.restore()

    def _start(self) -> None:
        """Once, before the first step: everything but sending. What is wrong shows before anything moves."""
        if not self._entered:
            raise UserError("call step() inside `with controller:`, which sends the safe action when it ends")
        if self._over:
            raise UserError(f"this controller has ended ({self._gate.reason}): make a new one")
        if self._watchdog is not None:
            return
        s = self.settings
        self._heart.beat()
        self._watchdog = Watchdog(self._heart.overdue, self._trip, poll=max(s.stale_after / 20, 0.001))
        self._watchdog.start()
        with self._faults():
            if s.start_action is not None:
                given = call("start_action", s.start_action) if callable(s.start_action) else s.start_action
                action = finite("start_action", vector("start_action", given, s.action_size))
                self._gate.last = within("start_action", action, s.limits)
                call("safe_action", s.safe, self._gate.last)
            self._decision.warm_up(self._gate.last)
            self._garbage.leave()
            self._go_on()
        self._heart.started()

    def _loop(self, seconds: float, steps: float) -> None:
        pacer = Pacer(self.settings.period, self._clock)
        while pacer.elapsed < seconds - 1e-9 and self._record.steps < steps:
            self._round()
            missed = pacer.missed()
            self._record.skipped += missed
            self._judge(missed > 0)
            pacer.wait()

    def _round(self) -> Step:
        with self._faults():
            self._go_on()
            now = self._heart.beat()
            self._first = now if math.isnan(self._first) else self._first
            step = Step(self._record.steps, now - self._first, period=now - self._before)
            self._before = now
            self._record.begin(step)
            action = self._decision(step, self._gate.last)
            self._enter(SEND)  # an action from a state that is too old is not sent
            self._send(step, action)
        step.compute = self._clock.now() - now
        self._record.finish(step)
        self._heart.enter(self._heart.between)
        return step

    def _send(self, step: Step, action: np.ndarray) -> None:
        began = self._clock.now()
        with self._guard.held():
            if not call("send_action", self._gate.send, action):
                self._go_on()
            step.sent = action
        step.send = self._clock.now() - began

    def _enter(self, part: str) -> None:
        self._go_on()
        self._heart.enter(part)

    def _go_on(self) -> None:
        """The watchdog's rule, and whether somebody stopped us, also asked by the loop itself."""
        if sentence := self._gate.reason or self._heart.overdue():
            raise Fault(sentence)

    def _judge(self, missed: bool) -> None:
        self._late = self._late + 1 if missed else 0
        self._record.overruns += missed
        if self.settings.max_overruns is not None and self._late >= self.settings.max_overruns:
            spreads = self._record.spreads()
            slowest = max(("read", "policy", "send"), key=lambda name: spreads[name].p50 or 0.0)
            self._fail(
                f"too slow: {self._late} deadlines missed in a row (a step takes {spreads['compute'].p50:.3g} ms, most"
                f" of it {slowest}; the period is {self.settings.period * 1e3:.3g} ms): lower rate_hz or make it faster"
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
        self._guard.busy = True  # for good: nothing interrupts the way out
        self._gate.close(reason)
        if self._watchdog is not None:
            self._watchdog.end()
        self._garbage.resume()
        self._over = True

    def _write_black_box(self) -> None:
        if (path := self.settings.black_box) is not None:
            try:
                self._record.write(path, self._gate.reason or "")
                self._black_box = f"black box: {path}"
            except Exception as error:
                self._black_box = f"the black box could not be written to {path} ({line(error)})"
