"""What a check says, and how one is run so that whatever goes wrong becomes a row of the table."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from dcp.render.offscreen import ProbeError, first_line, in_a_process

__all__ = ["Check", "ProbeError", "State", "first_line", "guarded", "in_a_process"]

State = Literal["ok", "missing", "problem"]


@dataclass(frozen=True)
class Check:
    """One row. missing: dcp works without it. problem: it does not, and the exit code says so."""

    name: str
    state: State
    found: str
    advice: str = ""  # what to install or do; empty where all is well


def guarded(name: str, check: Callable[[], Iterable[Check]]) -> list[Check]:
    """Its rows; a check that itself fails is one row, never a traceback."""
    try:
        return list(check())
    except Exception as error:
        advice = "Install dcp with its requirements again; if that does not help, report it."
        return [Check(name, "problem", f"this check failed ({first_line(error)})", advice)]
