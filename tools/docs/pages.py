"""Know where the documents lie, and write tables into their pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
IMAGES = DOCS / "images"


def put(name: str, text: str) -> None:
    """Write a table between its markers, into whichever of the pages docs/*.md has them."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    places = [page for page in DOCS.glob("*.md") if pattern.search(page.read_text())]
    if len(places) != 1:
        raise SystemExit(f"{len(places)} pages docs/*.md have <!-- {name} --> and <!-- /{name} -->: one must")
    places[0].write_text(pattern.sub(lambda match: match[1] + text + "\n" + match[2], places[0].read_text()))
