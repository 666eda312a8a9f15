"""A reader of files as something to be fuzzed: `write` puts a mutated file in place, `load` reads it.

A load must end with a result or with a `UserError` of one line, whatever the file holds.
"""

import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random

from dcp.cli.main import main
from dcp.errors import UserError


class Loader:
    """One kind of file in a folder of its own."""

    files: Sequence[Path] = ()  # what `load` opens, by its own name

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, random: Random) -> None:
        raise NotImplementedError

    def write_good(self) -> None:
        raise NotImplementedError

    def load(self) -> None:
        raise NotImplementedError


def each(*loads: Callable[[], object]) -> None:
    """Load by every reader, and only then raise the first refusal: one reader's does not keep a file from the next."""
    refusals = []
    for load in loads:
        try:
            load()
        except UserError as error:
            if len(str(error).splitlines()) != 1:
                raise
            refusals.append(error)
    if refusals:
        raise refusals[0]


def command(*argv: str) -> None:
    """Run a command of `dcp` in this process. A mistake is a UserError again, and any other end is an error."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as stderr:
        code = main(list(argv))
    if code == 2:
        raise UserError(stderr.getvalue().removesuffix("\n"))
    assert code == 0, f"dcp {' '.join(argv)} ended with {code}: {stderr.getvalue()}"
