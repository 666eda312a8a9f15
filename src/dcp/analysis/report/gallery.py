"""Rendered episodes, where runs have them: a still that plays when pointed at, and links to the files.

What is embedded is bounded: one seed of every method first, then the next seed, until the page is full.
"""

import io
import os
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

from PIL import Image

from dcp.analysis.collection import Collection
from dcp.analysis.report.markup import data_uri
from dcp.analysis.report.names import Names
from dcp.analysis.run_reading import Run

MOVING_BYTES = 3_000_000  # of all embedded GIFs together
GIF_BYTES = 1_200_000  # of one
MAX_CARDS = 96
STILL_SIDE, STILL_FRAME = 260, 30  # pixels; the frame that is shown while it stands still, if there are as many
EPISODE = "episode.gif"


@dataclass(frozen=True)
class Gallery:
    html: str
    moving: list[str]  # GIFs as data URIs, by the number on their card


def make_gallery(collection: Collection, names: Names, out: Path) -> Gallery:
    """Empty without a rendered episode."""
    order = {key: at for at, key in enumerate(collection.groups)}
    runs = [run for run in collection.runs if _gif(run) or _links(run)]
    runs.sort(key=lambda run: (order.get((run.env, run.label), len(order)), run.config.get("seed", 0)))
    chosen = sorted(_fairly(runs)[:MAX_CARDS], key=runs.index)
    moving: list[str] = []
    room = MOVING_BYTES
    embedded = {}
    for run in _fairly(chosen):
        size = gif.stat().st_size if (gif := _gif(run)) else GIF_BYTES + 1
        if size <= min(room, GIF_BYTES):
            room -= size
            embedded[run.folder] = size
    cards = [_card(run, run.folder in embedded, moving, names, out) for run in chosen]
    if not cards:
        return Gallery("", [])
    left = len(runs) - len(chosen)
    more = f'<p class="note">{left} further runs have episodes in their folders.</p>\n' if left else ""
    return Gallery(f'<div class="gallery">\n{"".join(cards)}</div>\n{more}', moving)


def _gif(run: Run) -> Path | None:
    found = [path for path in run.videos if path.suffix == ".gif"]
    found += [path for path in run.plots if path.name == EPISODE]
    return found[0] if found else None


def _links(run: Run) -> list[Path]:
    return [path for path in run.videos if path.suffix in (".mp4", ".html")]


def _fairly(runs: list[Run]) -> list[Run]:
    """The first run of every environment and method, then the second of each, and so on."""
    count: dict[tuple[str, str], int] = {}
    turns = []
    for run in runs:
        key = (run.env, run.label)
        turns.append(count.get(key, 0))
        count[key] = turns[-1] + 1
    return [run for _, run in sorted(zip(turns, runs, strict=True), key=lambda pair: pair[0])]


def _card(run: Run, embed: bool, moving: list[str], names: Names, out: Path) -> str:
    gif = _gif(run)
    still = _still(gif) if gif else None
    plays = ""
    if gif and still and embed:
        plays = f' data-moving="{len(moving)}"'
        moving.append(data_uri(gif.read_bytes(), "image/gif"))
    seed = f"seed {run.seed}" if run.config else "seed unknown"
    told = f"An episode of {run.label} on {run.env}, {seed}"
    image = f'<img alt="{escape(told)}" src="{data_uri(still, "image/png")}">' if still else ""
    frame = f'<button type="button" class="frame" aria-label="Play: {escape(told)}">{image}</button>' if image else ""
    files = [*([gif] if gif else []), *_links(run)]
    links = " · ".join(f'<a href="{_relative(path, out)}">{escape(path.name)}</a>' for path in files)
    return (
        f'<div class="episode"{names.tags(run.env, run.label)}{plays}>{frame}<div class="text"><b>{escape(run.env)}</b>'
        f"<small>{escape(run.label)}, {seed}{_result(run)}</small>{links}</div></div>\n"
    )


def _still(path: Path) -> bytes | None:
    """None for a file that is no picture."""
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


def _result(run: Run) -> str:
    values = run.metrics.get("success_once")
    return "" if values is None or not len(values) else f"; success {100 * values[-1]:.0f}%"


def _relative(path: Path, out: Path) -> str:
    """From the page to the file; a name is quoted whole, so that none can be a scheme."""
    return "/".join(quote(part, safe="") for part in Path(os.path.relpath(path.resolve(), out.resolve())).parts)
