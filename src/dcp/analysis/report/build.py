"""From run folders to a report: read, drawn, written; `tell` hears what is being done."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from dcp.analysis.collection import Collection, collect
from dcp.analysis.curves import XAxis
from dcp.analysis.report import files
from dcp.analysis.report.curve_data import curve_data, metric_data
from dcp.analysis.report.curve_section import curve_section, panels
from dcp.analysis.report.gallery import make_gallery
from dcp.analysis.report.names import Names
from dcp.analysis.report.page import Placed, make_page
from dcp.analysis.report.parts import section_makers, with_safe_names
from dcp.analysis.report.states import runs_table, states_html
from dcp.analysis.sections import Section
from dcp.analysis.tables import write_table
from dcp.errors import UserError
from dcp.policies.policy_file import write_whole

PAGE, FIGURES_DIR, TABLES_DIR = "report.html", "figures", "tables"
PICTURE_BYTES = 3_000_000  # of the figures in the page; the curves are drawn by its script
Tell = Callable[[str, int, int], None]  # what is being done, how many parts are done, of how many


@dataclass(frozen=True)
class Report:
    page: Path
    collection: Collection
    num_figures: int
    num_tables: int


def build_report(
    runs: Sequence[str | Path], out: Path, checkpoints: Sequence[int], x: XAxis = "steps", tell: Tell = lambda *_: None
) -> Report:
    """Write report.html, figures/ and tables/ into `out`."""
    is_new = not out.exists()
    files.require_room(out)
    tell("reading runs", 0, 1)
    try:
        collection = collect(runs)
    except UserError:  # a mistake leaves nothing behind
        if is_new:
            out.rmdir()
        raise
    names = Names.of(collection)
    first = [
        Section("Runs", "runs", tables=(runs_table(collection),)),
        curve_section(collection, names, x),
    ]
    makers = section_makers(checkpoints)
    for at, (what, make) in enumerate(makers):
        tell(what, at, len(makers))
        first += make(collection)
    sections = with_safe_names(first)
    pictures = _draw_all(sections, out, tell)
    _write_tables(sections, out)
    tell("page", 0, 1)
    content = _page(collection, names, sections, pictures, x, out)
    try:
        write_whole(out / PAGE, content.encode())
    except OSError as error:
        raise UserError(f"cannot write {out / PAGE} ({error.strerror}): choose another folder by --out") from error
    return Report(out / PAGE, collection, len(pictures), sum(len(section.tables) for section in sections))


def _draw_all(sections: list[Section], out: Path, tell: Tell) -> dict[str, bytes | str]:
    figures = [figure for section in sections for figure in section.figures]
    pictures = {}
    for at, figure in enumerate(figures):
        tell(f"figure {figure.name}", at, len(figures))
        pictures[figure.name] = files.draw(figure, out / FIGURES_DIR)
    return pictures


def _write_tables(sections: list[Section], out: Path) -> None:
    for section in sections:
        for table in section.tables:
            write_table(table, out / TABLES_DIR)


def _page(
    collection: Collection,
    names: Names,
    sections: list[Section],
    pictures: dict[str, bytes | str],
    x: XAxis,
    out: Path,
) -> str:
    runs, curves, *others = sections
    gallery = make_gallery(collection, names, out)
    shown = _within_bounds(pictures, others)
    parts = [
        Placed(runs, {}, states_html(collection, names), folded=True),
        Placed(curves, {}, panels(collection, names, curves.figures)),
        *[Placed(section, shown) for section in others],
    ]
    if gallery.html:
        words = "Point at an episode, or tap it, to see it move."
        parts.append(Placed(Section("Episodes", "episodes", text=words), {}, gallery.html))
    data: dict[str, Any] = {"axis": x, "metrics": metric_data(), "curves": curve_data(collection, names)}
    data["moving"] = gallery.moving
    return make_page("dcp report", _lede(collection), _footer(), names, parts, data)


def _within_bounds(pictures: dict[str, bytes | str], sections: list[Section]) -> dict[str, bytes | str]:
    """The page's copies of the figures that it shows as pictures; what no longer fits is said to be in its file."""
    shown: dict[str, bytes | str] = {}
    room = PICTURE_BYTES
    for name in (figure.name for section in sections for figure in section.figures):
        picture = pictures[name]
        if isinstance(picture, bytes):
            picture = files.for_page(picture)
            room -= len(picture)
        shown[name] = picture if room >= 0 else f"The page is full: see `{FIGURES_DIR}/{name}.png` beside it."
    return shown


def _lede(collection: Collection) -> str:
    seeds = {run.seed for run in collection.runs if run.config}
    counts = [
        _count(len(collection.runs), "run"),
        _count(len(collection.environments), "environment"),
        _count(len(collection.methods), "method"),
        _count(len(seeds), "seed"),
    ]
    return " · ".join(counts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _footer() -> str:
    from dcp import __version__

    return escape(f"Made by dcp {__version__} on {time.strftime('%Y-%m-%d %H:%M')}. Everything shown is in this file.")
