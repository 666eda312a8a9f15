"""What a check says, and how one is run so that whatever goes wrong becomes a row of the table."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["ok", "missing", "problem"]


@dataclass(frozen=True)
class Check:
    """One row. missing: dcp works without it. problem: it does not, and the exit code says so."""

    name: str
    state: State
    found: str
    advice: str = ""  # what to install or do; empty where all is well


class ProbeError(Exception):
    """A child process did not do what it was asked for; the message says why in one line."""


def guarded(name: str, check: Callable[[], Iterable[Check]]) -> list[Check]:
    """Its rows; a check that itself fails is one row, never a traceback."""
    try:
        return list(check())
    except Exception as error:
        advice = "Install dcp with its requirements again; if that does not help, report it."
        return [Check(name, "problem", f"this check failed ({first_line(error)})", advice)]


def first_line(error: Exception) -> str:
    """An exception in one line; of our own, the message alone."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return text if text and type(error).__module__.startswith("dcp.") else f"{type(error).__name__}: {text}"


# The function's result, or its failure, is the last line: packages print remarks of their own before it.
_CHILD = """
import importlib, json, sys
from dcp.cli.doctor.check import first_line
try:
    answer = {"result": getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(*sys.argv[3:])}
except Exception as error:
    answer = {"error": first_line(error)}
print("\\n" + json.dumps(answer))
"""


def in_a_process(function: Callable[..., Any], *args: str, timeout: float, env: dict[str, str] | None = None) -> Any:
    """Call it in a Python of its own: native code that crashes or hangs takes no one else with it. Result as JSON."""
    command = [sys.executable, "-c", _CHILD, function.__module__, function.__name__, *args]
    try:
        child = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
            timeout=timeout,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise ProbeError(f"no answer within {timeout:.0f} s") from None
    if child.returncode < 0:
        raise ProbeError(f"the process was ended by {signal.Signals(-child.returncode).name}")
    try:
        answer = json.loads(child.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        said = [line for line in child.stderr.splitlines() if line.strip()]
        raise ProbeError(said[-1].strip() if said else f"the process ended with code {child.returncode}") from None
    if "error" in answer:
        raise ProbeError(answer["error"])
    return answer["result"]
