"""From what the robot says to what may be sent: reads, policy and limits, each checked. Nothing is sent here."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dcp.deploy.control.heartbeat import GOAL, POLICY, STATE
from dcp.deploy.control.inputs import Freshness, Reading, call, finite, vector
from dcp.deploy.control.record import Step
from dcp.deploy.control.settings import Settings


class Decision:
    def __init__(
        self,
        policy: Callable[..., Any],
        read_state: Callable[[], Any],
        read_goal: Callable[[], Any],
        settings: Settings,
        enter: Callable[[str], None],  # called with the name of each part before it begins
    ):
        self._policy, self._reads = policy, {STATE: read_state, GOAL: read_goal}
        self._settings, self._clock, self._enter = settings, settings.clock, enter
        self._fresh = Freshness(settings.stale_after, settings.clock)
        self._sizes = {STATE: settings.state_size, GOAL: settings.goal_size}  # None: as it comes first

    def __call__(self, step: Step, last: np.ndarray | None) -> np.ndarray:
        """The action that may be sent after `last`. `step` is filled in as far as it goes."""
        began = self._clock.now()
        reading = self._read(STATE)
        step.state = self._numbers(STATE, reading)
        if isinstance(reading, Reading):
            self._fresh.check(reading)  # the goal's is not judged: it may stand still
        finite(STATE, step.state)  # after it is in the step: the black box must show it
        step.goal = self._numbers(GOAL, self._read(GOAL))
        finite(GOAL, step.goal)
        decided = self._clock.now()
        step.read = decided - began
        self._enter(POLICY)
        step.action = vector(POLICY, call(POLICY, self._policy, step.state, step.goal), self._settings.action_size)
        finite(POLICY, step.action)
        allowed, step.clipped, step.rate_limited = self._settings.limits.apply(step.action, last)
        step.policy = self._clock.now() - decided
        return allowed

    def warm_up(self, last: np.ndarray | None) -> None:
        for _ in range(self._settings.warm_up):
            self(Step(0, 0.0), last)
        reset = getattr(self._policy, "reset", None)
        if self._settings.warm_up and callable(reset):
            call("policy.reset", reset)  # a burst counts its steps

    def _read(self, name: str) -> Any:
        self._enter(name)
        return call(name, self._reads[name])

    def _numbers(self, name: str, value: Any) -> np.ndarray:
        numbers = vector(name, value.value if isinstance(value, Reading) else value, self._sizes[name])
        self._sizes[name] = len(numbers)
        return numbers
