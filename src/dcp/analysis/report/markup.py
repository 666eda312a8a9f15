"""Tables and figures as HTML. Every text passes `escape`."""

import math
from base64 import b64encode
from html import escape

from dcp.analysis.report.names import Names
from dcp.analysis.sections import FigureSpec
from dcp.analysis.tables import DASH, Cell, Row, Table

LONG_TABLE = 24  # rows beyond which a table scrolls within itself
SENTENCE = 44  # characters beyond which a cell may break into lines
FILE_KINDS = {"csv": "CSV", "md": "Markdown", "tex": "LaTeX"}


def table_html(table: Table, number: int, names: Names, heading: bool = True) -> str:
    """A table that sorts and filters. `number` is its place among the page's tables, for its files."""
    heads = "".join(_head(table, at) for at in range(len(table.columns)))
    rows = "\n".join(_row(table, row, names) for row in table.rows)
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
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
        said = f'<p class="note">{escape(picture)}</p>'
        return f'<figure class="figure"{tags}>{said}<figcaption>{caption}</figcaption></figure>\n'
    image = f'<img alt="{caption}" src="{data_uri(picture, "image/png")}">'
    return (
        f'<figure class="figure"{tags}><button type="button" class="picture" title="Show large">{image}</button>'
        f"<figcaption><span>{caption}</span>{figure_files(figure.name)}</figcaption></figure>\n"
    )


def figure_files(name: str) -> str:
    """Links into the folder beside the page."""
    links = [f'<a href="figures/{escape(name)}.{kind}">{kind.upper()}</a>' for kind in ("png", "pdf")]
    return f'<span class="files">{" ".join(links)}</span>'


def paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(' '.join(part.split()))}</p>\n" for part in text.split("\n\n") if part.strip())


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


def _row(table: Table, row: Row, names: Names) -> str:
    cells = "".join(_cell(cell, table.is_numeric(at)) for at, cell in enumerate(row.cells))
    return f"<tr{names.tags(row.environment, row.method)}>{cells}</tr>"


def _cell(cell: Cell, numeric: bool) -> str:
    classes = [] if numeric else ["sentence" if len(cell.text) > SENTENCE else "words"]
    classes += ["missing"] if cell.text == DASH else []
    attributes = f' class="{" ".join(classes)}"' if classes else ""
    if cell.value is not None and math.isfinite(cell.value):
        attributes += f' data-value="{cell.value!r}"'
    if cell.hover:
        attributes += f' title="{escape(cell.hover)}"'
    text = f"<b>{escape(cell.text)}</b>" if cell.bold else escape(cell.text)
    marker = f'<span class="marker">{escape(cell.marker)}</span>' if cell.marker else ""
    return f"<td{attributes}>{text}{marker}</td>"
