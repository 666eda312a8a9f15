"""A grid file: TOML that names any setting, as one value for all, a product, a zip, or a row of an environment.

preset = "paper"                # settings to start from, by environment; optional
folder = "batch_{batch_size}"   # keeps cells apart that differ in more than env, method and seed
[set]                           # the same for every run
steps = 1_000_000
[product]                       # every combination
env = ["ant_u_maze", "humanoid_u_maze"]
seed = [0, 1, 2]
[[zip]]                         # side by side: the first with the first, the second with the second
batch_size = [128, 256]
num_envs = [128, 512]
[rows."humanoid_*"]             # the same for every run of these environments
steps = 2_000_000
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dcp.config import field_kinds, shown
from dcp.errors import UserError
from dcp.presets import PRESETS

Values = dict[str, list[Any]]
KEYS = ("preset", "folder", "set", "product", "zip", "rows")


@dataclass(frozen=True)
class GridFile:
    """As it was read, with every name checked; values are judged once they are runs."""

    source: str  # for sentences: the file's path, or the built-in grid's name
    preset: str | None = None
    folder: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    product: Values = field(default_factory=dict)
    zips: tuple[Values, ...] = ()
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)  # by pattern of environments' names: first fit

    @property
    def swept(self) -> list[str]:
        """Fields that have several values."""
        return [*self.product, *(name for zipped in self.zips for name in zipped)]


def read_grid(path: Path) -> GridFile:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}): name a grid file, or use --preset") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not TOML ({error}): mend it there") from error
    return parse_grid(content, str(path))


def parse_grid(content: dict[str, Any], source: str) -> GridFile:
    for key in content:
        if key not in KEYS:
            raise UserError(f"{source}: {_unknown_key(key)}")
    preset, folder = content.get("preset"), content.get("folder", "")
    if preset is not None and not (isinstance(preset, str) and preset in PRESETS):
        raise UserError(f"{source}: unknown preset {shown(preset)}: choose one of {', '.join(PRESETS)}")
    if not isinstance(folder, str):
        raise UserError(f'{source}: folder must be text such as "{{batch_size}}", not {shown(folder)}')
    rows = _table(content, "rows", source)
    grid = GridFile(
        source,
        preset,
        folder,
        _fields(_table(content, "set", source), "[set]", source),
        _listed(_table(content, "product", source), "[product]", source),
        tuple(_zip(table, source) for table in _tables(content, source)),
        {pattern: _fields(row, f'[rows."{pattern}"]', source) for pattern, row in rows.items()},
    )
    _refuse_doubles(grid)
    return grid


def close_field(name: str) -> str:
    """What to write in place of a field that there is not."""
    close = get_close_matches(name, field_kinds(), 1)
    return f"did you mean {close[0]}?" if close else "see `dcp train --help` for the names"


def _unknown_key(key: str) -> str:
    if key in field_kinds():
        return f"{key} is a setting: put it under [set], or as a list under [product]"
    close = get_close_matches(key, KEYS, 1)
    hint = f"did you mean {close[0]}?" if close else f"a grid has {', '.join(KEYS)}"
    return f"unknown key {key!r}: {hint}"


def _table(content: dict[str, Any], key: str, source: str) -> dict[str, Any]:
    table = content.get(key, {})
    if not isinstance(table, dict):
        raise UserError(f"{source}: {key} must be a table: write [{key}] on a line of its own")
    return table


def _tables(content: dict[str, Any], source: str) -> list[dict[str, Any]]:
    tables = content.get("zip", [])
    if isinstance(tables, dict):  # [zip] for [[zip]]: there is but one
        return [tables]
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UserError(f"{source}: zip must be tables: write [[zip]] on a line of its own")
    return tables


def _fields(table: Any, where: str, source: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UserError(f"{source}: {where} must be a table of settings, not {shown(table)}")
    for name, value in table.items():
        if name not in field_kinds():
            raise UserError(f"{source}: unknown field {name!r} in {where}: {close_field(name)}")
        if isinstance(value, list) and where != "[product]" and where != "[[zip]]":
            raise UserError(f"{source}: {name} in {where} is a list: several values go under [product] or [[zip]]")
    if "env" in table and where.startswith("[rows"):
        raise UserError(f"{source}: env in {where} is what chooses the row: put it under [product] or [set]")
    return table


def _listed(table: dict[str, Any], where: str, source: str) -> Values:
    """A single value is a list of one."""
    values = {n: v if isinstance(v, list) else [v] for n, v in _fields(table, where, source).items()}
    for name, listed in values.items():
        if not listed:
            raise UserError(f"{source}: {name} in {where} is an empty list: give it a value, or leave it out")
    return values


def _zip(table: dict[str, Any], source: str) -> Values:
    values = _listed(table, "[[zip]]", source)
    lengths = {name: len(listed) for name, listed in values.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise UserError(f"{source}: the lists of a [[zip]] must be equally long, but {told} values: make them equal")
    return values


def _refuse_doubles(grid: GridFile) -> None:
    homes: dict[str, str] = {}
    tables = [("[product]", grid.product), *(("[[zip]]", zipped) for zipped in grid.zips), ("[set]", grid.set)]
    for where, table in tables:
        for name in table:
            if name in homes:
                raise UserError(f"{grid.source}: {name} is in {homes[name]} and in {where}: keep it in one of them")
            homes[name] = where
    for pattern, row in grid.rows.items():
        for name in _both(row, grid.swept):
            raise UserError(f'{grid.source}: {name} is in {homes[name]} and in [rows."{pattern}"]: keep it in one')


def _both(names: Iterable[str], others: Iterable[str]) -> list[str]:
    there = set(others)
    return [name for name in names if name in there]
