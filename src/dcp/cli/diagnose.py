"""`dcp diagnose`: compare an agent's representation with the truth; write JSON and figures to the run's folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS
from dcp.cli.working import print_json, show, working
from dcp.errors import UserError


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
    options = parse(DiagnoseOptions(), argv, "dcp diagnose", COMMANDS["diagnose"])
    if not options.runs:
        raise UserError("nothing to diagnose: name run folders, policy files or zoo/<env>/<method>")
    if options.only and options.skip:
        raise UserError("--only names what to measure and --skip what not: give one of them")
    if options.out and len(options.runs) > 1:
        raise UserError("--out is one folder, but several runs would write into it: leave it out, or name one run")
    from dcp.lab.diagnose import PARTS, diagnose, require_parts
    from dcp.lab.diagnose.results import FOLDER, write_diagnosis
    from dcp.lab.result_tables import require_writable
    from dcp.lab.targets import environment_of, open_target, require_psi
    from dcp.machine import compiling

    require_parts([*options.only, *options.skip])
    parts = [name for name in PARTS if name not in options.skip and (not options.only or name in options.only)]
    compiling.enable_cache()
    targets = [open_target(run) for run in options.runs]
    folders = [options.out or target.results_dir(FOLDER) for target in targets]
    for target, folder in zip(targets, folders, strict=True):  # report every mistake before the slow work starts
        require_psi(target)
        environment_of(target, options.env)
        require_writable(folder)
    contents = []
    sizes = {"episodes": options.episodes, "states": options.states, "seed": options.seed}
    for target, folder in zip(targets, folders, strict=True):
        with working(f"{target.label}: ") as say:
            content = diagnose(target, options.env, parts=parts, tell=say, **sizes)
            say("figures" if options.figures else "files")
            files = write_diagnosis(folder, content, options.figures)
        contents.append({**content, "files": [str(file) for file in files]})
        if not options.json:
            _show(contents[-1], len(targets) > 1)
    if options.json:
        print_json([{name: part for name, part in content.items() if name != "drawn"} for content in contents])
    return 0


def _show(content: dict[str, Any], several: bool) -> None:
    from rich.table import Table

    from dcp.lab.diagnose.results import findings

    title = f"{content['policy']} on {content['env']}, {content['states']} states of {content['episodes']} episodes"
    table = Table("", title=title, title_justify="left")
    table.add_column("value", justify="right")
    table.add_column("95% interval", justify="right")
    table.add_column("to compare with")
    for group in findings(content):
        for row in group:
            table.add_row(row.measure, row.text, row.interval, row.beside)
        table.add_section()
    show(table)
    for note in content["notes"]:
        print(f"Note: {note}.")
    print(f"Wrote {', '.join(content['files'])}.", end="\n\n" if several else "\n")
