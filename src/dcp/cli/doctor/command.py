"""The checks in their order, with progress while they run, and what they found as a table or as JSON."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from dcp import __version__
from dcp.cli.doctor import disk, machine, packages, rendering, self_test
from dcp.cli.doctor.check import Check, guarded
from dcp.cli.main import COMMANDS
from dcp.errors import UserError

EXIT_PROBLEM = 1
COLOURS = {"ok": "green", "missing": "yellow", "problem": "bold red"}
DESCRIPTION = f"""{COMMANDS["doctor"]}

states:
  ok       it works
  missing  dcp works without it; the row says what to install
  problem  dcp does not work without it; the row says what to do

exit code: 0, or 1 if there is a problem"""


@dataclass(frozen=True)
class DoctorOptions:
    runs_dir: Path = Path("runs")
    """Where runs will go: is there room, and can it be written?"""
    self_test: bool = True
    """Train for a moment in a temporary folder."""
    json: bool = False
    """One JSON object in place of the table."""


def main(argv: list[str]) -> int:
    try:  # both are packages that a broken installation may lack, and then there is nothing to print with
        import rich  # noqa: F401

        from dcp.cli.flags import parse
    except ImportError as error:
        raise UserError(f"{error.name} does not import ({error}): install dcp with its requirements again") from error
    options = parse(DoctorOptions(), argv, "dcp doctor", DESCRIPTION)
    found = list(_run(_checks(options)))
    problems = [check for check in found if check.state == "problem"]
    if options.json:
        print(json.dumps({"ok": not problems, "version": __version__, "checks": [asdict(check) for check in found]}))
    else:
        _show(found)
    return EXIT_PROBLEM if problems else 0


def _checks(options: DoctorOptions) -> dict[str, Callable[[], Iterable[Check]]]:
    checks: dict[str, Callable[[], Iterable[Check]]] = {
        "Python": machine.python,
        "packages": packages.packages,
        "JAX": machine.jax_starts,
        "GPU": machine.gpu,
        "memory": machine.memory,
        "disk for runs": partial(disk.runs, options.runs_dir),
        "disk for cache": disk.cache,
        "rendering": rendering.rendering,
        "extras": packages.extras,
    }
    return {**checks, "training": self_test.self_test} if options.self_test else checks


def _run(checks: dict[str, Callable[[], Iterable[Check]]]) -> Iterator[Check]:
    """What is under way goes to stderr: on a terminal in one line that vanishes, else a line each."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("dcp doctor") as status:
        for number, (name, check) in enumerate(checks.items(), 1):
            label = f"{number} of {len(checks)}: {name}"
            if console.is_terminal:
                status.update(label)
            else:
                print(label, file=sys.stderr, flush=True)
            yield from guarded(name, check)


def _show(found: list[Check]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from dcp.cli.tables import show

    table = Table("check", "state", "found")
    for check in found:
        advice = f"\n[bold]-> {escape(check.advice)}[/bold]" if check.advice else ""
        state = f"[{COLOURS[check.state]}]{check.state}[/]"
        table.add_row(check.name, state, escape(check.found) + advice)
    show(table)
    print(_verdict(found))


def _verdict(found: list[Check]) -> str:
    problems = [check.name for check in found if check.state == "problem"]
    missing = [check.name for check in found if check.state == "missing"]
    if problems:
        return f"Broken: {', '.join(problems)}. The table says what to do."
    if missing:
        return f"Everything that is needed works. Missing, but not needed: {', '.join(missing)}."
    return "Everything works."
