"""Tables on a terminal and in a pipe."""

from rich.console import Console
from rich.table import Table

PIPE_WIDTH = 160  # a pipe has no width of its own, and a cut name is of no use


def show(table: Table) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    console.print(table)
