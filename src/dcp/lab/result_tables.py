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
_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    MINUS: "$-$",
    DASH: "--",
    "→": r"$\rightarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "≈": r"$\approx$",
    "≠": r"$\neq$",
    "∞": r"$\infty$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "Δ": r"$\Delta$",
    "\u00d7": r"$\times$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "*": "$^*$",
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
    folded: bool = False  # its tables are opened by a click


def number(
    value: float, spread: float | None = None, *, count: int | None = None, digits: int = 1, sign: bool = False
) -> Cell:
    """Return a cell such as 18.4 ± 5.4, as the paper prints it. Numbers that are not finite are shown as nan or inf."""
    text = shown(value, digits, sign)
    if spread is not None and math.isfinite(value) and math.isfinite(spread):
        text += f" ± {shown(spread, digits)}"
    return Cell(text, float(value), None if spread is None else float(spread), count=count)


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
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    parts = [_csv_parts(table, at) for at in range(len(table.columns))]
    writer.writerow([head for column in parts for head, _ in column])
    for row in table.rows:
        writer.writerow([get(cell) for cell, column in zip(row.cells, parts, strict=True) for _, get in column])
    return lines.getvalue()


def _csv_parts(table: Table, at: int) -> list[tuple[str, Callable[[Cell], str]]]:
    head, cells = table.columns[at], [row.cells[at] for row in table.rows]
    parts: list[tuple[str, Callable[[Cell], str]]] = [(head, lambda cell: _plain(cell.value, cell.text))]
    if any(cell.spread is not None for cell in cells):
        parts.append((f"{head} ±", lambda cell: _plain(cell.spread)))
    if any(cell.bounds is not None for cell in cells):
        parts.append((f"{head} low", lambda cell: _plain(cell.bounds and cell.bounds[0])))
        parts.append((f"{head} high", lambda cell: _plain(cell.bounds and cell.bounds[1])))
    if any(cell.count is not None for cell in cells):
        parts.append((f"{head} seeds", lambda cell: _plain(cell.count)))
    if any(cell.bold for cell in cells):
        parts.append((f"{head} bold", lambda cell: "1" if cell.bold else ""))
    if any(cell.marker for cell in cells):
        parts.append((f"{head} marker", lambda cell: cell.marker))
    return parts


def _plain(value: float | None, otherwise: str = "") -> str:
    """Return the field of a CSV file: empty if nothing was measured; a measured nan stays nan."""
    if value is None or (math.isnan(value) and otherwise == DASH):
        return "" if otherwise == DASH else otherwise
    return str(value)


def to_markdown(table: Table) -> str:
    aligned = ["---:" if table.is_numeric(at) else ":---" for at in range(len(table.columns))]
    lines = [_pipes(map(_markdown, table.columns)), _pipes(aligned)]
    lines += [_pipes(_markdown_cell(cell) for cell in row.cells) for row in table.rows]
    notes = [f"- {_markdown(note)}" for note in table.notes]
    return "\n".join([f"**{_markdown(table.title)}**", "", *lines, *([""] if notes else []), *notes, ""])


def _markdown_cell(cell: Cell) -> str:
    text = _markdown(cell.text)
    return (f"**{text}**" if cell.bold and text else text) + _markdown(cell.marker)


def _markdown(text: str) -> str:
    for sign in "\\|*_<":
        text = text.replace(sign, f"\\{sign}")
    return text


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def to_latex(table: Table) -> str:
    """Return a table environment that needs only the package booktabs."""
    aligned = "".join("r" if table.is_numeric(at) else "l" for at in range(len(table.columns)))
    lines = [r"\begin{table}[t]", r"\centering", rf"\caption{{{_latex(' '.join((table.title + '.', *table.notes)))}}}"]
    lines += [rf"\label{{tab:{table.name}}}", rf"\begin{{tabular}}{{{aligned}}}", r"\toprule"]
    lines += [_ampersands(map(_latex, table.columns)), r"\midrule"]
    for before, row in zip((None, *table.rows), table.rows, strict=False):
        if before is not None and before.environment != row.environment and _in_groups(table):
            lines.append(r"\midrule")
        lines.append(_ampersands(_latex_cell(cell) for cell in row.cells))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _in_groups(table: Table) -> bool:
    """Return whether environments have several rows, so that a line between them helps."""
    environments = [row.environment for row in table.rows]
    return len(set(environments)) < len(environments)


def _latex_cell(cell: Cell) -> str:
    text = _latex(cell.text)
    return (rf"\textbf{{{text}}}" if cell.bold and text else text) + _latex(cell.marker)


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _ampersands(cells: Iterable[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


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
