"""What a controller measured of itself."""

import json
from dataclasses import asdict, dataclass

TIMINGS = ("period", "compute", "read", "policy", "send")


@dataclass(frozen=True)
class Spread:
    """Milliseconds; None before the first."""

    p50: float | None = None
    p99: float | None = None
    max: float | None = None


@dataclass(frozen=True)
class Report:
    rate_hz: float
    steps: int
    seconds: float
    period: Spread  # from the start of a step to the start of the next
    compute: Spread  # a whole step: read, policy, send and our own checks
    read: Spread
    policy: Spread
    send: Spread
    overruns: int  # steps that were not done by the next deadline
    skipped_periods: int  # deadlines left out because of them
    clipped: int  # actions that the limits altered
    rate_limited: int  # actions that max_change altered
    history: int  # p50 and p99 are over so many last steps at most; max and counts are over all
    ended: str
    safe_action: str
    black_box: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)

    def __str__(self) -> str:
        lines = [f"{'milliseconds':<14}{'p50':>10}{'p99':>10}{'max':>10}"]
        for name in TIMINGS:
            spread: Spread = getattr(self, name)
            lines.append(f"{name:<14}" + "".join(_cell(x) for x in (spread.p50, spread.p99, spread.max)))
        lines += [
            f"{self.steps} steps in {self.seconds:.2f} s at {self.rate_hz:g} Hz",
            f"{self.overruns} overruns, {self.skipped_periods} periods skipped,"
            f" {self.clipped} actions clipped, {self.rate_limited} limited in change",
            f"ended: {self.ended}; {self.safe_action}",
        ]
        return "\n".join([*lines, self.black_box] if self.black_box else lines)


def _cell(value: float | None) -> str:
    return f"{'-':>10}" if value is None else f"{value:>10.3f}"
