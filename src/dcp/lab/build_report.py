"""Write one self-contained page about any set of runs, and each of its figures and tables as files."""

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from urllib.parse import quote

import numpy as np

from dcp.errors import UserError
from dcp.files import require_no_links_out
from dcp.lab.burst_tables import burst_sections
from dcp.lab.curves import XAxis, curve_data, curve_panels, curve_section
from dcp.lab.diagnose.results import diagnosis_sections
from dcp.lab.landscape_figure import landscape_sections
from dcp.lab.method_tables import checkpoint_section, published_sections, summary_section
from dcp.lab.paper_values import CHECKPOINTS
from dcp.lab.pusher_goals import pusher_sections
from dcp.lab.report_html import UNKNOWN, Names, data_uri, make_page, prose
from dcp.lab.result_tables import (
    Cell,
    FigureSpec,
    Row,
    Section,
    Table,
    absent,
    number,
    require_writable,
    write_table,
    writing_to,
)
from dcp.lab.run_collection import METRICS, Collection, Run, collect
from dcp.lab.style import save
from dcp.policies.policy_file import write_whole

PAGE, FIGURES_DIR, TABLES_DIR = "report.html", "figures", "tables"
GIF_BYTES = 3_000_000  # of the GIFs in the page
LONGEST_NAME = 80  # characters of a file's name, without its ending
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
    """Write report.html, figures/ and tables/ into `out`. `tell` is called with what is being done."""
    is_new = not out.exists()
    for name in (PAGE, FIGURES_DIR, TABLES_DIR):  # the folder may be a stranger's
        require_no_links_out(out / name, of=out)
    require_writable(out)
    tell("reading runs", 0, 1)
    try:
        collection = collect(runs)
    except UserError:  # a mistake must leave nothing behind
        if is_new:
            out.rmdir()
        raise
    names = Names.of(collection)
    tell("sections", 0, len(SECTION_MAKERS))
    sections = [Section("Runs", "runs", tables=(runs_table(collection),)), curve_section(collection, names, x)]
    sections += statistics_sections(collection, checkpoints)
    for at, make in enumerate(SECTION_MAKERS):
        tell("sections", at, len(SECTION_MAKERS))
        sections += make(collection)
    sections = with_safe_names(sections)
    figures = [figure for section in sections for figure in section.figures]
    pictures = {}
    for at, figure in enumerate(figures):
        tell(f"figures: {len(figures)}", at, len(figures))
        pictures[figure.name] = draw(figure, out / FIGURES_DIR)
    tables = [table for section in sections for table in section.tables]
    for table in tables:
        write_table(table, out / TABLES_DIR)
    tell("page", 0, 1)
    content = _page(collection, names, sections, pictures, x, out)
    with writing_to(out):
        write_whole(out / PAGE, content.encode())
    return Report(out / PAGE, collection, len(pictures), len(tables))


# The parts of a report that follow the statistics, in the order of its page.
SECTION_MAKERS: tuple[Callable[[Collection], list[Section]], ...]
SECTION_MAKERS = (published_sections, landscape_sections, pusher_sections, diagnosis_sections)


def statistics_sections(collection: Collection, checkpoints: Sequence[int] = CHECKPOINTS) -> list[Section]:
    """Return the sections that these runs have data for: which method is better, checkpoints, bursts, saturation."""
    methods = [summary_section(collection), checkpoint_section(collection, checkpoints)]
    return [section for section in [*methods, *burst_sections(collection)] if section.tables or section.text]


def with_safe_names(sections: Sequence[Section]) -> list[Section]:
    """Turn names into file names of letters, digits, - and _, no two alike."""
    for_figures, for_tables, for_anchors = set[str](), set[str](), set[str]()
    safe = []
    for section in sections:
        figures = tuple(replace(figure, name=_free(figure.name, for_figures)) for figure in section.figures)
        tables = tuple(replace(table, name=_free(table.name, for_tables)) for table in section.tables)
        anchor = _free(section.anchor, for_anchors)
        safe.append(replace(section, figures=figures, tables=tables, anchor=anchor))
    return safe


def _free(name: str, taken: set[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:LONGEST_NAME] or "part"
    candidate, number = plain, 2
    while candidate.lower() in taken:  # some file systems ignore case
        candidate, number = f"{plain}_{number}", number + 1
    taken.add(candidate.lower())
    return candidate


def draw(figure: FigureSpec, folder: Path) -> bytes | str:
    """Write both files of one figure. -> its PNG, or a sentence why it could not be drawn"""
    try:
        drawn = figure.make()
    except UserError as error:  # such as a damaged policy: draw the other figures
        return f"Not drawn: {error}."
    with writing_to(folder):
        png = save(drawn, folder / f"{figure.name}.png")
        drawn.set_layout_engine("none")  # lay out once, so that both files look alike
        save(drawn, folder / f"{figure.name}.pdf")
        return png.read_bytes()


def _page(
    collection: Collection, names: Names, sections: list[Section], pictures: dict[str, bytes | str], x: XAxis, out: Path
) -> str:
    from dcp import __version__

    runs, curves, *others = sections
    parts = [
        replace(runs, html=remarks_html(collection.remarks)),
        replace(curves, html=curve_panels(collection, names, curves.figures), figures=()),  # the page draws them
        *others,
    ]
    if cards := episode_cards(collection, names, out):
        parts.append(Section("Episodes", "episodes", text="Of the first seed of each method.", html=cards))
    metrics = [{"key": key, "label": metric.label, "top": metric.top} for key, metric in METRICS.items()]
    data = {"axis": x, "metrics": metrics, "curves": curve_data(collection, names)}
    made = f"Made by dcp {__version__} on {time.strftime('%Y-%m-%d %H:%M')}. Everything shown is in this file."
    seeds = {run.seed for run in collection.runs if run.config}
    parts_of = (collection.runs, collection.environments, collection.methods, seeds)
    nouns = zip(map(len, parts_of), ("run", "environment", "method", "seed"), strict=True)
    lede = " · ".join(f"{number} {noun}{'' if number == 1 else 's'}" for number, noun in nouns)
    return make_page("dcp report", lede, escape(made), names, parts, pictures, data)


_COLUMNS = ("environment", "method", "seed", "state", "steps", "evaluations")
_COLUMNS += ("success once (%)", "time near goal", "hours", "folder")


def runs_table(collection: Collection) -> Table:
    order = {key: at for at, key in enumerate(collection.groups)}
    runs = sorted(collection.runs, key=lambda run: (order.get((run.env, run.label), len(order)), _seed(run)))
    notes = ("Success and time near goal: from the run's last evaluation.",)
    repeated = set(map(id, collection.repeated))
    return Table("runs", "Every run", _COLUMNS, tuple(_run_row(run, id(run) in repeated) for run in runs), notes)


def _seed(run: Run) -> int:
    return int(run.config.get("seed", -1))


def _run_row(run: Run, repeated: bool) -> Row:
    state = run.state + ("; left out, another run has this seed" if repeated else "")
    cells = (
        Cell(run.env or UNKNOWN),
        Cell(run.label or UNKNOWN),
        Cell(str(_seed(run)), _seed(run)) if run.config else absent(),
        Cell(state + (f"; {run.remark}" if run.remark else "")),
        Cell(f"{run.env_steps:,.0f}", int(run.env_steps)),
        Cell(str(run.num_evaluations), run.num_evaluations),
        _last(run, "success_once", 100.0, 1),
        _last(run, "time_near_goal", 1.0, 1),
        _last(run, "wall_seconds", 1 / 3600, 2),
        Cell(str(run.folder)),
    )
    return Row(cells, run.env or UNKNOWN, run.label or UNKNOWN)


def _last(run: Run, column: str, factor: float, digits: int) -> Cell:
    values = run.metrics.get(column, np.empty(0))
    return number(factor * float(values[-1]), digits=digits) if len(values) else absent("not recorded")


FEW_REMARKS = 8  # more are opened by a click


def remarks_html(remarks: Sequence[str]) -> str:
    if not remarks:
        return ""
    items = "".join(f"<li>{prose(remark)}</li>" for remark in remarks)
    opened = " open" if len(remarks) <= FEW_REMARKS else ""
    summary = f"<summary>What is missing or damaged ({len(remarks)})</summary>"
    return f'<details{opened}>{summary}<ul class="remarks">{items}</ul></details>\n'


# Rendered episodes: of the first seed of each method that has some.


def episode_cards(collection: Collection, names: Names, out: Path) -> str:
    """Return a card for each method as HTML: its GIF, as long as there is room in the page, and links to its files."""
    cards, room = "", GIF_BYTES
    for (environment, method), runs in collection.groups.items():
        run = next((run for run in runs if run.episode_files), None)
        if run is None:
            continue
        title, image = escape(f"An episode of {method} on {environment}, seed {run.seed}"), ""
        gif = next((path for path in run.episode_files if path.suffix == ".gif"), None)
        if gif is not None and gif.stat().st_size <= room and (content := gif.read_bytes()).startswith(b"GIF8"):
            room -= len(content)
            image = f'<img loading="lazy" alt="{title}" src="{data_uri(content, "image/gif")}">'
        links = " · ".join(_link(path, out) for path in run.episode_files)
        words = f"{escape(method)}, seed {run.seed}"
        cards += f'<div class="episode"{names.tags(environment, method)}>{image}<div class="text">'
        cards += f"<b>{escape(environment)}</b><small>{words}</small>{links}</div></div>\n"
    return f'<div class="gallery">\n{cards}</div>\n' if cards else ""


def _link(path: Path, out: Path) -> str:
    parts = Path(os.path.relpath(path.resolve(), out.resolve())).parts
    address = "/".join(quote(part, safe="") for part in parts)  # quoted so that no name can act as a URL scheme
    return f'<a href="{address}">{escape(path.name)}</a>'
