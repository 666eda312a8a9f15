"""Hold tables as data, write them as CSV, Markdown and LaTeX, and declare the sections of a report."""

import csv
import io
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dcp.errors import UserError
from dcp.policies.policy_file import write_whole

DASH, MINUS = "\u2013", "\u2212"  # the first: nothing was measured
_IN_MATHS = {"±": "pm", "→": "rightarrow", "↑": "uparrow", "↓": "downarrow", "≈": "approx", "≠": "neq", "∞": "infty"}
_IN_MATHS |= {"≥": "geq", "≤": "leq", "Δ": "Delta", "\u00d7": "times"}
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    MINUS: "$-$",
    DASH: "--",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "*": "$^*$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"${sign}$" for sign in "<>|"},
    **{sign: f"$\\{name}$" for sign, name in _IN_MATHS.items()},
}


@dataclass(frozen=True)
class Cell:
    """A text and the unrounded number behind it: pages sort by the number, CSV files hold it."""

    text: str
    value: float | None = None  # None: a word; nan: a number that is not known
    spread: float | None = None  # what follows the ±, or nan
    bounds: tuple[float, float] | None = None  # of an interval that is not symmetric
    count: int | None = None  # seeds behind the number
    bold: bool = False
    marker: str = ""  # a sign after the text; the table's notes explain it
    hover: str = ""  # more about this cell, shown if the page can


@dataclass(frozen=True)
class Row:
    """A row; a page filters by its environment and method, if it has them."""

    cells: tuple[Cell, ...]
    environment: str = ""
    method: str = ""


@dataclass(frozen=True)
class Table:
    name: str  # of its files, without ending
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"a row of {self.name} has {len(row.cells)} cells for {len(self.columns)} columns")

    def is_numeric(self, column: int) -> bool:
        """Return whether a column is aligned to the right and sorted as numbers. A dash among words is not a number."""
        cells = [row.cells[column] for row in self.rows]
        return any(cell.value is not None for cell in [c for c in cells if c.text != DASH] or cells)


@dataclass(frozen=True)
class FigureSpec:
    """A figure that is not drawn yet, because a page may need it as PNG and PDF, or not at all."""

    name: str  # of its files, without ending
    caption: str
    make: Callable[[], Figure]
    environment: str = ""  # if it shows only one: what a page filters by
    method: str = ""


@dataclass(frozen=True)
class Section:
    title: str
    anchor: str  # of the link to it; lower case, without spaces
    figures: tuple[FigureSpec, ...] = ()
    tables: tuple[Table, ...] = ()
    text: str = ""  # plain paragraphs, an empty line between two
    html: str = ""  # our own markup, before the figures and tables


def number(
    value: float, spread: float | None = None, *, count: int | None = None, digits: int = 1, sign: bool = False
) -> Cell:
    """Return a cell such as 18.4 ± 5.4, as the paper prints it. Numbers that are not finite are shown as nan or inf."""
    text = shown(value, digits, sign)
    if spread is not None and math.isfinite(value) and math.isfinite(spread):
        text += f" ± {shown(spread, digits)}"
    return Cell(text, float(value), None if spread is None else float(spread), count=count)


def between(mean: float, low: float, high: float, digits: int = 1, sign: bool = False) -> Cell:
    """Return a cell with the bounds of its interval, such as 42.0 (31.5 to 52.9); without them where there are none."""
    if math.isnan(mean):
        return absent()
    text = shown(mean, digits, sign)
    if math.isnan(low):
        return Cell(text, float(mean))
    return Cell(f"{text} ({shown(low, digits, sign)} to {shown(high, digits, sign)})", float(mean), bounds=(low, high))


def shown(value: float, digits: int = 1, sign: bool = False) -> str:
    if math.isnan(value):
        return "NaN"
    rounded = round(value, digits) + 0.0  # no minus before a zero
    return f"{rounded:{'+' if sign and rounded else ''}.{digits}f}".replace("-", MINUS)


def absent(hover: str = "") -> Cell:
    """Return the cell for a value that was not measured."""
    return Cell(DASH, math.nan, hover=hover)


def to_csv(table: Table) -> str:
    """Return unrounded numbers; what follows a number (±, seeds, marker) has its own column."""
    columns: list[tuple[str, list[str]]] = []
    for at, head in enumerate(table.columns):
        cells = [row.cells[at] for row in table.rows]
        columns.append((head, [_plain(cell.value, cell.text) for cell in cells]))
        if any(cell.spread is not None for cell in cells):
            columns.append((f"{head} ±", [_plain(cell.spread) for cell in cells]))
        if any(cell.bounds is not None for cell in cells):
            for i, end in enumerate(("low", "high")):
                columns.append((f"{head} {end}", [_plain(cell.bounds and cell.bounds[i]) for cell in cells]))
        if any(cell.count is not None for cell in cells):
            columns.append((f"{head} seeds", [_plain(cell.count) for cell in cells]))
        if any(cell.bold for cell in cells):
            columns.append((f"{head} bold", ["1" if cell.bold else "" for cell in cells]))
        if any(cell.marker for cell in cells):
            columns.append((f"{head} marker", [cell.marker for cell in cells]))
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([head for head, _ in columns])
    writer.writerows(zip(*(texts for _, texts in columns), strict=True))
    return lines.getvalue()


def _plain(value: float | None, otherwise: str = "") -> str:
    """Return the field of a CSV file: empty if nothing was measured; a measured nan stays nan."""
    if value is None or (math.isnan(value) and otherwise == DASH):
        return "" if otherwise == DASH else otherwise
    return str(value)


def to_markdown(table: Table) -> str:
    def plain(text: str) -> str:
        for sign in "\\|*_<":
            text = text.replace(sign, f"\\{sign}")
        return text

    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    aligned = ["---:" if table.is_numeric(at) else ":---" for at in range(len(table.columns))]
    lines = [f"**{plain(table.title)}**", "", line(map(plain, table.columns)), line(aligned)]
    for row in table.rows:
        texts = [f"**{plain(c.text)}**" if c.bold and c.text else plain(c.text) for c in row.cells]
        lines.append(line(text + plain(cell.marker) for text, cell in zip(texts, row.cells, strict=True)))
    notes = [f"- {plain(note)}" for note in table.notes]
    return "\n".join([*lines, *([""] if notes else []), *notes, ""])


def to_latex(table: Table) -> str:
    """Return a table environment that needs only the package booktabs."""

    def plain(text: str) -> str:
        return "".join(_LATEX.get(sign, sign) for sign in text)

    def line(cells: Iterable[str]) -> str:
        return f"{' & '.join(cells)} \\\\"

    aligned = "".join("r" if table.is_numeric(at) else "l" for at in range(len(table.columns)))
    lines = [r"\begin{table}[t]", r"\centering", rf"\caption{{{plain(' '.join((table.title + '.', *table.notes)))}}}"]
    lines += [rf"\label{{tab:{table.name}}}", rf"\begin{{tabular}}{{{aligned}}}", r"\toprule"]
    lines += [line(map(plain, table.columns)), r"\midrule"]
    environments = [row.environment for row in table.rows]
    in_groups = len(set(environments)) < len(environments)  # so that a line between them helps
    for at, row in enumerate(table.rows):
        if in_groups and at > 0 and environments[at - 1] != row.environment:
            lines.append(r"\midrule")
        texts = [rf"\textbf{{{plain(c.text)}}}" if c.bold and c.text else plain(c.text) for c in row.cells]
        lines.append(line(text + plain(cell.marker) for text, cell in zip(texts, row.cells, strict=True)))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


WRITERS: dict[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}


def write_table(table: Table, folder: Path) -> list[Path]:
    """Write <folder>/<name>.csv, .md and .tex, each completely or not at all."""
    paths = []
    for ending, writer in WRITERS.items():
        paths.append(folder / f"{table.name}.{ending}")
        with writing_to(folder):
            write_whole(paths[-1], writer(table).encode())
    return paths


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn the system's error about a folder that cannot be written to into a sentence for the user."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error.strerror}): choose another folder with --out") from error


def require_writable(folder: Path) -> None:
    """Check that the folder can be made and written to, before minutes of work."""
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


def finite(tree: Any) -> Any:
    """Convert for JSON, which has no nan, no infinity and no arrays: null replaces what is not known, and arrays are
    rounded to five digits."""
    if isinstance(tree, dict):
        return {name: finite(value) for name, value in tree.items()}
    if isinstance(tree, np.ndarray):
        return finite([float(f"{x:.5g}") for x in tree] if tree.ndim == 1 else list(tree))
    if isinstance(tree, list | tuple):
        return [finite(value) for value in tree]
    if isinstance(tree, np.generic):
        return finite(tree.item())
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree
