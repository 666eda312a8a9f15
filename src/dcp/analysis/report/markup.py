"""Tables and figures as HTML. Every text passes `escape`."""

import math
import re
import struct
from base64 import b64encode
from html import escape

from dcp.analysis.report.names import Names
from dcp.analysis.sections import FigureSpec
from dcp.analysis.tables import DASH, Cell, Row, Table

LONG_TABLE = 60  # rows beyond which a table scrolls within itself
SCREEN = 0.54  # of a PNG's width on the screen: figures keep their proportions to each other
SENTENCE = 44  # characters beyond which a cell may break into lines
FILE_KINDS = {"csv": "CSV", "md": "Markdown", "tex": "LaTeX"}


def table_html(table: Table, number: int, names: Names, heading: bool = True) -> str:
    """A table that sorts and filters. `number` is its place among the page's tables, for its files."""
    heads = "".join(_head(table, at) for at in range(len(table.columns)))
    rows = "\n".join(_row(table, at, names) for at in range(len(table.rows)))
    notes = "".join(f"<li>{prose(note)}</li>" for note in table.notes)
    long = " long" if len(table.rows) > LONG_TABLE else ""
    title = f"<h3>{escape(table.title)}</h3>" if heading else ""
    return (
        f'<div class="table" id="table-{escape(table.name)}" data-emptied="tbody tr">'
        f"<header>{title}{_files(number)}</header>\n"
        f'<div class="scroll{long}"><table data-sortable><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>\n"
        f'<p class="nothing">No row belongs to what is chosen above.</p>'
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
        + "</div>\n"
    )


def figure_html(figure: FigureSpec, picture: bytes | str, names: Names) -> str:
    """`picture`: the PNG, or a sentence that says why there is none."""
    tags, caption = names.tags(figure.environment, figure.method), escape(figure.caption)
    if isinstance(picture, str):
        said = f'<p class="note">{prose(picture)}</p>'
        return f'<figure class="figure"{tags}>{said}<figcaption>{caption}</figcaption></figure>\n'
    width, height = struct.unpack(">II", picture[16:24])  # the head of every PNG
    size = f'width="{SCREEN * width:.0f}" height="{SCREEN * height:.0f}"'
    image = f'<img alt="{caption}" {size} src="{data_uri(picture, "image/png")}">'
    button = f'<button type="button" class="picture" title="Show large">{image}</button>'
    return (
        f'<figure class="figure"{tags} style="width: calc({SCREEN * width:.0f}px + 2rem)">{button}'
        f"<figcaption><span>{caption}</span>{figure_files(figure.name)}</figcaption></figure>\n"
    )


def figure_files(name: str) -> str:
    """Links into the folder beside the page."""
    links = [f'<a href="figures/{escape(name)}.{kind}">{kind.upper()}</a>' for kind in ("png", "pdf")]
    return f'<span class="files">{" ".join(links)}</span>'


def paragraphs(text: str) -> str:
    return "".join(f"<p>{prose(' '.join(part.split()))}</p>\n" for part in text.split("\n\n") if part.strip())


def prose(text: str) -> str:
    """Escaped; what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"


def _files(number: int) -> str:
    buttons = [
        f'<button type="button" data-table="{number}" data-download="{kind}">{name}</button>'
        for kind, name in FILE_KINDS.items()
    ]
    return f'<span class="files">{" ".join(buttons)}</span>'


def _head(table: Table, at: int) -> str:
    words = "" if table.is_numeric(at) else ' class="words"'
    return (
        f'<th{words} data-column="{at}" aria-sort="none" scope="col">'
        f'<button type="button">{escape(table.columns[at])}</button></th>'
    )


def _row(table: Table, at: int, names: Names) -> str:
    """Rows of one environment stand together until they are sorted; its name is then in full ink once."""
    row, environments = table.rows[at], [row.environment for row in table.rows]
    again = bool(row.environment) and at > 0 and row.environment == environments[at - 1]
    cells = [
        _cell(cell, table.is_numeric(at), again and cell.text == row.environment, _swatch(cell, row, names))
        for at, cell in enumerate(row.cells)
    ]
    in_groups = len(set(environments)) < len(environments)
    first = ' class="first"' if in_groups and not again else ""
    return f"<tr{first}{names.tags(row.environment, row.method)}>{''.join(cells)}</tr>"


def _swatch(cell: Cell, row: Row, names: Names) -> str:
    """A method's name is beside its colour in the curves."""
    named = cell.text == row.method and row.method in names.methods
    return f'<i class="swatch m{names.methods.index(row.method)}"></i>' if named else ""


def _cell(cell: Cell, numeric: bool, again: bool, swatch: str) -> str:
    classes = [] if numeric else ["sentence" if len(cell.text) > SENTENCE else "words"]
    classes += ["missing"] if cell.text == DASH else []
    classes += ["again"] if again else []
    attributes = f' class="{" ".join(classes)}"' if classes else ""
    if cell.value is not None and math.isfinite(cell.value):
        attributes += f' data-value="{cell.value!r}"'
    if cell.hover:
        attributes += f' title="{escape(cell.hover)}"'
    text = f"<b>{escape(cell.text)}</b>" if cell.bold else escape(cell.text)
    marker = f'<span class="marker">{escape(cell.marker)}</span>' if cell.marker else ""
    return f"<td{attributes}>{swatch}{text}{marker}</td>"
