"""What ends a command with a sentence instead of a traceback, and words for such sentences."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class UserError(ValueError):
    """A user's mistake: one sentence that says what to do. The command line prints it and exits with code 2."""


class RunError(RuntimeError):
    """A run could not continue, through no mistake of its user: what happened and what was kept. Exit code 1."""


# How a command ends. `dcp train` and the processes of `dcp grid` use the same numbers; cli/main.py has the sentences.
EXIT_FAULT, EXIT_MISTAKE, EXIT_INTERRUPTED = 1, 2, 130
EXIT_REQUEUE = 75  # sysexits' TEMPFAIL: stopped with a checkpoint


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return one sentence for a name that is not in its table."""
    close = get_close_matches(str(name)[:100], list(known), 1)
    nearest = f", perhaps {close[0]!r}" if close else ""
    return f"unknown {kind.replace('_', ' ')} {shown(name)}: choose one of {', '.join(known)}{nearest}"


def shown(value: Any) -> str:
    """Return a value of any kind and size for a sentence: one line, not too long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an integer of more digits than Python writes, or an object's own __repr__
        return f"this {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}...{text[-10:]}"


def one_line(error: BaseException) -> str:
    """Return an error's message in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}..."
