"""Import what a user names: `--import module` and `module:name`. Nothing else is looked for in the current folder."""

import importlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from dcp.errors import PACKAGE, UserError

IMPORTS = "DCP_IMPORT"  # in the environment: the modules, by comma, that the processes of a command import too
_folder: Path | None = None  # where a command also looks for the module


@contextmanager
def looked_for_in(folder: Path | None, modules: Sequence[str] = ()) -> Iterator[None]:
    """Within this context, a module that is not installed may lie in this folder.

    Import `modules` first, and those of the command that started this process; what they register can be named.
    """
    global _folder
    inherited = os.environ.get(IMPORTS)
    modules = [*imported_modules(), *modules]
    before, _folder = _folder, folder
    try:
        for name in dict.fromkeys(modules):
            _import_module(name)
        if modules:
            os.environ[IMPORTS] = ",".join(dict.fromkeys(modules))
        yield
    finally:
        _folder = before
        if inherited is None:
            os.environ.pop(IMPORTS, None)
        else:
            os.environ[IMPORTS] = inherited


def imported_modules() -> list[str]:
    """Return the modules of --import, of this command and of the one that started this process."""
    return [name for name in os.environ.get(IMPORTS, "").split(",") if name]


def is_allowed(name: str) -> bool:
    """Tell whether the user allows `module:name` by --import. A module that some library imported is not enough: a
    stranger's config could name any function of it as an environment."""
    return name.split(":")[0] in imported_modules()


def is_users(name: str) -> bool:
    """Tell whether `module:name` is imported already and the user's own, or of a library that --import names.

    Libraries that dcp installs are imported without anyone's asking, and full of functions that do things; so are
    Python's and dcp's own modules. A function or class must be defined in the package that is named: what a module
    merely imports is not its own.
    """
    module_name, _, attribute = name.partition(":")
    module = sys.modules.get(module_name)
    top = module_name.split(".")[0]
    if module is None or top in sys.stdlib_module_names or top == "dcp" or attribute not in vars(module):
        return False
    if not is_allowed(name) and _is_library(module, top):
        return False
    found = vars(module)[attribute]
    if not callable(found) and not isinstance(found, ModuleType):
        return True  # a value that the module holds, such as an Energy
    defined = getattr(found, "__module__", None)
    return isinstance(defined, str) and defined.split(".")[0] == top


def _is_library(module: ModuleType, top: str) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return top != "__main__"
    installed = Path(importlib.import_module("numpy").__file__ or "").resolve().parents[1]
    return Path(file).resolve().is_relative_to(installed) and top in _libraries()


@cache
def _libraries() -> frozenset[str]:
    """Return the top-level modules of every installed package that dcp needs, or its extras, or those need in turn."""
    wanted, seen = [PACKAGE], set[str]()
    while wanted:
        package = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if package in seen:
            continue
        seen.add(package)
        try:
            requirements = metadata.requires(package) or []
        except metadata.PackageNotFoundError:
            continue
        wanted += [re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0] for requirement in requirements]
    by_module = metadata.packages_distributions().items()
    return frozenset(
        top for top, owners in by_module if {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} & seen
    )


def _import_module(name: str) -> None:
    try:
        with _on_path(_folder):
            importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise UserError(f"--import {name[:100]} fails ({reason}): name a module here or an installed one") from error


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
