"""The one HTML file: template, style and scripts of `assets/`, with the data in it. Nothing comes from elsewhere."""

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from dcp.analysis.report.markup import figure_html, paragraphs, table_html
from dcp.analysis.report.names import Names
from dcp.analysis.sections import Section
from dcp.analysis.tables import WRITERS, Table

SCRIPTS = ("numbers.js", "state.js", "chart.js", "cursor.js", "tables.js", "gallery.js", "main.js")
_SCRIPT_BLOCK = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)
# An image of the figures' own folder is never loaded: all pictures are in the page. Videos lie beside the runs.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {}; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class Placed:
    """A section with what the page shows of its figures: PNGs, or a sentence in place of one, by the figure's name."""

    section: Section
    pictures: dict[str, bytes | str]  # a figure that is not here is not shown
    html: str = ""  # our own, before its figures and tables
    folded: bool = False  # its tables are opened by a click


def make_page(title: str, lede: str, footer: str, names: Names, parts: list[Placed], data: dict[str, Any]) -> str:
    """`data`: what the script reads, without the tables, which are added here."""
    tables: list[Table] = []
    sections = "".join(_section(part, names, tables) for part in parts)
    texts = [{"name": t.name, "texts": {kind: write(t) for kind, write in WRITERS.items()}} for t in tables]
    shown = [{"name": method} for method in names.methods]
    data = {"environments": names.environments, "methods": shown, "tables": texts, **data}
    script = "(() => {\n" + "\n".join(['"use strict";', *map(_asset, SCRIPTS)]) + "\n})();"
    contents = [f'<li><a href="#{p.section.anchor}">{escape(p.section.title)}</a></li>' for p in parts]
    slots = {
        "title": escape(title),
        "lede": lede,
        "footer": footer,
        "style": _style(names),
        "filters": names.chips(),
        "contents": "\n".join(contents),
        "sections": sections,
        "data": script_json(data),
        "script": script,
        "policy": escape(_policy([f"\n{script}\n", *_SCRIPT_BLOCK.findall(sections)])),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda slot: slots[slot[1]], _asset("page.html"))


def script_json(data: Any) -> str:
    """JSON inside a script element: no tag can end it, and no number is NaN."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _section(part: Placed, names: Names, tables: list[Table]) -> str:
    section = part.section
    html = [f'<section id="{section.anchor}">\n<h2>{escape(section.title)}</h2>\n', paragraphs(section.text), part.html]
    html.append(section.html)
    figures = [figure_html(f, part.pictures[f.name], names) for f in section.figures if f.name in part.pictures]
    if figures:
        html.append(f'<div class="figures">\n{"".join(figures)}</div>\n')
    shown = []
    for table in section.tables:
        shown.append(table_html(table, len(tables), names, heading=not part.folded))
        tables.append(table)
    if part.folded:
        shown = [f"<details><summary>{escape(section.tables[0].title)}</summary>{''.join(shown)}</details>\n"]
    return "".join([*html, *shown, "</section>\n"])


def _style(names: Names) -> str:
    return _asset("style.css").replace("/*dark*/", _asset("dark.css")) + names.styles()


def _policy(scripts: list[str]) -> str:
    """Only the scripts that we wrote run, whatever a name smuggles in."""
    sums = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    return _POLICY.format(" ".join(f"'sha256-{digest}'" for digest in sums))


def _asset(name: str) -> str:
    return files("dcp.analysis.report").joinpath("assets", name).read_text(encoding="utf-8")
