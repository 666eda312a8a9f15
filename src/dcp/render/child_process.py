"""A function in a Python of its own: native code that crashes, hangs or leaves a mess takes no one else with it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any


class ProbeError(Exception):
    """A child process did not do what it was asked for; the message says why in one line."""


def first_line(error: Exception) -> str:
    """An exception in one line; of our own, the message alone."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return text if text and type(error).__module__.startswith("dcp.") else f"{type(error).__name__}: {text}"


# The function's result, or its failure, is the last line: packages print remarks of their own before it.
_CHILD = """
import importlib, json, sys
from dcp.render.child_process import first_line
try:
    answer = {"result": getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(*sys.argv[3:])}
except Exception as error:
    answer = {"error": first_line(error)}
print("\\n" + json.dumps(answer))
"""


def in_a_process(function: Callable[..., Any], *args: str, timeout: float, env: dict[str, str] | None = None) -> Any:
    """Call it in a process of its own. Result as JSON."""
    command = [sys.executable, "-P", "-c", _CHILD, function.__module__, function.__name__, *args]
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
