"""Open tables: every part of an algorithm by name, ours and yours, and back from a part to its name and settings.

A component is a frozen dataclass whose fields are its settings (a critic, a command, a condition, a network), or a
plain function (a score, an energy, a loss, an activation). Its name is its row in a table, or `module:name`.
Settings and names are plain JSON: they are stored in config.json and in policy files, and reading them runs no code.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dcp.errors import UserError, one_line, shown, unknown
from dcp.named_code import NotAllowedError, import_named, is_code

TABLES: dict[str, "Table"] = {}  # by kind
# What each kind of part must have; a test compares it with interfaces.py.
REQUIRED_FUNCTIONS = {
    "critic": ("init", "loss", "after", "representation"),
    "command": ("init", "step", "metrics"),
    "condition": ("size", "__call__"),
    "network": ("init", "apply"),
}
_HOMES = ("dcp.methods.table", "dcp.envs.registry")  # import these, and every table is there


class Table(dict[str, Any]):
    """Rows of one kind by name, read when they are used: assign a row, or `register` it.

    A row of ours may be "dcp.module:name": it is imported when it is first asked for.
    """

    def __init__(self, kind: str, rows: Mapping[str, Any], joined: str | None = None):
        super().__init__(rows)
        self.kind = kind
        self.joined = joined  # "dcp.module:name" of what "row+row" makes
        TABLES[kind] = self

    def __getitem__(self, name: str) -> Any:
        row = super().__getitem__(name)
        if isinstance(row, str):
            row = self[name] = _row_of_ours(row)
        return row

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401

    def items(self) -> Any:
        return {name: self[name] for name in self}.items()

    def values(self) -> Any:
        return {name: self[name] for name in self}.values()

    def find(self, name: Any) -> Any:
        """Return the row of this name, or import `module:name`. Anything but a string is returned as it is."""
        if not isinstance(name, str):
            return name
        if name in self:
            return self[name]
        if self.joined is not None and "+" in name:
            if strange := [half for half in name.split("+") if half not in self]:
                raise UserError(unknown(self.kind, strange[0], self))
            return _row_of_ours(self.joined)
        if is_code(name):
            return _imported(self.kind, name)
        raise UserError(unknown(self.kind, name, self))

    def row_name(self, row: Any) -> str | None:
        """Return the name of a row of this table, None for anything else."""
        path = f"{getattr(row, '__module__', None)}:{getattr(row, '__qualname__', None)}"
        return next((name for name in self if super(Table, self).__getitem__(name) in (row, path)), None)

    def name_of(self, row: Any) -> str:
        """Return the name under which `find` gives this row again."""
        if isinstance(row, str):
            return row
        return self.row_name(row) or f"{row.__module__}:{row.__qualname__}"


def _row_of_ours(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)


def _imported(kind: str, name: str) -> Any:
    try:
        return import_named(name)
    except NotAllowedError:
        raise
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        raise UserError(f"cannot load the {kind} {shown(name)} ({one_line(error)})") from error


def register(kind: str, name: str, row: Any = None) -> Any:
    """Add a row: `dcp.register("condition", "mine", MyCondition)`, or `@dcp.register("condition", "mine")` above it.

    The row is then known by this name in Python, on the command line and in files. Kinds: see `dcp.components.TABLES`.
    """
    if row is None:
        return lambda row: register(kind, name, row)
    for home in _HOMES:
        import_module(home)  # by name: these import this module
    if kind not in TABLES:
        raise UserError(unknown("kind of component", kind, TABLES))
    if TABLES[kind].get(name, row) is not row:
        raise UserError(f"a {kind} named {name!r} exists already: choose another name")
    TABLES[kind][name] = row
    return row


def settings_of(component: Any) -> dict[str, Any]:
    """Return a component's fields as JSON can hold them; a function among them by its name."""
    values = {field.name: getattr(component, field.name) for field in dataclasses.fields(component)}
    return {name: _plain(name, value) for name, value in values.items()}


def describe(kind: str, component: Any) -> dict[str, Any]:
    """Return {"name": ..., "settings": {...}}: what `build` makes this component from."""
    if hasattr(component, "halves"):
        halves = {name: describe(kind, half) for name, half in component.halves().items()}
        settings = {f"{name}.{field}": x for name, half in halves.items() for field, x in half["settings"].items()}
        return {"name": "+".join(half["name"] for half in halves.values()), "settings": settings}
    return {"name": TABLES[kind].name_of(type(component)), "settings": settings_of(component)}


def build(kind: str, name: Any, settings: Mapping[str, Any]) -> Any:
    """Make the component of this name with these settings; each of them must be one of its fields, and of its type."""
    part = TABLES[kind].find(name)
    require_part(kind, part, name)
    fields = setting_types(part)
    if TABLES[kind].joined is not None and isinstance(name, str) and "+" in name:
        halves: dict[str, dict[str, Any]] = {field: {} for field in fields}
        for path, value in settings.items():
            field, _, setting = path.partition(".")
            if field not in halves:
                raise UserError(f"{kind}.{path}: {unknown(f'part of {shown(name)}', field, fields)}")
            halves[field][setting] = value
        rows = zip(halves, name.split("+"), strict=True)
        return part(**{field: build(kind, row, halves[field]) for field, row in rows})
    for field, value in settings.items():
        if field not in fields:
            raise UserError(f"{kind}.{field}: {unknown(f'setting of {shown(name)}', field, fields)}")
        if not fits(value, fields[field]):
            kind_of_value = getattr(fields[field], "__name__", str(fields[field]))
            raise UserError(f"{kind}.{field} must be {kind_of_value}, not {shown(value)}")
    try:
        values = {field: _function(f"{kind}.{field}", value, fields[field]) for field, value in settings.items()}
        return part(**{field: _tuples(value) for field, value in values.items()})
    except TypeError as error:
        raise UserError(f"the {kind} {shown(name)} cannot be made ({one_line(error)}): give its settings") from error


def require_part(kind: str, part: Any, name: Any) -> None:
    """Refuse what is no frozen dataclass, or lacks a method of its kind of part."""
    params = getattr(part, "__dataclass_params__", None)
    if not isinstance(part, type) or params is None or not params.frozen:
        wrong = "not frozen" if params is not None else "not a dataclass"
        raise UserError(f"the {kind} {shown(name)} is {wrong}: write @dataclass(frozen=True) above its class")
    has = {method for base in part.__mro__ for method in vars(base)}
    if missing := [method for method in REQUIRED_FUNCTIONS.get(kind, ()) if method not in has]:
        other = next((other for other, methods in REQUIRED_FUNCTIONS.items() if has.issuperset(methods)), None)
        hint = f"it is a {other}" if other else f"a {kind} has {', '.join(REQUIRED_FUNCTIONS[kind])}"
        raise UserError(f"the {kind} {shown(name)} has no {' and no '.join(missing)}: {hint}")


def setting_types(component: type) -> dict[str, Any]:
    """Return the type of each setting of a component's class."""
    hints = get_type_hints(component)
    return {field.name: hints[field.name] for field in dataclasses.fields(component) if field.init}


def fits(value: Any, hint: Any) -> bool:
    """Tell whether a JSON value may stand for a field of this type."""
    if hint is Any or isinstance(hint, str):
        return True
    origin = get_origin(hint)
    if origin is Callable or hint is Callable:
        return callable(value) or isinstance(value, str)
    if (origin or hint) in (tuple, list, Sequence):
        return isinstance(value, list | tuple)
    if origin is Literal:
        return value in get_args(hint)
    if get_args(hint):
        return any(fits(value, part) for part in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) else True


def _plain(name: str, value: Any) -> Any:
    if name in TABLES and (row := TABLES[name].row_name(value)) is not None:
        return row
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(name, part) for part in value]
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}:{value.__qualname__}"
    raise UserError(f"the setting {name} is a {type(value).__name__}: use numbers, text, tuples or a function's name")


def _function(setting: str, value: Any, hint: Any) -> Any:
    """Return the function that a text names, where the field takes functions and no text; all else as it is.

    Whoever reads the text from a file has applied the trust rule to it (`Config.code`, `code_in`).
    """
    parts = [part for part in (get_args(hint) if _is_union(hint) else (hint,)) if part is not type(None)]
    if not isinstance(value, str) or not all((get_origin(part) or part) is Callable for part in parts):
        return value
    name = setting.partition(".")[2]
    if name in TABLES:
        return TABLES[name].find(value)
    if not is_code(value):
        raise UserError(f"{setting} is {shown(value)}: name a function as module:name")
    return _imported(setting, value)


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
