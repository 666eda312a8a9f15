"""`dcp results`: add runs to a ledger, check all its entries, rerun an entry, and make the ledger's page."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS, EXIT_FAULT
from dcp.cli.working import count
from dcp.errors import UserError

ACTIONS = {
    "add": "RUN ...: check finished or unfinished runs, evaluate their policies again, and add them.",
    "check": "Check every entry, and that the tables of README.md match the entries.",
    "rerun": "ENTRY: train an entry's config again for its first evaluations, and compare the numbers.",
    "page": "Write the entries as one page with filters (--out).",
}


@dataclass(frozen=True)
class ResultsOptions:
    words: Annotated[tuple[str, ...], POSITIONAL] = ()
    """add RUN ..., check, rerun ENTRY, or page: see above."""
    ledger: Path = Path("results")
    """The ledger's folder."""
    by: str = ""
    """With add: who ran it."""
    note: str = ""
    """With add: what a reader should know."""
    commit: str = ""
    """With add: the commit of dcp's source that trained it, if you know it."""
    write: bool = False
    """With check: rewrite the tables in the ledger's README.md."""
    evaluate: bool = False
    """With check: also repeat every policy's logged evaluation (a minute for each ant)."""
    evaluations: int = 2
    """With rerun: how many evaluations to train for."""
    out: Path = Path("ledger.html")
    """With page: the file to write."""


def main(argv: list[str]) -> int:
    rows = [f"  {name:<8}{purpose}" for name, purpose in ACTIONS.items()]
    options = parse(ResultsOptions(), argv, "dcp results", "\n".join([COMMANDS["results"], "", "what to do:", *rows]))
    action, *named = options.words or ("",)
    if action not in ACTIONS:
        raise UserError(f"dcp results does not know {action!r}: choose one of {', '.join(ACTIONS)}")
    if action in ("check", "page") and named:
        raise UserError(f"dcp results {action} takes no {named[0]!r}: name the ledger with --ledger")
    if action == "add":
        return _add(named, options)
    if action == "rerun":
        return _rerun(named, options)
    if not options.ledger.is_dir():
        raise UserError(f"there is no ledger at {options.ledger}: add a run first, or name it with --ledger")
    return _check(options) if action == "check" else _page(options)


def _add(runs: list[str], options: ResultsOptions) -> int:
    if not runs:
        raise UserError("dcp results add needs a run's folder, such as runs/ant_u_maze/dcp/seed_0")
    _take_cores(runs)
    from dcp.machine.compiling import enable_cache
    from tools.ledger.entries import add

    enable_cache(None)
    for run in runs:
        folder = add(Path(run), options.ledger, options.by, options.note, options.commit)
        print(f"added {run} as {folder}")
    _write_tables(options.ledger)
    return 0


def _write_tables(ledger: Path) -> None:
    from dcp.policies.policy_file import write_whole
    from tools.ledger.tables import TABLES_FILE, tables, with_tables

    path = ledger / TABLES_FILE
    page = path.read_text(encoding="utf-8") if path.is_file() else "# Results\n"
    write_whole(path, with_tables(page, tables(ledger)).encode())
    print(f"wrote the tables of {path}")


def _check(options: ResultsOptions) -> int:
    from tools.ledger.entries import check_all
    from tools.ledger.tables import table_faults

    if options.evaluate:
        from dcp.machine.compiling import enable_cache

        enable_cache(None)
    found = check_all(options.ledger, options.evaluate)
    if options.write:
        _write_tables(options.ledger)
    bad = [f"{entry.folder}: {fault}" for entry in found for fault in entry.faults]
    bad += table_faults(options.ledger)
    for sentence in bad:
        print(sentence, file=sys.stderr)
    print(f"{count(len(found), 'entry').replace('entrys', 'entries')}, {count(len(bad), 'fault')}")
    return EXIT_FAULT if bad else 0


def _rerun(named: list[str], options: ResultsOptions) -> int:
    if len(named) != 1:
        raise UserError("dcp results rerun takes one entry's folder, such as results/ant_u_maze/dcp/seed_0_1a2b3c4d")
    _take_cores(named)
    from dcp.machine.compiling import enable_cache

    enable_cache(None)
    from tools.ledger.entries import rerun

    if told := rerun(Path(named[0]), options.evaluations):
        print("Numbers differ: bits are promised for the same machine, cores and versions.", file=sys.stderr)
        print("\n".join(told), file=sys.stderr)
        return EXIT_FAULT
    print("Every number equals the logged one.")
    return 0


def _take_cores(runs: list[str]) -> None:
    """Take as many cores as these runs were trained on, where all had the same: the number decides how XLA rounds."""
    from dcp.files.run_folder import CONFIG_FILE, read_config_file
    from dcp.grid.worker import pin

    paths = [Path(run) / CONFIG_FILE for run in runs]
    told = {read_config_file(path).get("machine", {}).get("cores", "") for path in paths if path.is_file()}
    if len(told) == 1 and (number := told.pop()).isdecimal():
        pin(int(number))


def _page(options: ResultsOptions) -> int:
    from dcp.lab.pages import asset, theme, whole_page
    from dcp.policies.policy_file import write_whole
    from tools.ledger.tables import index

    found, title = index(options.ledger), "Results: every run, with filters"
    style = theme() + asset("ledger/style.css")
    page = whole_page("ledger", found, title=title, style=style)
    write_whole(options.out, page.encode())
    print(f"wrote {options.out}: {count(len(found), 'run')}")
    return 0
