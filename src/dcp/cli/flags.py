"""Flags from a dataclass by tyro, with its boxed messages turned into one sentence each."""

import dataclasses
import io
import re
from contextlib import redirect_stderr
from difflib import get_close_matches
from itertools import pairwise, takewhile
from typing import Any, TypeVar, get_type_hints

import tyro

from dcp.errors import UserError

T = TypeVar("T")
PAPERS_BURST = ("100", "10")  # P, L


def parse(default: T, argv: list[str], prog: str, description: str) -> T:
    """The default with what argv sets. `--help` prints and exits with code 0."""
    known = sorted(_flags(type(default)))
    _refuse_unknown(argv, known, prog)
    boxed = io.StringIO()
    try:
        with redirect_stderr(boxed):
            return tyro.cli(
                type(default),
                prog=prog,
                description=description,
                args=argv,
                default=default,
                config=(tyro.conf.HelptextFromCommentsOff,),
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
    raise UserError(_sentence(boxed.getvalue(), prog))


def no_arguments(argv: list[str], prog: str, purpose: str) -> bool:
    """For a command without options. -> whether to go on"""
    if not argv:
        return True
    if argv[0] in ("-h", "--help"):
        print(f"usage: {prog}\n\n{purpose}")
        return False
    raise UserError(f"`{prog}` takes no arguments: leave out {argv[0]!r}")


def with_burst_numbers(argv: list[str]) -> list[str]:
    """--burst alone stands for the paper's P and L. It goes last, where it takes no run's name for a number."""
    argv = [part for arg in argv for part in (("--burst", arg[8:]) if arg.startswith("--burst=") else (arg,))]
    if "--burst" not in argv:
        return argv
    at = argv.index("--burst")
    numbers = list(takewhile(_is_number, argv[at + 1 : at + 3]))
    if len(numbers) == 1 or not all(number.lstrip("-").isdigit() for number in numbers):
        given = " ".join(numbers)
        raise UserError(f"--burst takes two whole numbers, P and L, such as {' '.join(PAPERS_BURST)}: not {given!r}")
    return [*argv[:at], *argv[at + 1 + len(numbers) :], "--burst", *(numbers or PAPERS_BURST)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def value_of(flag: str, argv: list[str]) -> str | None:
    """What argv gives to a flag that must be known before the others are read; None without it."""
    values = [value for name, value in pairwise(argv) if name == flag]
    values += [arg.removeprefix(f"{flag}=") for arg in argv if arg.startswith(f"{flag}=")]
    return values[-1] if values else None


def _flags(kind: Any) -> set[str]:
    flags = {"--help"}
    for field, hint in get_type_hints(kind).items():
        name = field.replace("_", "-")
        if dataclasses.is_dataclass(hint):
            flags |= _flags(hint)
        else:
            flags |= {f"--{name}", f"--no-{name}"} if hint is bool else {f"--{name}"}
    return flags


def _refuse_unknown(argv: list[str], known: list[str], prog: str) -> None:
    for arg in argv:
        flag = arg.split("=")[0].replace("_", "-")
        if arg.startswith("--") and flag not in known:
            close = get_close_matches(flag, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"see `{prog} --help`"
            raise UserError(f"unknown option {flag}: {hint}")


def _sentence(boxed: str, prog: str) -> str:
    """tyro's box without its frame (which differs from terminal to terminal), its help text and its Python."""
    text = " ".join(re.sub(r"[│|╭╮╰╯─+]|-{3,}", " ", boxed).split())
    see = f"see `{prog} --help`"
    if found := re.search(r"Error parsing (--\S+):.*?(base 10|to float): '([^']*)'", text):
        kind = "a number" if found[2] == "to float" else "a whole number"
        return f"{found[1]} takes {kind}, not {found[3]!r}: {see}"
    if found := re.search(r"Error parsing (--\S+): Could not find valid parse for arguments: \[(.*?)\]", text):
        return f"{found[1]} does not take {found[2]}: {see}"
    if found := re.search(r"Missing value for argument '([^'/]+)", text):
        return f"{found[1]} needs a value: {see}"
    if found := re.search(r"invalid choice '(.*?)' for argument '(.*?)'. Expected one of \((.*?)\)", text):
        choices = re.findall(r"'([^']*)'", found[3])
        if "None" in choices:  # to leave it out; tyro then tells the others in any order
            choices = sorted({*choices} - {"None"})
        return f"unknown value {found[1]!r} for {found[2]}: choose one of {', '.join(choices)}"
    if found := re.search(r"Unrecognized options: ([^\s,]+)", text):
        return f"did not expect {found[1]!r}: every setting is written as --name value, {see}"
    return f"{text.split('For full helptext')[0]}: {see}"
