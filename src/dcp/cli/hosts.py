"""`dcp train` on several hosts: the same command on each. Host 0 leads; the others follow it."""

import atexit
from collections.abc import Callable
from typing import Any

from dcp.cli.flags import value_of
from dcp.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_MISTAKE, EXIT_REQUEUE, UserError

_FLAGS = ("--coordinator", "--num-hosts", "--host-id")
AUTO = "auto"


def among_hosts(argv: list[str], lead: Callable[[list[str]], int]) -> int:
    """`lead` with this command, if there is one host or this is host 0; else take part. -> the exit code"""
    given = {flag: value_of(flag, argv) for flag in _FLAGS}
    detected = value_of("--hosts", argv)
    if detected is None and not any(given.values()):
        return lead(argv)
    _refuse(argv, given, detected)
    _join(argv, given, detected)
    return _joined(argv, lead) if several() else lead(argv)


def several() -> bool:
    """Whether this process has joined others."""
    from dcp import hosts

    return hosts.count() > 1


def part() -> None:
    """After the last program that all hosts share: what follows is host 0's affair alone."""
    from dcp import hosts

    hosts.part()


def _refuse(argv: list[str], given: dict[str, str | None], detected: str | None) -> None:
    missing = [flag for flag, value in given.items() if value is None]
    if detected is not None and (detected != AUTO or len(missing) < len(_FLAGS)):
        raise UserError(f"--hosts takes {AUTO} alone: give either --hosts {AUTO} or {', '.join(_FLAGS)}")
    if detected is None and missing:
        raise UserError(f"several hosts need {', '.join(_FLAGS)}: add {', '.join(missing)}")
    if value_of("--seeds", argv) is not None:
        raise UserError("--seeds trains several seeds on one host: leave the hosts' flags out, or give --seed")
    if "--dry-run" in argv:
        raise UserError("--dry-run looks at one host: leave the hosts' flags out")


def _join(argv: list[str], given: dict[str, str | None], detected: str | None) -> None:
    from dcp import hosts
    from dcp.hosts import PATIENCE, Meeting

    if detected is not None:
        return hosts.join_detected()
    patience = _number("--join-seconds", value_of("--join-seconds", argv) or str(PATIENCE), float)
    count, index = (_number(flag, given[flag] or "", int) for flag in _FLAGS[1:])
    hosts.join(Meeting(given["--coordinator"] or "", count, index, patience))


def _number(flag: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise UserError(f"{flag} takes a number, not {text!r}: see `dcp train --help`") from None


def _joined(argv: list[str], lead: Callable[[list[str]], int]) -> int:
    """However this host ends, the others hear of it, and none waits for another that is gone."""
    from dcp import hosts

    try:
        code = lead(argv) if hosts.is_first() else _follow(argv)
    except BaseException as error:
        code = _code(error)
        hosts.end_all(str(error) or type(error).__name__, code)
        atexit.register(hosts.leave, code)  # after the sentence that main prints; before JAX waits for all hosts
        raise
    if several():  # they have not parted: there was nothing to train
        hosts.end_all("", code)
        atexit.register(hosts.leave, code)
    return code


def _follow(argv: list[str]) -> int:
    from dcp.training.following import follow
    from dcp.training.keeper import Interrupted

    try:
        follow(value_of("--cache", argv))
    except Interrupted as stop:
        part()
        return EXIT_INTERRUPTED if stop.env_steps is None else EXIT_REQUEUE
    part()
    return 0


def _code(error: BaseException) -> int:
    if isinstance(error, SystemExit):  # --help
        return error.code if isinstance(error.code, int) else 0
    if isinstance(error, UserError):
        return EXIT_MISTAKE
    return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_FAULT
