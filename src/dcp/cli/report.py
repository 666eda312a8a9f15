"""`dcp report`: one page about many runs. `dcp compare A B`: how two runs differ, and what each reached."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS
from dcp.cli.working import beside, count, print_table, require_picture, save_both, working
from dcp.errors import EXIT_FAULT, UserError
from dcp.lab.paper_values import CHECKPOINTS

MOST_REMARKS = 8


@dataclass(frozen=True)
class ReportOptions:
    runs: Annotated[tuple[str, ...], POSITIONAL] = ()
    """Run folders, or folders above them."""
    out: Path | None = None
    """Folder for report.html, figures/ and tables/. Default: report/ in the first of the given folders."""
    checkpoints: tuple[int, ...] = CHECKPOINTS
    """Environment steps at which the tables compare runs, each by its nearest evaluation."""
    x: Literal["steps", "seconds"] = "steps"
    """Horizontal axis of the figures, and of the page when it opens."""


def main(argv: list[str]) -> int:
    options = parse(ReportOptions(), argv, "dcp report", COMMANDS["report"])
    if not options.runs:
        raise UserError("nothing to report on: name run folders, or a folder above them such as runs/")
    if not options.checkpoints or min(options.checkpoints) <= 0:
        raise UserError("--checkpoints takes environment steps above 0, such as 10000000 50000000")
    from dcp.lab.build_report import build_report

    out = options.out or beside(options.runs[0], "report")
    with working("report: ") as say:
        report = build_report(options.runs, out, sorted(set(options.checkpoints)), options.x, say)
    remarks = report.collection.remarks
    for remark in remarks[:MOST_REMARKS]:
        print(remark, file=sys.stderr)
    if remarks[MOST_REMARKS:]:
        print(f"{len(remarks) - MOST_REMARKS} further remarks are in the report.", file=sys.stderr)
    size = report.page.stat().st_size / 1e6
    print(f"{report.page} ({size:.1f} MB): {count(len(report.collection.runs), 'run')}")
    print(f"{count(report.num_figures, 'figure')} in {report.page.parent / 'figures'}, as PNG and PDF")
    print(f"{count(report.num_tables, 'table')} in {report.page.parent / 'tables'}, as CSV, Markdown and LaTeX")
    return EXIT_FAULT if all(run.is_damaged for run in report.collection.runs) else 0


@dataclass(frozen=True)
class CompareOptions:
    runs: Annotated[tuple[str, ...], POSITIONAL] = ()
    """Two run folders: A and B."""
    out: Path | None = None
    """The picture's file; a PDF of the same name is written next to it. Default: compare.png in A's folder."""


def compare(argv: list[str]) -> int:
    options = parse(CompareOptions(), argv, "dcp compare", COMMANDS["compare"])
    if len(options.runs) != 2:
        raise UserError(f"dcp compare takes two run folders, not {len(options.runs)}: dcp compare A B")
    out = options.out or beside(options.runs[0], "compare.png")
    require_picture(out)
    from dcp.lab import compare_runs

    comparison = compare_runs.compare(*options.runs)
    files = save_both(compare_runs.comparison_figure(comparison), out) if comparison.metrics else []
    for name, run in zip("AB", comparison.runs, strict=True):
        print(f"{name}: {run.folder} ({run.state})")
    if not comparison.settings:
        print("No setting differs.")
    if not comparison.versions:
        print("They were trained by the same versions." if comparison.versions_of[0] else "Neither kept its versions.")
    for table in compare_runs.comparison_tables(comparison):
        print_table(table)
    if not comparison.metrics:
        print("Nothing to plot: one of the two has no evaluation yet.")
    if files:
        print(f"Wrote {' and '.join(map(str, files))}.")
    return 0
