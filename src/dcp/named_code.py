"""Decide what names code, whether the user allows it, and import it: the only door for code outside the package.

`is_code` decides for everyone: for the checks of files and for `import_named`. A user allows code by typing its name
after a flag, by `--import module`, or by naming it in Python. A file allows nothing.
"""

import importlib
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from dcp.errors import PACKAGE, UserError, shown

GYM = "gym:"  # before the id of an environment that Gymnasium knows; such a name is no code: nothing is imported for it
IMPORTS = "DCP_IMPORT"  # in the environment: the modules, by comma, that the processes of a command import too
_folder: Path | None = None  # where a command also looks for the module
_allowed: frozenset[str] | None = None  # what the user of a command has typed; None: Python code names what it wants


class NotAllowedError(UserError):
    """A name that is not code, or code that the user has not allowed."""


def is_code(name: Any) -> bool:
    """Tell whether a name is `module:name`, which is code outside the package."""
    if not isinstance(name, str) or name.count(":") != 1 or name.startswith(GYM):
        return False
    module, attribute = name.split(":")
    return all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def is_gym_id(name: Any) -> bool:
    """Tell whether a name is `gym:ID`, without a module in the id, which Gymnasium would import."""
    return isinstance(name, str) and re.fullmatch(r"gym:([A-Za-z0-9_-]+/)?[A-Za-z0-9_.-]+", name) is not None


def code_in(tree: Any) -> list[str]:
    """Return every `module:name` in a tree of JSON values."""
    if isinstance(tree, Mapping):
        return [name for value in tree.values() for name in code_in(value)]
    if isinstance(tree, list | tuple):
        return [name for value in tree for name in code_in(value)]
    return [tree] if is_code(tree) else []


@contextmanager
def only_allowed(names: Iterable[str] = ()) -> Iterator[None]:
    """Within this context, import only these names, what `allow` adds, and what was allowed before."""
    global _allowed
    before = _allowed
    _allowed = frozenset(names) | (before or frozenset())
    try:
        yield
    finally:
        _allowed = before


def allow(values: Any) -> None:
    """Allow every `module:name` among these values, which the user has typed, until the command ends."""
    global _allowed
    if _allowed is not None:
        _allowed |= frozenset(code_in(values))


@contextmanager
def user_import_path(folder: Path | None, modules: Sequence[str] = ()) -> Iterator[None]:
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


def allowed_and_imported() -> list[str]:
    """Return the code that the user has typed and this process has imported, for a child process to import too."""
    return sorted(name for name in _allowed or () if name.split(":")[0] in sys.modules)


def is_allowed(name: str) -> bool:
    """Tell whether the user allows `module:name` by typing it or by --import. A module that some library imported is
    not enough: a stranger's config could name any function of it as an environment."""
    return name in (_allowed or ()) or name.split(":")[0] in imported_modules()


def require_allowed(names: Mapping[str, str], also: Collection[Any] = ()) -> None:
    """Refuse code that a run's config names, by flag, unless the user allows it, or `also` has it."""
    for flag, name in names.items():
        if is_code(name) and name not in also and not is_allowed(name):
            raise NotAllowedError(
                f"the run's config names the code {name[:200]!r}: if you trust it, name it too: --{flag} {name[:200]}, "
                f"or --import {name.split(':')[0][:200]}"
            )


def require_imported(names: Iterable[str], file: Any) -> None:
    """Refuse code that a file names, unless this process has imported its module already, it is the user's and it is
    defined there: reading a file imports nothing, and a function of a library cannot be part of a policy."""
    for name in names:
        module = name.split(":")[0]
        if not is_users(name):
            raise NotAllowedError(
                f"{file} needs {shown(name)[1:-1]}, which is code outside dcp: if you trust it, import "
                f"{shown(module)[1:-1]} first (on the command line: --import {shown(module)[1:-1]})"
            )


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
    value = vars(module)[attribute]
    if not callable(value) and not isinstance(value, ModuleType):
        return True  # a value that the module holds, such as an Energy
    home = getattr(value, "__module__", None)
    return isinstance(home, str) and home.split(".")[0] == top


def _is_library(module: ModuleType, top: str) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return top != "__main__"
    installed = Path(importlib.import_module("numpy").__file__ or "").resolve().parents[1]
    return Path(file).resolve().is_relative_to(installed) and top in _libraries()


@cache
def _libraries() -> frozenset[str]:
    """Return the top-level modules of every installed package that dcp needs, or its extras, or those need in turn."""
    packages, names = [PACKAGE], set[str]()
    while packages:
        package = re.sub(r"[-_.]+", "-", packages.pop()).lower()
        if package in names:
            continue
        names.add(package)
        try:
            requirements = metadata.requires(package) or []
        except metadata.PackageNotFoundError:
            continue
        packages += [re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0] for requirement in requirements]
    by_module = metadata.packages_distributions().items()
    return frozenset(
        top for top, owners in by_module if {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} & names
    )


def _import_module(name: str) -> None:
    try:
        with on_path(_folder):
            importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise UserError(f"--import {name[:100]} fails ({reason}): name a module here or an installed one") from error


def import_named(name: str) -> Any:
    """Import `module:name` and return the object. Refuse what is not such a name, or what the user has not allowed.

    The folder is the last place on `sys.path`, and only while this one import runs: a file there that is called like
    a library of ours must never be imported in its place.
    """
    if not is_code(name):
        raise NotAllowedError(f"{shown(name)} names no code: write it as module:name")
    module_name, _, attribute = name.partition(":")
    if _allowed is not None and not is_allowed(name) and not is_users(name):
        raise NotAllowedError(
            f"{shown(name)} is code that you have not named: if you trust it, give --import {module_name[:100]}"
        )
    with on_path(_folder):
        return getattr(importlib.import_module(module_name), attribute)


def import_folder() -> Path | None:
    """Return the folder where a command also looks for the user's modules."""
    return _folder


@contextmanager
def on_path(folder: Path | None) -> Iterator[None]:
    """Within this context, a module that is not installed may lie in this folder."""
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
