"""`dcp paper`: the paper's tables and figures as a list, and each of them from the runs at hand."""

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS
from dcp.cli.report import print_table
from dcp.cli.working import working
from dcp.config import Config
from dcp.errors import UserError, shown

if TYPE_CHECKING:
    from dcp.lab.run_collection import Collection


@dataclass(frozen=True)
class PaperOptions:
    what: Annotated[tuple[str, ...], POSITIONAL] = ()
    """Which to make, such as table2 figure3b videos. Default: the list of all."""
    runs_dir: Path = Path("runs")
    """Runs of `dcp grid --preset paper`, or others: those with the paper's settings count."""
    ledger: Path = Path("ledger")
    """The ledger of a clone, whose runs count too."""
    out: Path | None = None
    """Folder for the files. Default: paper/ in --runs-dir."""


def main(argv: list[str]) -> int:
    options = parse(PaperOptions(), argv, "dcp paper", COMMANDS["paper"])
    from dcp.files.writing import require_no_links_out
    from dcp.lab import paper_artefacts as paper
    from dcp.lab.result_tables import require_writable, write_table
    from dcp.machine import compiling

    for name in options.what:
        if name not in paper.ARTEFACTS:
            close = get_close_matches(name[:100], paper.ARTEFACTS, 1)
            hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(paper.ARTEFACTS)}"
            raise UserError(f"the paper has no {shown(name)}: {hint}")
    out = options.out or options.runs_dir / "paper"
    require_no_links_out(out, of=out if options.out else options.runs_dir)
    require_writable(out)
    compiling.enable_cache()
    collection = _collect(options)
    if not options.what:
        table = paper.overview(collection, hours_left, str(options.runs_dir))
        print_table(table)
        print("\n".join(map(str, write_table(table, out))))
        return 0
    runs = paper.papers_runs(collection)
    for name in options.what:
        _make(name, runs, out)
    return 0


def _collect(options: PaperOptions) -> "Collection":
    from dcp.lab.run_collection import Collection, collect

    folders = [folder for folder in (options.runs_dir, options.ledger) if folder.is_dir()]
    try:
        return collect(folders)
    except UserError:  # no run yet: the list says what to train
        return Collection(())


@cache
def _whole(config: Config) -> float | None:
    from dcp.runs.display import rough_seconds

    return rough_seconds(config.resolve(1000))


def hours_left(config: Config, env_steps: float) -> float | None:
    """Forecast the rest of a run on all cores of this machine."""
    seconds = _whole(Config.from_dict({**vars(config), "seed": 0}))
    return None if seconds is None else max(0.0, 1.0 - env_steps / config.steps) * seconds / 3600


def _make(name: str, runs: "Collection", out: Path) -> None:
    """Write one table or figure, and print where it is; if the runs do not allow it, say what is missing."""
    from dcp.lab import paper_artefacts as paper
    from dcp.lab.build_report import draw
    from dcp.lab.result_tables import write_table

    artefact = paper.ARTEFACTS[name]
    if artefact.command:
        print(f"{name} needs no run: `{artefact.command}`, in a clone, makes it.")
    elif artefact.sections is None:
        _videos(runs, out)
    elif not (sections := artefact.sections(runs)):
        print(f"{name} needs runs with the paper's settings that are not here: {what_to_run(name)}.")
    else:
        for section in sections:
            print(section.text, end="\n" * bool(section.text))
            for table in section.tables:
                print_table(table)
                print("\n".join(map(str, write_table(table, out))))
            for figure in section.figures:
                with working() as say:
                    say(f"drawing {figure.name}: {figure.caption}")
                    drawn = draw(figure, out)
                print(drawn if isinstance(drawn, str) else f"{out / figure.name}.png and .pdf")


def what_to_run(name: str) -> str:
    """Return the commands whose results a table or figure lacks."""
    from dcp.lab import paper_artefacts as paper

    artefact = paper.ARTEFACTS[name]
    envs, seeds = ",".join(artefact.environments), ",".join(map(str, range(artefact.num_seeds)))
    words = f"`dcp grid --preset paper --where env={envs} method={','.join(artefact.methods)} seed={seeds}`"
    if name in ("table2", "table3"):
        words += f", then {paper.FIRST_BURSTS.format('runs/<env>/<method>/seed_[012]').removeprefix('first ')}"
    return words


def _videos(runs: "Collection", out: Path) -> None:
    from dcp.cli.render import main as render
    from dcp.lab import paper_artefacts as paper

    pairs = paper.pairs_of_policies(runs, paper.VIDEO_ENV)
    if not pairs:
        print(f"videos need runs with the paper's settings that are not here: {what_to_run('videos')}.")
        return
    for run in pairs[0]:
        render([str(run.folder), "--seed", str(paper.VIDEO_SEED), "--episode", "0", "--out", str(out / "videos")])
