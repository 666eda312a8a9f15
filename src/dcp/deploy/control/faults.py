"""Why a controller stops, in one sentence that says what to do."""

from dcp.errors import RunError, UserError


class Fault(Exception):  # noqa: N818
    """Found within a step; the controller makes it a stop."""


def line(error: BaseException) -> str:
    """An error in one line; ours say all there is to say without their name."""
    text = " ".join(str(error).split())
    if isinstance(error, Fault | UserError) and text:
        return text
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


class Stopped(RunError):  # noqa: N818
    """The controller stopped. `reason` says why and what to do; `report` is what it measured until then."""

    def __init__(self, reason: str, report):
        super().__init__(f"{reason}; {report.safe_action}")
        self.reason, self.report = reason, report
