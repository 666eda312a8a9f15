"""Import what a user names as `module:name`. Nothing else in dcp is ever looked for in the current folder."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_folder: Path | None = None  # where a command also looks for the module


@contextmanager
def looked_for_in(folder: Path | None) -> Iterator[None]:
    """Within this context, a module that is not installed may lie in this folder."""
    global _folder
    before, _folder = _folder, folder
    try:
        yield
    finally:
        _folder = before


def import_named(name: str) -> Any:
    """Import `module:name` and return the object.

    The folder is the last place on `sys.path`, and only while this one import runs: a file there that is called like
    a library of ours must never be imported in its place.
    """
    module_name, _, attribute = name.partition(":")
    with _on_path(_folder):
        return getattr(importlib.import_module(module_name), attribute)


@contextmanager
def _on_path(folder: Path | None) -> Iterator[None]:
    if folder is None:
        yield
        return
    entry = str(folder)
    sys.path.append(entry)
    try:
        yield
    finally:
        last = len(sys.path) - 1 - sys.path[::-1].index(entry) if entry in sys.path else None
        if last is not None:  # the module may have edited sys.path itself
            del sys.path[last]
