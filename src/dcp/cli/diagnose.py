"""`dcp diagnose`: compare an agent's representation with the truth; write JSON and figures to the run's folder."""

import json as json_text
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS, show
from dcp.errors import UserError

if TYPE_CHECKING:
    from dcp.lab.targets import Target


@dataclass(frozen=True)
class DiagnoseOptions:
    runs: Annotated[tuple[str, ...], POSITIONAL] = ()
    """Run folders, policy files, or zoo/<env>/<method>."""
    only: tuple[str, ...] = ()
    """Measure only these: gaps, alignment, controllability, calibration, energies, conditioning. Under simulated
    physics the episodes and controllability compile for about half a minute each."""
    skip: tuple[str, ...] = ()
    """Measure all but these."""
    env: str | None = None
    """Study the agent on this environment. Default: the one that the run was evaluated on."""
    episodes: int | None = None
    """Episodes that are played. Default: 64, and 16 under simulated physics."""
    states: int = 256
    """Number of visited states at which to measure."""
    seed: int = 0
    """Seed of the episodes, samples and subgoals."""
    figures: bool = True
    """Also draw the figures."""
    out: Path | None = None
    """Write into this folder instead of <run>/diagnosis."""
    json: bool = False
    """Print the numbers as JSON instead of text."""


def main(argv: list[str]) -> int:
    return _main(parse(DiagnoseOptions(), argv, "dcp diagnose", COMMANDS["diagnose"]))


def _main(options: DiagnoseOptions) -> int:
    parts = _parts(options)
    from dcp.lab.diagnose import diagnose
    from dcp.lab.diagnose.diagnosis import require_psi
    from dcp.lab.diagnosis_results import write_diagnosis
    from dcp.lab.result_tables import require_writable
    from dcp.lab.targets import environment_of, open_target
    from dcp.machine import compiling

    compiling.enable_cache()
    targets = [open_target(run) for run in options.runs]
    for target in targets:  # report every mistake before the slow work starts
        require_psi(target)
        environment_of(target, options.env)
        require_writable(_folder(target, options))
    contents = []
    for target in targets:
        with _progress(target.label) as tell:
            found = diagnose(
                target,
                options.env,
                parts=parts,
                episodes=options.episodes,
                states=options.states,
                seed=options.seed,
                tell=tell,
            )
            tell("figures" if options.figures else "files")
            files = write_diagnosis(_folder(target, options), found, options.figures)
        contents.append({**found, "files": [str(file) for file in files]})
        if not options.json:
            _show(contents[-1], len(targets) > 1)
    if options.json:
        print(json_text.dumps([{k: v for k, v in c.items() if k != "drawn"} for c in contents], indent=1))
    return 0


def _parts(options: DiagnoseOptions) -> list[str]:
    from dcp.lab.diagnose import PARTS

    if not options.runs:
        raise UserError("nothing to diagnose: name run folders, policy files or zoo/<env>/<method>")
    if options.only and options.skip:
        raise UserError("--only names what to measure and --skip what not: give one of them")
    for name in (*options.only, *options.skip):
        if name not in PARTS:
            raise UserError(f"there is no part {name!r}: choose from {', '.join(PARTS)}")
    if options.out and len(options.runs) > 1:
        raise UserError("--out is one folder, but several runs would write into it: leave it out, or name one run")
    return [name for name in PARTS if name not in options.skip and (not options.only or name in options.only)]


def _folder(target: "Target", options: DiagnoseOptions) -> Path:
    from dcp.lab.diagnosis_results import FOLDER

    return options.out or target.room(FOLDER)


@contextmanager
def _progress(label: str) -> Iterator[Callable[[str], None]]:
    """Update one line while the work runs; without a terminal, print one line for each kind of work."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what: console.print(f"{label}: {what}", highlight=False, soft_wrap=True)
        return
    with console.status(label) as status:
        yield lambda what: status.update(f"{label}: {what}")


def _show(content: dict[str, Any], several: bool) -> None:
    from rich.table import Table

    from dcp.lab.diagnosis_results import found_rows

    title = f"{content['policy']} on {content['env']}, {content['states']} states of {content['episodes']} episodes"
    table = Table("", title=title, title_justify="left")
    table.add_column("found", justify="right")
    table.add_column("95% interval", justify="right")
    table.add_column("to compare with")
    for group in found_rows(content):
        for row in group:
            table.add_row(row.measure, row.found, row.interval, row.beside)
        table.add_section()
    show(table)
    for note in content["notes"]:
        print(f"Note: {note}.")
    print(f"Wrote {', '.join(content['files'])}.", end="\n\n" if several else "\n")
