"""`dcp doctor`: run the checks in order, show progress, and print the findings as a table or as JSON."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from dcp import __version__
from dcp.cli import doctor_checks as check_of
from dcp.cli.doctor_checks import Check, guarded
from dcp.cli.flags import parse
from dcp.cli.main import COMMANDS, show
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
    """The folder for runs, which is checked for room and write access."""
    self_test: bool = True
    """Train for a moment in a temporary folder; on a GPU, also time updates under each of our options for it."""
    json: bool = False
    """Print one JSON object instead of the table."""
    gpu: bool = False
    """Measure training on this device (most of it is compiling), compare it with a CPU's numbers, write a report."""
    gpu_envs: tuple[str, ...] = ()
    """With --gpu: step these environments; default: the paper's nine."""
    gpu_report: Path = Path("dcp_gpu_report.json")
    """With --gpu: where the report goes."""


def main(argv: list[str]) -> int:
    try:  # a broken installation may lack rich, which prints everything else
        import rich  # noqa: F401
    except ImportError as error:
        raise UserError(f"{error.name} does not import ({error}): install dcp with its requirements again") from error
    options = parse(DoctorOptions(), argv, "dcp doctor", DESCRIPTION)
    rows = list(_run(_checks(options)))
    problems = [check for check in rows if check.state == "problem"]
    if options.json:
        print(json.dumps({"ok": not problems, "version": __version__, "checks": [asdict(check) for check in rows]}))
    else:
        _show(rows)
    return EXIT_PROBLEM if problems else 0


def _checks(options: DoctorOptions) -> dict[str, Callable[[], Iterable[Check]]]:
    checks: dict[str, Callable[[], Iterable[Check]]] = {
        "Python": check_of.python,
        "packages": check_of.packages,
        "JAX": check_of.jax_starts,
        "GPU": partial(_gpu, options.self_test and not options.gpu),  # --gpu tries its options later
        "memory": check_of.memory,
        "disk for runs": partial(check_of.runs_disk, options.runs_dir),
        "disk for cache": check_of.cache_disk,
        "rendering": check_of.rendering,
        "extras": check_of.extras,
    }
    if options.self_test:
        checks["training"] = check_of.self_test
    if options.gpu:
        from dcp.cli import doctor_gpu
        from dcp.lab.paper_values import ENVIRONMENTS

        envs = options.gpu_envs or tuple(ENVIRONMENTS)
        checks["training on this device"] = partial(doctor_gpu.checks, envs, options.gpu_report)
    return checks


def _gpu(with_options: bool) -> Iterator[Check]:
    from dcp.cli import doctor_gpu

    yield from check_of.gpu()
    if with_options:
        yield from doctor_gpu.option_checks()


def _run(checks: dict[str, Callable[[], Iterable[Check]]]) -> Iterator[Check]:
    """Run the checks and show progress on stderr: on a terminal one line that vanishes, else one line per check."""
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


def _show(rows: list[Check]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("check", "state", "found")
    for check in rows:
        advice = f"\n[bold]-> {escape(check.advice)}[/bold]" if check.advice else ""
        state = f"[{COLOURS[check.state]}]{check.state}[/]"
        table.add_row(check.name, state, escape(check.found) + advice)
    show(table)
    print(_verdict(rows))


def _verdict(rows: list[Check]) -> str:
    problems = [check.name for check in rows if check.state == "problem"]
    missing = [check.name for check in rows if check.state == "missing"]
    if problems:
        return f"Broken: {', '.join(problems)}. The table says what to do."
    if missing:
        return f"Everything that is needed works. Missing, but not needed: {', '.join(missing)}."
    return "Everything works."
