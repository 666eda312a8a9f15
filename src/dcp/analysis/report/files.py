"""The report's files: figures as PNG and PDF, tables as CSV, Markdown and LaTeX."""

import io
import tempfile
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from dcp.analysis.sections import FigureSpec
from dcp.analysis.style import save
from dcp.errors import UserError

PAGE_WIDTH = 1920  # pixels of a figure in the page


def require_room(out: Path) -> None:
    """Before the work: the folder can be made and written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UserError(f"cannot write to {out} ({error.strerror}): choose another folder by --out") from error


def draw(figure: FigureSpec, folder: Path) -> bytes | str:
    """Both files of one figure. -> its PNG, or the sentence why it could not be drawn"""
    try:
        drawn = figure.make()
    except UserError as error:  # such as a policy that is damaged: the other figures are still wanted
        return f"Not drawn: {error}."
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _save(drawn, folder / figure.name)
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error.strerror}): choose another folder by --out") from error


def for_page(picture: bytes) -> bytes:
    """As good on a screen, and a fraction of the bytes: fewer pixels, 256 colours."""
    with Image.open(io.BytesIO(picture)) as image:
        small = image.convert("RGB")
        small.thumbnail((PAGE_WIDTH, 2 * PAGE_WIDTH), Image.Resampling.LANCZOS)
        content = io.BytesIO()
        small.quantize(256, dither=Image.Dither.NONE).save(content, "PNG")
    return min(content.getvalue(), picture, key=len)


def _save(drawn: Figure, stem: Path) -> bytes:
    png = save(drawn, stem.with_name(f"{stem.name}.png"))
    drawn.set_layout_engine("none")  # both files are laid out alike, by one pass
    save(drawn, stem.with_name(f"{stem.name}.pdf"))
    return png.read_bytes()
