"""Whether the loop still comes round, and where it is if not."""

from dcp.deploy.control.clock import Clock

START, STATE, GOAL, POLICY, SEND = "the start", "read_state", "read_goal", "the policy", "send_action"
BETWEEN, WAIT = "your code between two steps", "the wait for the next step"
_ADVICE = {
    START: "look what keeps it, or raise start_timeout",
    STATE: "check the sensor and its connection",
    GOAL: "check where the goal comes from",
    POLICY: "use a faster policy, such as one of `dcp export`, or a lower rate",
    SEND: "check the actuators and their connection",
    WAIT: "give the loop a core of its own, or raise stale_after",
    BETWEEN: "call step() more often, or use run()",
}


class Heartbeat:
    """Written by the loop, read by the watchdog."""

    def __init__(self, clock: Clock, start_timeout: float, stale_after: float):
        self._clock, self._stale_after = clock, stale_after
        self._limit, self._name, self._phase = start_timeout, "start_timeout", START
        self.between = BETWEEN
        self.last = clock.now()

    def beat(self) -> float:
        self.last = self._clock.now()
        return self.last

    def started(self) -> None:
        self._phase = self.between
        self.beat()
        self._limit, self._name = self._stale_after, "stale_after"

    def enter(self, phase: str) -> None:
        if self._phase != START:  # which lasts until `started`
            self._phase = phase

    def overdue(self) -> str | None:
        """A sentence if the loop has not come round for too long."""
        now = self._clock.now()  # read before the beat, so that a beat in between makes us patient, not hasty
        age, phase = now - self.last, self._phase
        if age <= self._limit:
            return None
        limit = f"{self._name} is {self._limit:.3g} s"
        return f"the loop has not come round for {age:.3g} s ({limit}), it is in {phase}: {_ADVICE[phase]}"
