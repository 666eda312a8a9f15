"""The report's one HTML file: the template, style and scripts of `lab/pages/report/`, with the data in it.

Nothing is loaded from elsewhere, and every text passes `escape`.
"""

import math
import re
import struct
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from dcp.lab.pages import asset, theme, whole_page
from dcp.lab.result_tables import DASH, WRITERS, Cell, FigureSpec, Section, Table
from dcp.lab.run_collection import Collection
from dcp.lab.style import ON_DARK, colours

LONG_TABLE = 60  # rows beyond which a table scrolls within itself
MANY_COLUMNS = 9  # beyond which a table is set smaller, so that a page of 1,300 pixels shows them all
SCREEN = 0.54  # of a PNG's width on the screen: figures keep their proportions to each other
SENTENCE = 44  # characters beyond which a cell may break into lines
FILE_KINDS = {"csv": "CSV", "md": "Markdown", "tex": "LaTeX"}
UNKNOWN = "?"  # of a run whose config cannot be read
_SCRIPT_BLOCK = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Names:
    """Number environments and methods for the page's filters: a number needs no escaping, whatever the name is."""

    environments: tuple[str, ...]
    methods: tuple[str, ...]

    @classmethod
    def of(cls, collection: Collection) -> "Names":
        """Take the collection's order; those without an evaluation come last."""
        environments = dict.fromkeys([*collection.environments, *(run.env for run in collection.runs if run.env)])
        methods = dict.fromkeys([*collection.methods, *(run.label for run in collection.runs if run.label)])
        return cls(tuple(environments), tuple(methods))

    @property
    def colours(self) -> dict[str, str]:
        """Return one colour per method for all figures of a report."""
        return colours(list(self.methods))

    def tags(self, environment: str = "", method: str = "") -> str:
        """Return the attributes of an element of an environment, a method, or both. Without any it is always shown."""
        kinds = (("environment", environment, self.environments), ("method", method, self.methods))
        known = [(kind, name, names) for kind, name, names in kinds if name in (*names, UNKNOWN)]
        numbered = [(kind, -1 if name == UNKNOWN else names.index(name)) for kind, name, names in known]
        return "".join(f' data-{kind}="{at}"' for kind, at in numbered)  # any choice hides -1

    def styles(self) -> str:
        """Return the method's colour as a property of class m0, m1, ..., in light and dark."""
        light = [self.colours[method] for method in self.methods]
        on_light = " ".join(f"--m{i}: {colour};" for i, colour in enumerate(light))
        on_dark = " ".join(f"--m{i}: {ON_DARK.get(colour, colour)};" for i, colour in enumerate(light))
        return "\n".join(
            [
                f":root {{ {on_light} }}",
                f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {on_dark} }} }}',
                f':root[data-theme="dark"] {{ {on_dark} }}',
                *[f".m{i} {{ --colour: var(--m{i}); }}" for i in range(len(light))],
            ]
        )

    def chips(self) -> str:
        """Return the buttons that choose what the page shows."""
        html = []
        for kind, label, names in (
            ("environment", "Environment", self.environments),
            ("method", "Method", self.methods),
        ):
            if not names or (len(names) == 1 and kind == "environment"):  # nothing to choose; a method has a colour
                continue
            chips = f"<span>{label}</span>"
            for i, name in enumerate(names):
                swatch = f'<i class="swatch m{i}"></i>' if kind == "method" else ""
                attributes = f'type="button" class="chip" data-choose="{kind}" data-index="{i}" title="{escape(name)}"'
                chips += f'<button {attributes} aria-pressed="false">{swatch}{escape(name)}</button>'
            chips += f'<button type="button" class="everything" data-everything="{kind}" hidden>all</button>'
            html.append(f'<div class="choice" role="group" aria-label="{label}">{chips}</div>\n')
        return "".join(html)


def make_page(
    title: str,
    lede: str,
    footer: str,
    names: Names,
    parts: list[Section],
    pictures: dict[str, bytes | str],  # figure's name -> PNG, or a sentence in its place; others are not shown
    data: dict[str, Any],  # what the script reads, without the tables, which are added here
) -> str:
    tables: list[Table] = []
    sections = "".join(_section_html(part, pictures, names, tables) for part in parts)
    texts = [{"name": t.name, "texts": {kind: write(t) for kind, write in WRITERS.items()}} for t in tables]
    shown = [{"name": method} for method in names.methods]
    data = {"environments": names.environments, "methods": shown, "tables": texts, **data}
    contents = [f'<li><a href="#{part.anchor}">{escape(part.title)}</a></li>' for part in parts]
    return whole_page(
        "report",
        data,
        title=title,
        scripts=_SCRIPT_BLOCK.findall(sections),
        lede=lede,
        footer=footer,
        style=theme() + asset("report/style.css") + names.styles(),
        filters=names.chips(),
        contents="\n".join(contents),
        sections=sections,
    )


def _section_html(part: Section, pictures: dict[str, bytes | str], names: Names, tables: list[Table]) -> str:
    """Append the section's tables to `tables`, whose order numbers their files."""
    html = [f'<section id="{part.anchor}">\n<h2>{escape(part.title)}</h2>\n', paragraphs(part.text), part.html]
    figures = [figure_html(f, pictures[f.name], names) for f in part.figures if f.name in pictures]
    if figures:
        html.append(f'<div class="figures">\n{"".join(figures)}</div>\n')
    for table in part.tables:
        html.append(table_html(table, len(tables), names, tables))
        tables.append(table)
    return "".join([*html, "</section>\n"])


def table_html(table: Table, number: int, names: Names, before: Sequence[Table] = ()) -> str:
    """Return a table that sorts and filters. `number` is its place among the page's tables, for its files.

    A note of a table `before` it is not repeated.
    """
    heads = ""
    for at, column in enumerate(table.columns):
        words = "" if table.is_numeric(at) else ' class="words"'
        heads += f'<th{words} data-column="{at}" aria-sort="none" scope="col">'
        heads += f'<button type="button">{escape(column)}</button></th>'
    rows = "\n".join(_row(table, at, names) for at in range(len(table.rows)))
    notes = _notes(table, before)
    long = (" long" if len(table.rows) > LONG_TABLE else "") + (" dense" if len(table.columns) > MANY_COLUMNS else "")
    buttons = " ".join(
        f'<button type="button" data-table="{number}" data-download="{kind}">{name}</button>'
        for kind, name in FILE_KINDS.items()
    )
    return (
        f'<div class="table" id="table-{escape(table.name)}" data-emptied="tbody tr">'
        f'<header><h3>{escape(table.title)}</h3><span class="files">{buttons}</span></header>\n'
        f'<div class="scroll{long}"><table data-sortable><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>\n"
        f'<p class="nothing">No row belongs to what is chosen above.</p>'
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
        + "</div>\n"
    )


def _notes(table: Table, before: Sequence[Table]) -> str:
    """Return the notes that are new, and a link to the table that has the others."""
    homes = {note: other for other in reversed(before) for note in other.notes}
    items = [prose(note) for note in table.notes if note not in homes]
    if old := [homes[note] for note in table.notes if note in homes]:
        link = f'<a href="#table-{escape(old[0].name)}">{escape(old[0].title)}</a>'
        items.append(f"{'Other notes' if items else 'Notes'}: see {link}.")
    return "".join(f"<li>{item}</li>" for item in items)


def _row(table: Table, at: int, names: Names) -> str:
    """Return a row. Rows of one environment stay together until sorted; only the first shows its name in full."""
    row, environments = table.rows[at], [row.environment for row in table.rows]
    again = bool(row.environment) and at > 0 and row.environment == environments[at - 1]
    cells = []
    for i, cell in enumerate(row.cells):
        named = cell.text == row.method and row.method in names.methods
        swatch = f'<i class="swatch m{names.methods.index(row.method)}"></i>' if named else ""  # next to the name
        repeats = again and cell.text == row.environment
        cells.append(_cell(cell, table.columns[i], table.is_numeric(i), repeats, swatch))
    first = ' class="first"' if len(set(environments)) < len(environments) and not again else ""
    return f"<tr{first}{names.tags(row.environment, row.method)}>{''.join(cells)}</tr>"


def _cell(cell: Cell, column: str, numeric: bool, again: bool, swatch: str) -> str:
    """Return one cell, with its column's heading for narrow screens, where rows are cards."""
    classes = [] if numeric else ["sentence" if len(cell.text) > SENTENCE else "words"]
    classes += ["missing"] if cell.text == DASH else []
    classes += ["again"] if again else []
    attributes = f' data-label="{escape(column)}"' + (f' class="{" ".join(classes)}"' if classes else "")
    if cell.value is not None and math.isfinite(cell.value):
        attributes += f' data-value="{cell.value!r}"'
    if cell.hover:
        attributes += f' title="{escape(cell.hover)}"'
    text = f"<b>{escape(cell.text)}</b>" if cell.bold else escape(cell.text)
    marker = f'<span class="marker">{escape(cell.marker)}</span>' if cell.marker else ""
    return f"<td{attributes}>{swatch}{text}{marker}</td>"


def figure_html(figure: FigureSpec, picture: bytes | str, names: Names) -> str:
    """Return a figure with its caption. `picture`: the PNG, or a sentence that says why there is none."""
    tags, caption = names.tags(figure.environment, figure.method), escape(figure.caption)
    if isinstance(picture, str):
        note = f'<p class="note">{prose(picture)}</p>'
        return f'<figure class="figure"{tags}>{note}<figcaption>{caption}</figcaption></figure>\n'
    width, height = struct.unpack(">II", picture[16:24])  # the head of every PNG
    size = f'width="{SCREEN * width:.0f}" height="{SCREEN * height:.0f}"'
    image = f'<img alt="{caption}" {size} src="{data_uri(picture, "image/png")}">'
    button = f'<button type="button" class="picture" title="Show large">{image}</button>'
    return (
        f'<figure class="figure"{tags} style="width: calc({SCREEN * width:.0f}px + 2rem)">{button}'
        f"<figcaption><span>{caption}</span>{figure_files(figure.name)}</figcaption></figure>\n"
    )


def figure_files(name: str) -> str:
    """Return links into the folder next to the page."""
    links = [f'<a href="figures/{escape(name)}.{kind}">{kind.upper()}</a>' for kind in ("png", "pdf")]
    return f'<span class="files">{" ".join(links)}</span>'


def paragraphs(text: str) -> str:
    return "".join(f"<p>{prose(' '.join(part.split()))}</p>\n" for part in text.split("\n\n") if part.strip())


def prose(text: str) -> str:
    """Escape the text; what is between backticks becomes code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"
