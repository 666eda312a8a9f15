"""What ends a command with a sentence instead of a traceback, and words for such sentences."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any
from unicodedata import category


class UserError(ValueError):
    """A user's mistake: one sentence that says what to do. The command line prints it and exits with code 2."""


class RunError(RuntimeError):
    """A run could not continue, through no mistake of its user: what happened and what was kept. Exit code 1."""


class WorkerError(RunError):
    """A process that steps an environment failed."""


def worker_error_in(error: BaseException) -> WorkerError | None:
    """Return the `WorkerError` that ended a compiled program: JAX passes it on as the last line of its own error."""
    _, mark, sentence = str(error).rpartition(f"{WorkerError.__name__}: ")
    return WorkerError(sentence.strip()) if mark else None


PACKAGE = "dcp-rl"  # the distribution's name. No package index has it yet, and `dcp` there is another project.


def install_hint(extra: str = "") -> str:
    """Return how to install dcp with an extra: from the repository that pyproject's urls name, or from a clone."""
    from importlib import metadata

    part = f"[{extra}]" if extra else ""
    try:
        urls = metadata.metadata(PACKAGE).get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        urls = []
    for url in urls:
        name, _, address = url.partition(", ")
        if name == "Repository":
            return f"pip install '{PACKAGE}{part} @ git+{address}'"
    return f"pip install '.{part}' in a clone of dcp" if extra else "pip install . in a clone of dcp"


# How a command ends. `dcp train` and the processes of `dcp grid` use the same numbers; cli/main.py has the sentences.
EXIT_FAULT, EXIT_MISTAKE, EXIT_INTERRUPTED = 1, 2, 130
EXIT_REQUEUE = 75  # sysexits' TEMPFAIL: stopped with a checkpoint


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return one sentence for a name that is not in its table."""
    known = list(known)
    close = get_close_matches(str(name)[:100], known, 1)
    nearest = f", perhaps {close[0]!r}" if close else ""
    return f"unknown {kind.replace('_', ' ')} {shown(name)}: choose one of {', '.join(known)}{nearest}"


QUOTED = "'{}'"


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", form: str = "{}") -> str:
    """Return `did you mean X?` for a name that is nearly one of these; else what to do, by default their list."""
    known = list(known)
    close = get_close_matches(name[:100], known, 1)
    return f"did you mean {form.format(close[0])}?" if close else otherwise or f"choose one of {', '.join(known)}"


def shown(value: Any) -> str:
    """Return a value of any kind and size for a sentence: one line, not too long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an integer of more digits than Python writes, or an object's own __repr__
        return f"this {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}...{text[-10:]}"


def printable(text: str) -> str:
    """Return a text without characters that would control the terminal: they become such as \\x1b."""
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)


def is_text(name: str) -> bool:
    """Tell whether a name can be shown: UTF-8 can write it, and it controls no terminal; line breaks may stay."""
    return not any(category(one) in ("Cc", "Cs") and one not in "\t\n" for one in name)


def one_line(error: BaseException) -> str:
    """Return an error's message in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}..."
