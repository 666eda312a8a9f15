"""Show every run on the report's page: its state, its row in the table, and its rendered episodes."""

import io
import os
from html import escape
from pathlib import Path
from urllib.parse import quote

import numpy as np
from PIL import Image

from dcp.lab.report_html import UNKNOWN, Names, data_uri, prose
from dcp.lab.result_tables import Cell, Row, Table, absent, number
from dcp.lab.run_collection import FINISHED, NO_EVALUATION, Collection, Run

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

    What is embedded is bounded: one seed of every method first, then the next seed, until the page is full.
    """
    order = {key: at for at, key in enumerate(collection.groups)}
    runs = [run for run in collection.runs if _gif(run) or _links(run)]
    runs.sort(key=lambda run: (order.get((run.env, run.label), len(order)), run.config.get("seed", 0)))
    chosen = sorted(_fairly(runs)[:MAX_CARDS], key=runs.index)
    moving: list[str] = []
    room, embedded = MOVING_BYTES, set()
    for run in _fairly(chosen):
        size = gif.stat().st_size if (gif := _gif(run)) else GIF_BYTES + 1
        if size <= min(room, GIF_BYTES):
            room -= size
            embedded.add(run.folder)
    cards = [_card(run, run.folder in embedded, moving, names, out) for run in chosen]
    if not cards:
        return "", []
    left = len(runs) - len(chosen)
    more = f'<p class="note">{left} further runs have episodes in their folders.</p>\n' if left else ""
    return f'<div class="gallery">\n{"".join(cards)}</div>\n{more}', moving


def _gif(run: Run) -> Path | None:
    gifs = [path for path in run.videos if path.suffix == ".gif"]
    return next(iter([*gifs, *(path for path in run.plots if path.name == EPISODE)]), None)


def _links(run: Run) -> list[Path]:
    return [path for path in run.videos if path.suffix in (".mp4", ".html")]


def _fairly(runs: list[Run]) -> list[Run]:
    """Order runs: the first of every environment and method, then the second of each, and so on."""
    keys = [(run.env, run.label) for run in runs]
    turns = [keys[:at].count(key) for at, key in enumerate(keys)]
    return [run for _, run in sorted(zip(turns, runs, strict=True), key=lambda pair: pair[0])]


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
