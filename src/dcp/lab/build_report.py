"""Write one self-contained page about any set of runs, and each of its figures and tables as files."""

import io
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from urllib.parse import quote

import numpy as np
from PIL import Image

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
from dcp.lab.run_collection import FINISHED, METRICS, NO_EVALUATION, Collection, Run, collect
from dcp.lab.style import save
from dcp.policies.policy_file import write_whole

PAGE, FIGURES_DIR, TABLES_DIR = "report.html", "figures", "tables"
PICTURE_BYTES = 3_000_000  # of the figures in the page; the curves are drawn by its script
PAGE_WIDTH = 1920  # pixels of a figure in the page
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
    sections = [Section("Runs", "runs", tables=(runs_table(collection),)), curve_section(collection, names, x)]
    for at, make in enumerate(SECTION_MAKERS):
        tell("sections", at, len(SECTION_MAKERS))
        sections += statistics_sections(collection, checkpoints) if make is None else make(collection)
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


# The parts of a report in the order of its page; None: the statistics, which also take the checkpoints.
SECTION_MAKERS: tuple[Callable[[Collection], list[Section]] | None, ...] = (
    None,
    published_sections,
    landscape_sections,
    pusher_sections,
    diagnosis_sections,
)


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
    cards, moving = make_gallery(collection, names, out)
    parts = [
        replace(runs, html=states_html(collection, names), folded=True),
        replace(curves, html=curve_panels(collection, names, curves.figures)),
        *others,
    ]
    if cards:
        words = "Point at an episode, or tap it, to see it move."
        parts.append(Section("Episodes", "episodes", text=words, html=cards))
    metrics = [{"key": key, "label": metric.label, "top": metric.top} for key, metric in METRICS.items()]
    data = {"axis": x, "metrics": metrics, "curves": curve_data(collection, names), "moving": moving}
    made = f"Made by dcp {__version__} on {time.strftime('%Y-%m-%d %H:%M')}. Everything shown is in this file."
    seeds = {run.seed for run in collection.runs if run.config}
    parts_of = (collection.runs, collection.environments, collection.methods, seeds)
    nouns = zip(map(len, parts_of), ("run", "environment", "method", "seed"), strict=True)
    lede = " · ".join(f"{number} {noun}{'' if number == 1 else 's'}" for number, noun in nouns)
    return make_page("dcp report", lede, escape(made), names, parts, _within_bounds(pictures, others), data)


def _within_bounds(pictures: dict[str, bytes | str], sections: list[Section]) -> dict[str, bytes | str]:
    """Return the page's copies of its figures; for those that no longer fit, a sentence that names the file.

    A copy has fewer pixels and 256 colours, which looks as good on a screen with far fewer bytes.
    """
    shown: dict[str, bytes | str] = {}
    room = PICTURE_BYTES
    for name in (figure.name for section in sections for figure in section.figures):
        picture = pictures[name]
        if isinstance(picture, bytes):
            with Image.open(io.BytesIO(picture)) as image:
                small = image.convert("RGB")
            small.thumbnail((PAGE_WIDTH, 2 * PAGE_WIDTH), Image.Resampling.LANCZOS)
            content = io.BytesIO()
            small.quantize(256, dither=Image.Dither.NONE).save(content, "PNG")
            picture = min(content.getvalue(), picture, key=len)
            room -= len(picture)
        shown[name] = picture if room >= 0 else f"The page is full: see `{FIGURES_DIR}/{name}.png` next to it."
    return shown


FEW_REMARKS = 8  # more are opened by a click
_KEY = (
    ("finished", "finished"),
    ("going", "running or stopped; filled up to its progress"),
    ("nothing-yet", "no evaluation"),
    ("damaged", "damaged"),
)
_COLUMNS = ("environment", "method", "seed", "state", "steps", "evaluations")
_COLUMNS += ("success once (%)", "time near goal", "hours", "folder")
MOVING_BYTES = 3_000_000  # of all embedded GIFs together
GIF_BYTES = 1_200_000  # of one
MAX_CARDS = 96
STILL_SIDE, STILL_FRAME = 260, 30  # pixels; the frame that is shown before it plays, if there are that many
EPISODE = "episode.gif"


def states_html(collection: Collection, names: Names) -> str:
    """Draw environments down, methods across, and a small square for every run with its seed in it."""
    readable = [run for run in collection.runs if run.config]
    methods = [method for method in names.methods if any(run.label == method for run in readable)]
    heads = "".join(f'<th{names.tags(method=method)} scope="col">{escape(method)}</th>' for method in methods)
    rows = []
    for environment in names.environments:
        cells = f'<td class="words">{escape(environment)}</td>'
        for method in methods:
            runs = [run for run in readable if (run.env, run.label) == (environment, method)]
            cells += f"<td{names.tags(method=method)}>{_squares(runs)}</td>"
        rows.append(f"<tr{names.tags(environment)}>{cells}</tr>")
    head = f'<thead><tr><th class="words" scope="col">environment</th>{heads}</tr></thead>'
    table = f'<div class="scroll"><table class="states">{head}\n<tbody>{chr(10).join(rows)}</tbody></table></div>\n'
    lost = [run for run in collection.runs if not run.config]
    others = f'<p class="note">Damaged, of no known environment: {_squares(lost)}</p>\n' if lost else ""
    kinds = [kind_of(run) for run in collection.runs]
    key = "".join(f'<span><i class="run {k}"></i>{kinds.count(k)} {words}</span>' for k, words in _KEY if k in kinds)
    html = f'{table if readable else ""}{others}<div class="key">{key}</div>\n'
    if not collection.remarks:
        return html
    items = "".join(f"<li>{prose(remark)}</li>" for remark in collection.remarks)
    opened = " open" if len(collection.remarks) <= FEW_REMARKS else ""
    summary = f"<summary>What is missing or damaged ({len(collection.remarks)})</summary>"
    return f'{html}<details{opened}>{summary}<ul class="remarks">{items}</ul></details>\n'


def runs_table(collection: Collection) -> Table:
    order = {key: at for at, key in enumerate(collection.groups)}
    runs = sorted(collection.runs, key=lambda run: (order.get((run.env, run.label), len(order)), _seed(run)))
    notes = ("Success and time near goal: from the run's last evaluation.",)
    repeated = set(map(id, collection.repeated))
    return Table("runs", "Every run", _COLUMNS, tuple(_run_row(run, id(run) in repeated) for run in runs), notes)


def kind_of(run: Run) -> str:
    """Return the class of its square."""
    if run.is_damaged:
        return "damaged"
    return {FINISHED: "finished", NO_EVALUATION: "nothing-yet"}.get(run.state, "going")


def _squares(runs: list[Run]) -> str:
    squares = ""
    for run in sorted(runs, key=_seed):
        seed, kind = str(run.seed) if run.config else UNKNOWN, kind_of(run)
        title = f"seed {seed}: {run.state}; {run.num_evaluations} evaluations" + (f"; {run.remark}" * bool(run.remark))
        done = f' style="--done: {100 * run.env_steps / max(1, run.budget):.0f}%"' if kind == "going" else ""
        squares += f'<span class="run {kind}"{done} title="{escape(title)}" aria-label="{escape(title)}">{seed}</span>'
    return f'<span class="runs">{squares}</span>'


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


# Rendered episodes of runs that have them: a still picture that plays when pointed at, and links to the files.


def make_gallery(collection: Collection, names: Names, out: Path) -> tuple[str, list[str]]:
    """Return the cards as HTML, empty without any, and the GIFs as data URIs by the number on their card.

    One seed of every method comes first, then the next seed. What is embedded is bounded: until the page is full.
    """
    order = {key: at for at, key in enumerate(collection.groups)}
    runs = [run for run in collection.runs if _gif(run) or _links(run)]
    runs.sort(key=lambda run: (order.get((run.env, run.label), len(order)), _seed(run)))
    keys = [(run.env, run.label) for run in runs]
    turns = [keys[:at].count(key) for at, key in enumerate(keys)]
    fairly = [run for _, run in sorted(zip(turns, runs, strict=True), key=lambda pair: pair[0])]
    cards, moving, room = "", list[str](), MOVING_BYTES
    for run in fairly[:MAX_CARDS]:
        size = gif.stat().st_size if (gif := _gif(run)) else GIF_BYTES + 1
        fits = size <= min(room, GIF_BYTES)
        room -= size if fits else 0
        cards += _card(run, fits, moving, names, out)
    left = len(runs) - MAX_CARDS
    more = f'<p class="note">{left} further runs have episodes in their folders.</p>\n' if left > 0 else ""
    return (f'<div class="gallery">\n{cards}</div>\n{more}' if cards else ""), moving


def _gif(run: Run) -> Path | None:
    gifs = [path for path in run.videos if path.suffix == ".gif"]
    return next(iter([*gifs, *(path for path in run.plots if path.name == EPISODE)]), None)


def _links(run: Run) -> list[Path]:
    return [path for path in run.videos if path.suffix in (".mp4", ".html")]


def _card(run: Run, embed: bool, moving: list[str], names: Names, out: Path) -> str:
    gif = _gif(run)
    still = _still(gif) if gif else None
    plays = ""
    if gif and still and embed:
        plays = f' data-moving="{len(moving)}"'
        moving.append(data_uri(gif.read_bytes(), "image/gif"))
    seed = f"seed {run.seed}" if run.config else "seed unknown"
    title = escape(f"An episode of {run.label} on {run.env}, {seed}")
    frame, links = "", []
    if still:
        image = f'<img alt="{title}" src="{data_uri(still, "image/png")}">'
        frame = f'<button type="button" class="frame" aria-label="Play: {title}">{image}</button>'
    for path in [*([gif] if gif else []), *_links(run)]:
        parts = Path(os.path.relpath(path.resolve(), out.resolve())).parts
        address = "/".join(quote(part, safe="") for part in parts)  # quoted so that no name can act as a URL scheme
        links.append(f'<a href="{address}">{escape(path.name)}</a>')
    values = run.metrics.get("success_once", np.empty(0))
    result = f"; success {100 * values[-1]:.0f}%" if len(values) else ""
    return (
        f'<div class="episode"{names.tags(run.env, run.label)}{plays}>{frame}<div class="text"><b>{escape(run.env)}</b>'
        f"<small>{escape(run.label)}, {seed}{result}</small>{' · '.join(links)}</div></div>\n"
    )


def _still(path: Path) -> bytes | None:
    """Return a small picture of one frame; None if the file is not a picture."""
    try:
        with Image.open(path) as image:
            image.seek(min(STILL_FRAME, getattr(image, "n_frames", 1) - 1))
            small = image.convert("RGB")
            small.thumbnail((STILL_SIDE, STILL_SIDE), Image.Resampling.LANCZOS)
            content = io.BytesIO()
            small.quantize(64).save(content, "PNG", optimize=True)
            return content.getvalue()
    except (OSError, ValueError, EOFError, SyntaxError, Image.DecompressionBombError):
        return None
