"""The help of a command (its flags under their headings, explained by the strings below the fields), and refusals."""

import ast
import dataclasses
import errno
import inspect
import os
import shutil
import textwrap
import traceback
from collections.abc import Mapping
from functools import cache
from itertools import groupby, pairwise
from typing import Any

from dcp.cli.flags import Flag, flags_of
from dcp.cli.main import COMMANDS
from dcp.errors import EXIT_FAULT, EXIT_MISTAKE, UserError, did_you_mean, one_line, worker_error_in

FIRST = "start with"  # the heading of the most important flags
IMPORT = ("--import MODULE", "Import this module first, such as one that registers an environment. May be repeated.")
WORDS = {int: ("a whole number", "whole numbers"), float: ("a number", "numbers")}
COUNTS = {2: "two", 3: "three"}
WIDEST, INDENT = 120, 26  # of the help


def overview() -> str:
    """Return the help of `dcp` itself."""
    rows = [f"  {name:<12}{purpose}" for name, purpose in COMMANDS.items()]
    return "\n".join(
        [
            "Direction-conditioned policies for goal-conditioned reinforcement learning.",
            "",
            "usage: dcp <command> [options]",
            "",
            *rows,
            "",
            "  --help           This text; after a command, its options.",
            "  --version",
            "  --import MODULE  For any command: import this module first, such as one that registers an environment.",
        ]
    )


def no_arguments(argv: list[str], prog: str, purpose: str) -> bool:
    """Check the arguments of a command that has no options. -> whether to run it"""
    if argv and argv[0] not in ("-h", "--help"):
        raise UserError(f"`{prog}` takes no arguments: leave out {argv[0]!r}")
    if argv:
        print(f"usage: {prog}\n\n{purpose}\n\n{_row(*IMPORT)}")
    return not argv


def help_text(default: Any, prog: str, description: str, extra: Mapping[str, type], first: tuple[str, ...]) -> str:
    flags = sorted(flags_of(default, extra), key=lambda flag: flag.group != "options")
    begin = {flag.field: dataclasses.replace(flag, group=FIRST) for flag in flags if flag.field in first}
    flags = [*(begin[field] for field in first), *(flag for flag in flags if flag.field not in first)]
    usage = [f"[{flag.shown}{' ...' * (flag.count is None)}]" for flag in flags if flag.positional]
    parts = [" ".join(["usage:", prog, "[options]", *usage]), description]
    for group, members in groupby(flags, lambda flag: flag.group):
        rows = [_row(flag.shown, _explained(flag)) for flag in members]
        parts.append("\n".join([f"{group}:", *rows]))
    parts.append("\n".join(["of every command:", _row("-h, --help", "Show this text."), _row(*IMPORT)]))
    return "\n\n".join(parts)


def _explained(flag: Flag) -> str:
    text = _docstrings(flag.owner).get(flag.field.rpartition(".")[2], "")
    if flag.default is None or flag.default is False or flag.default in ((), ""):
        return text
    default = " ".join(map(str, flag.default)) if isinstance(flag.default, tuple) else flag.default
    return f"{text} (default: {default})".lstrip()


def _row(left: str, text: str) -> str:
    width = min(shutil.get_terminal_size().columns, WIDEST) - 1
    lines = textwrap.wrap(text, max(width - INDENT, 20))
    first = f"  {left}" if len(left) > INDENT - 4 or not lines else f"  {left:<{INDENT - 4}}  {lines.pop(0)}"
    return "\n".join([first, *(" " * INDENT + line for line in lines)])


@cache
def _docstrings(kind: type) -> dict[str, str]:
    """Return the string below each field, including the fields of base classes."""
    texts: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        except (OSError, TypeError):  # a built-in class, or one typed at a prompt
            continue
        for field, text in pairwise(body.body if isinstance(body, ast.ClassDef) else []):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                texts[field.target.id] = " ".join(str(getattr(text.value, "value", "")).split())
    return texts


# What is wrong with a command line, in a sentence


def wrong_values(flag: Flag, text: str, prog: str) -> UserError:
    one, several = WORDS.get(flag.kind, ("a value", "values"))
    what = one if flag.count == 1 else f"{COUNTS[flag.count]} {several}" if flag.count else several
    such = f", such as {' '.join(map(str, flag.alone))}" if flag.alone else ""
    return UserError(f"{flag.name} takes {what}{such}, not {text!r}: see `{prog} --help`")


def unknown_option(name: str, flags: Mapping[str, Flag], prog: str) -> UserError:
    known = [*(flag.name for flag in flags.values() if not flag.positional), "--help", "--import"]
    known += [f"--no-{flag.name[2:]}" for flag in flags.values() if flag.kind is bool]
    return UserError(f"unknown option {name}: {did_you_mean(name, sorted(known), f'see `{prog} --help`')}")


def explained(error: Exception) -> tuple[str, int] | None:
    """Return a sentence about an error that no command expects, and the exit code; None for a mistake of ours."""
    if worker := worker_error_in(error):
        return str(worker), EXIT_FAULT
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"{error.strerror}: make room, and run it again", EXIT_FAULT
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        advice = "name a path that exists and that you may use"
        return f"cannot use {_short(os.fsdecode(error.filename))} ({error.strerror}): {advice}", EXIT_MISTAKE
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # by Path.resolve
        return f"{_short(str(error))}: it is a link to itself; name another path", EXIT_MISTAKE
    if isinstance(error, RecursionError) and {"mkdir", "makedirs"} & _functions(error):
        return "a path has too many folders in one another: name a shorter one", EXIT_MISTAKE
    if variable := _blamed(error):
        return f"{variable}={os.environ[variable]} does not work ({one_line(error)}): unset it", EXIT_MISTAKE
    return None


def _functions(error: Exception) -> set[str]:
    """Return the names of the functions through which an error came."""
    return {frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)}


def _short(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:100]}...{path[-50:]}"


def _blamed(error: Exception) -> str | None:
    """Return the environment variable of JAX or MuJoCo that an error names, if the user has set it."""
    names = (name for name in os.environ if name.startswith(("JAX_", "MUJOCO_")))
    return next((name for name in names if name.lower() in str(error).lower()), None)
