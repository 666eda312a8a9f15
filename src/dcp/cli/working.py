"""What commands share that look at runs: a line about the work, a picture's two files."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from dcp.errors import UserError
from dcp.files import CONFIG_FILE, require_no_links_out
from dcp.files.run_folder import is_zoo, located

if TYPE_CHECKING:
    from dcp.lab.result_tables import Table as ResultTable

ENDINGS = (".png", ".pdf")  # of a picture
PIPE_WIDTH = 160  # a pipe has no width, and a truncated name is useless
Say = Callable[..., None]  # what is being done; if it is counted: how many parts are done, and of how many


@contextmanager
def working(before: str = "") -> Iterator[Say]:
    """Show on stderr what is being done: on a terminal in one line that changes, elsewhere in a line for each."""
    console, last = Console(stderr=True), [""]
    text = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(before, total=None)

        def say(what: str, done: int = 0, total: int | None = None) -> None:
            progress.update(task, description=before + what, completed=done, total=total)
            if not console.is_terminal and what != last[0]:
                print(before + what, file=sys.stderr, flush=True)
            last[0] = what

        yield say


def require_least(options: Any, **least: int) -> None:
    for name, smallest in least.items():
        value = getattr(options, name)
        if value is not None and value < smallest:
            raise UserError(f"--{name.replace('_', '-')} is {value}: use {smallest} or more")


def beside(run: str | Path, name: str) -> Path:
    """Return where a result of this name belongs: in the run's folder, for the zoo and single files under runs/."""
    path = located(run)
    if not path.exists():
        return Path(name)  # whoever reads the run says so
    if is_zoo(run) and not Path(run).exists():
        return Path("runs") / run / name
    home = path if path.is_dir() else path.parent
    if not path.is_dir() and not (home / CONFIG_FILE).is_file():
        return Path("runs") / path.stem / name
    if not os.access(home, os.W_OK):
        raise UserError(f"cannot write into {home}: choose another place with --out")
    for ending in (Path(name).suffix, ".pdf"):
        require_no_links_out((home / name).with_suffix(ending), of=home)
    return home / name


def require_picture(out: Path) -> None:
    if out.suffix not in ENDINGS:
        raise UserError(f"--out is {out}: name a file that ends in .png or .pdf (both are written)")


def save_both(figure: Any, out: Path) -> list[Path]:
    from dcp.lab.style import save

    try:
        return [save(figure, out.with_suffix(ending)) for ending in ENDINGS]
    except OSError as error:
        raise UserError(f"cannot write {out} ({error.strerror}): choose another file with --out") from error


def print_json(content: Any) -> None:
    """Print JSON, in which what is not known is null."""
    import json

    from dcp.lab.result_tables import finite

    print(json.dumps(finite(content), indent=1, allow_nan=False))


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show(table: Table) -> None:
    """Print a table to a terminal or into a pipe. [Brackets] in a name are no markup."""
    Console(markup=False, emoji=False, width=None if Console().is_terminal else PIPE_WIDTH).print(table)


def print_table(table: "ResultTable") -> None:
    """Print one of our tables with its notes."""
    shown = Table(title=table.title or None, title_justify="left", title_style="bold")
    for at, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if table.is_numeric(at) else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*(cell.text for cell in row.cells))
    print()
    show(shown)
    for note in table.notes:
        print(note)
