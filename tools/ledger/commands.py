"""`python -m tools.ledger`: add runs to the ledger, check all its entries, train one again, and make its page."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.working import count
from dcp.errors import EXIT_FAULT, EXIT_MISTAKE, RunError, UserError
from dcp.named_code import only_allowed

PROGRAM = "python -m tools.ledger"
PURPOSE = "Keep a ledger of runs that anyone can check and add to."
ACTIONS = {
    "add": "RUN ...: check finished or unfinished runs, evaluate their policies again, and add them.",
    "check": "Check every entry, and that the tables of README.md match the entries.",
    "rerun": "ENTRY: check an entry, train its config again for its first evaluations, and compare the numbers.",
    "page": "Write the entries as one page with filters (--out).",
}


@dataclass(frozen=True)
class LedgerOptions:
    words: Annotated[tuple[str, ...], POSITIONAL] = ()
    """add RUN ..., check, rerun ENTRY, or page: see above."""
    ledger: Path = Path("ledger")
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
    """Run one of the ledger's commands and return the exit code."""
    rows = [f"  {name:<8}{purpose}" for name, purpose in ACTIONS.items()]
    try:
        options = parse(LedgerOptions(), argv, PROGRAM, "\n".join([PURPOSE, "", "what to do:", *rows]))
        with only_allowed():  # nothing that an entry names is imported
            return _run(options)
    except UserError as error:
        _complain(f"ledger: {' '.join(str(error).split())}")
        return EXIT_MISTAKE
    except RunError as error:
        _complain(f"ledger: {' '.join(str(error).split())}")
        return EXIT_FAULT
    except OSError as error:
        if error.filename is None:
            raise
        _complain(f"ledger: cannot use {str(error.filename)[:200]} ({error.strerror})")
        return EXIT_MISTAKE


def _run(options: LedgerOptions) -> int:
    action, *paths = options.words or ("",)
    if action not in ACTIONS:
        raise UserError(f"{PROGRAM} does not know {action!r}: choose one of {', '.join(ACTIONS)}")
    if action == "add":
        return _add(paths, options)
    if action == "rerun":
        return _rerun(paths, options)
    if paths:
        raise UserError(f"{PROGRAM} {action} takes no {paths[0]!r}: name the ledger with --ledger")
    if not options.ledger.is_dir():
        raise UserError(f"there is no ledger at {options.ledger}: add a run first, or name it with --ledger")
    return _check(options) if action == "check" else _page(options)


def _complain(sentence: str) -> None:
    """Print to stderr, with what a stranger's file could use to control a terminal made visible."""
    print("".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in sentence), file=sys.stderr)


def _add(runs: Sequence[str], options: LedgerOptions) -> int:
    if not runs:
        raise UserError(f"{PROGRAM} add needs a run's folder, such as runs/ant_u_maze/dcp/seed_0")
    _take_cores(runs)
    from dcp.machine.compiling import enable_cache
    from tools.ledger.entries import add, check_all
    from tools.ledger.tables import read_page, write_tables

    read_page(options.ledger)  # a page that cannot be read is reported before anything is evaluated
    enable_cache(None)
    for run in runs:
        folder = add(Path(run), options.ledger, options.by, options.note, options.commit)
        print(f"added {run} as {folder}")
    write_tables(options.ledger, check_all(options.ledger))
    print(f"wrote the tables of {options.ledger}")
    return 0


def _check(options: LedgerOptions) -> int:
    from tools.ledger.entries import check_all
    from tools.ledger.tables import table_faults, write_tables

    if options.evaluate:
        from dcp.machine.compiling import enable_cache

        enable_cache(None)
    entries = check_all(options.ledger, options.evaluate)
    if options.write:
        write_tables(options.ledger, entries)
        print(f"wrote the tables of {options.ledger}")
    faults = [f"{entry.folder}: {fault}" for entry in entries for fault in entry.faults]
    faults += table_faults(options.ledger, entries)
    for sentence in faults:
        _complain(sentence)
    print(f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}, {count(len(faults), 'fault')}")
    return EXIT_FAULT if faults else 0


def _rerun(paths: Sequence[str], options: LedgerOptions) -> int:
    if len(paths) != 1:
        raise UserError(f"{PROGRAM} rerun takes one entry's folder, such as ledger/ant_u_maze/dcp/seed_0_1a2b3c4d")
    _take_cores(paths)
    from dcp.machine.compiling import enable_cache

    enable_cache(None)
    from tools.ledger.entries import rerun

    if differences := rerun(Path(paths[0]), options.evaluations):
        _complain("Numbers differ: bits are promised for the same machine, cores and versions.")
        for sentence in differences:
            _complain(sentence)
        return EXIT_FAULT
    print("Every number equals the logged one.")
    return 0


def _take_cores(runs: Sequence[str]) -> None:
    """Take as many cores as these runs were trained on, where all had the same: the number decides how XLA rounds."""
    from dcp.files.run_folder import CONFIG_FILE, read_config_file
    from dcp.grid.worker import pin

    paths = [Path(run) / CONFIG_FILE for run in runs]
    cores = {read_config_file(path)["machine"].get("cores", "") for path in paths if path.is_file()}
    number = cores.pop() if len(cores) == 1 else ""
    if re.fullmatch("[1-9][0-9]{0,3}", number):
        pin(int(number))


def _page(options: LedgerOptions) -> int:
    from dcp.lab.pages import theme, whole_page
    from dcp.policies.policy_file import write_whole
    from tools.ledger.entries import check_all
    from tools.ledger.tables import by_other_code, index

    runs, title = index(options.ledger, check_all(options.ledger)), "Leaderboard: every run of the ledger, with filters"
    style = theme() + _page_file("ledger/style.css")
    page = whole_page("ledger", [*runs, *by_other_code()], title=title, read=_page_file, style=style)
    write_whole(options.out, page.encode())
    print(f"wrote {options.out}: {count(len(runs), 'run')}")
    return 0


def _page_file(name: str) -> str:
    """Return a file of the ledger's page, which lies in `page/` here, or one that every page shares."""
    from dcp.lab.pages import asset

    own = Path(__file__).parent / "page" / Path(name).name
    return own.read_text(encoding="utf-8") if name.startswith("ledger/") else asset(name)
