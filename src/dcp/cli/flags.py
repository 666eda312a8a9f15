"""Flags from a dataclass: every field is an option, and the string below it is the option's help.

Only `read` reads a command line: it returns the typed values that argv sets, so that a command can look at one flag
before it chooses the defaults of the others. `parse` puts these values into the defaults, or prints the help. A new
flag is a field: of `Settings` (config.py) if it decides a run's numbers, else of its command's options.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dcp.config import MAY_BE_CODE
from dcp.errors import UserError
from dcp.named_code import allow

T = TypeVar("T")
POSITIONAL = "positional"  # Annotated[tuple[str, ...], POSITIONAL] takes the arguments without a flag
Burst = Annotated[tuple[int, int] | None, (100, 10)]  # P and L; the flag without values means the paper's
COMPONENT_SETTINGS = "component_settings"  # the field that takes dotted flags: {"condition.scale": 2.0}
CODE_FIELDS = (*MAY_BE_CODE, "own_code")  # a module:name that is typed after these flags may be imported
LONGEST_NUMBER = 30  # digits: nobody means 1e999999999


@dataclass(frozen=True)
class Flag:
    field: str  # the field's name; a component's setting has a prefix, as in condition.scale
    kind: Any  # int, float, str, Path, bool or a Literal
    count: int | None  # how many values it takes; None: any number
    optional: bool  # whether None is a value
    alone: tuple[int, ...] | None  # its value if none is given
    positional: bool
    group: str  # its heading in the help
    owner: type
    default: Any

    @property
    def name(self) -> str:
        return f"--{self.field.replace('_', '-')}"

    @property
    def shown(self) -> str:
        if self.positional or self.kind is bool:
            return self.field.upper() if self.positional else f"{self.name}, --no-{self.name[2:]}"
        choices = ",".join(map(str, get_args(self.kind)))
        word = f"{{{choices}}}" if choices else self.kind.__name__.upper()
        return f"{self.name} [{word} ...]" if self.count is None else " ".join([self.name, *[word] * self.count])


def parse(
    default: T,
    argv: list[str],
    prog: str,
    description: str,
    extra: Mapping[str, type] | None = None,
    first: tuple[str, ...] = (),
) -> T:
    """Return `default` with the values that argv sets. `--help` prints the help and exits with 0.

    `first`: the flags at the top of the help.
    `extra` maps prefixes to dataclasses: `{"condition": Direction}` adds `--condition.scale` for the field `scale`. Its
    value goes into the field `component_settings` as {"condition.scale": 2.0}.
    """
    values = read(default, argv, prog, extra or {})
    if "-h" in argv or "--help" in argv:
        from dcp.cli.flag_help import help_text

        print(help_text(default, prog, description, extra or {}, first))
        raise SystemExit(0)
    return _with(default, values)


def read(default: Any, argv: list[str], prog: str, extra: Mapping[str, type] | None = None) -> dict[str, Any]:
    """Return the values that argv sets, by field name, and allow the code that they name. With `extra` None, the values
    of dotted flags stay text: their types are unknown until the components are chosen."""
    flags = {flag.name: flag for flag in flags_of(default, extra or {})}
    values: dict[str, Any] = {}
    loose, rest = [], list(argv)
    while rest:
        arg = rest.pop(0)
        if not arg.startswith("-") or _is_number(arg):
            loose.append(arg)
            continue
        name, equals, text = arg.partition("=")
        name = name.replace("_", "-")
        flag = flags.get(name) or flags.get(name.replace("--no-", "--", 1))
        if name in ("-h", "--help"):
            continue
        if extra is None and flag is None and "." in name:
            values[name[2:]] = [text] if equals else _take(rest, None)
        elif flag is None or flag.positional or (flag.name != name and flag.kind is not bool):
            from dcp.cli.flag_help import unknown_option

            raise unknown_option(name, flags, prog)
        elif flag.kind is bool:
            if equals:
                raise UserError(f"{name} takes no value: leave out {text!r}")
            values[flag.field] = flag.name == name
        else:
            values[flag.field] = _values(flag, [text] if equals else [], rest, prog)
    allow([value for field, value in values.items() if field in CODE_FIELDS or "." in field])
    return values | _positional(flags, loose, prog)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def flags_of(default: Any, extra: Mapping[str, type] = MappingProxyType({}), group: str = "options") -> Iterator[Flag]:
    """Yield the flags of a dataclass, of the dataclasses inside it (without a prefix), and of components (with one)."""
    for field, hint in get_type_hints(type(default), include_extras=True).items():
        value = getattr(default, field)
        if dataclasses.is_dataclass(value):
            yield from flags_of(value, {}, field)
        elif field != COMPONENT_SETTINGS and (flag := _flag(field, hint, group, type(default), value)):
            yield flag
    for prefix, component in extra.items():
        hints = get_type_hints(component, include_extras=True)
        shared = getattr(component, "from_config", ())  # these have flags already
        for field, hint in ((f.name, hints[f.name]) for f in dataclasses.fields(component) if f.name not in shared):
            value = getattr(component, field, None)
            if flag := _flag(f"{prefix}.{field}", hint, f"{prefix} {component.__name__}", component, value):
                yield flag


def _flag(field: str, hint: Any, group: str, owner: type, default: Any) -> Flag | None:
    """Return the field's flag; None if a command line cannot express its type. A function is given by its name."""
    marks: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    hint = hint.__origin__ if marks else hint
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    members = tuple(str if Callable in (member, get_origin(member)) else member for member in members)
    kind, *more = dict.fromkeys(member for member in members if member is not NoneType)
    count = 0 if kind is bool else 1
    if get_origin(kind) is tuple:
        kind, *others = get_args(kind)
        count = None if others == [...] else 1 + len(others)
    if more or not (kind in (int, float, str, bool, Path) or get_origin(kind) is Literal):
        return None
    alone = next((mark for mark in marks if isinstance(mark, tuple)), None)
    return Flag(field, kind, count, NoneType in members, alone, POSITIONAL in marks, group, owner, default)


def _values(flag: Flag, texts: list[str], rest: list[str], prog: str) -> Any:
    """Remove the flag's values from the rest of the command line; `texts` are those given with an equals sign."""
    if not texts or flag.count not in (None, 1):
        most = None if flag.count is None else flag.count - len(texts)
        texts = [*texts, *_take(rest, most, only_numbers=flag.alone is not None)]
    if flag.alone and not texts:
        return flag.alone
    if flag.optional and texts == ["None"]:
        return None
    if flag.count == 1 and not texts:
        raise UserError(f"{flag.name} needs a value: see `{prog} --help`")
    if flag.count not in (None, len(texts)):
        from dcp.cli.flag_help import wrong_values

        raise wrong_values(flag, " ".join(texts), prog)
    values = tuple(_value(flag, text, prog) for text in texts)
    return values[0] if flag.count == 1 else values


def _take(rest: list[str], most: int | None, only_numbers: bool = False) -> list[str]:
    taken = []
    while rest and len(taken) != most and not rest[0].startswith("--") and rest[0] != "-h":
        if only_numbers and not _is_number(rest[0]) and rest[0] != "None":
            break
        taken.append(rest.pop(0))
    return taken


def _value(flag: Flag, text: str, prog: str) -> Any:
    if get_origin(flag.kind) is Literal:
        choices = {str(choice): choice for choice in get_args(flag.kind)}
        if text not in choices:
            raise UserError(f"unknown value {text!r} for {flag.name}: choose one of {', '.join(choices)}")
        return choices[text]
    try:
        return _whole(text) if flag.kind is int else flag.kind(text)
    except ValueError:
        from dcp.cli.flag_help import wrong_values

        raise wrong_values(flag, text, prog) from None


def _whole(text: str) -> int:
    """Read a whole number: 1000000, 1_000_000 or 1e6."""
    try:
        return int(text)
    except ValueError:
        number = Decimal(text) if _is_number(text) else Decimal("nan")
        if not number.is_finite() or number.adjusted() > LONGEST_NUMBER or number != number.to_integral_value():
            raise
        return int(number)


def _positional(flags: Mapping[str, Flag], loose: list[str], prog: str) -> dict[str, Any]:
    flag = next((flag for flag in flags.values() if flag.positional), None)
    room = 0 if flag is None else len(loose) if flag.count is None else 1
    if len(loose) > room:
        how = f"every setting is written as --name value, see `{prog} --help`"
        raise UserError(f"did not expect {loose[room]!r}: {how}")
    return {flag.field: _values(flag, [], loose, prog)} if flag and loose else {}


def _with(default: T, flag_values: Mapping[str, Any]) -> T:
    changes: dict[str, Any] = {}
    for name, value in vars(default).items():
        if dataclasses.is_dataclass(value):
            changes[name] = _with(value, flag_values)
        elif name == COMPONENT_SETTINGS:
            dotted = {name: setting for name, setting in flag_values.items() if "." in name}
            changes[name] = {**value, **dotted}
        elif name in flag_values:
            changes[name] = flag_values[name]
    return dataclasses.replace(default, **changes)  # pyright: ignore[reportArgumentType]
