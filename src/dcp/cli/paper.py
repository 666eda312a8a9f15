"""`dcp paper`: the paper's tables and figures as a list, and each of them from the runs at hand."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS
from dcp.cli.render import main as render
from dcp.cli.working import print_table, working
from dcp.config import Config
from dcp.errors import UserError, did_you_mean, shown
from dcp.files import require_no_links_out
from dcp.lab.build_report import draw
from dcp.lab.paper_artefacts import ARTEFACTS, FIRST_BURSTS, VIDEO_SEED, overview, papers_runs, video_runs
from dcp.lab.paper_values import EPISODE
from dcp.lab.result_tables import Section, require_writable, write_table
from dcp.lab.run_collection import Collection, collect
from dcp.machine import compiling
from dcp.runs.plain_display import rough_seconds


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
    for name in options.what:
        if name not in ARTEFACTS:
            raise UserError(f"the paper has no {shown(name)}: {did_you_mean(name, ARTEFACTS)}")
    out = options.out or options.runs_dir / "paper"
    require_no_links_out(out, of=out if options.out else options.runs_dir)
    require_writable(out)
    compiling.enable_cache()
    folders = [folder for folder in (options.runs_dir, options.ledger) if folder.is_dir()]
    try:
        collection = collect(folders)
    except UserError:  # no run yet: the list says what to train
        collection = Collection(())
    if not options.what:
        _write(Section("", "", tables=(overview(collection, hours_left, str(options.runs_dir)),)), out)
    runs = papers_runs(collection)
    for name in options.what:
        _make(name, runs, out)
    return 0


@cache
def _whole(config: Config) -> float | None:
    return rough_seconds(config.resolve(EPISODE))


def hours_left(config: Config, env_steps: float) -> float | None:
    """Forecast the rest of a run on all cores of this machine."""
    seconds = _whole(replace(config, seed=0))
    return None if seconds is None else max(0.0, 1.0 - env_steps / config.steps) * seconds / 3600


def _make(name: str, runs: Collection, out: Path) -> None:
    """Write one table or figure, and print where it is; if the runs do not allow it, say what is missing."""
    artefact = ARTEFACTS[name]
    sections = artefact.sections(runs) if artefact.sections else []
    videos = video_runs(runs) if name == "videos" else ()
    for run in videos:
        render([str(run.folder), "--seed", str(VIDEO_SEED), "--episode", "0", "--out", str(out / name)])
    for section in sections:
        _write(section, out)
    if artefact.command:
        print(f"{name} needs no run: `{artefact.command}`, in a clone, makes it.")
    elif not sections and not videos:
        lists = (artefact.environments, artefact.methods, range(artefact.num_seeds))
        env, method, seed = (",".join(map(str, each)) for each in lists)
        words = f"`dcp grid --preset paper --where env={env} method={method} seed={seed}`"
        words += f", {FIRST_BURSTS.format('runs')}" if name in ("table2", "table3") else ""
        print(f"{name} needs runs with the paper's settings that are not here: {words}.")


def _write(section: Section, out: Path) -> None:
    print(section.text, end="\n" * bool(section.text))
    for table in section.tables:
        print_table(table)
        print("\n".join(map(str, write_table(table, out))))
    for figure in section.figures:
        with working() as say:
            say(f"drawing {figure.name}: {figure.caption}")
            drawn = draw(figure, out)
        print(drawn if isinstance(drawn, str) else f"{out / figure.name}.png and .pdf")
