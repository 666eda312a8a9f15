"""Read a grid file and expand it to runs. Each run is checked before anything starts, and has its own folder.

The file is TOML. It sets any setting: one value for all runs, a product, a zip, or a row for an environment:

preset = "paper"                # settings to start from, by environment; optional
folder = "batch_{batch_size}"   # separates runs that differ in more than env, method and seed
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

import re
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from itertools import product
from math import prod
from pathlib import Path, PurePosixPath
from string import Formatter
from typing import Any

from dcp.config import Settings, field_kinds, gathered, is_setting, type_violations
from dcp.envs.registry import env_of
from dcp.errors import QUOTED, UserError, did_you_mean, one_line, shown
from dcp.files.experience import read_experience
from dcp.files.validation import MEGABYTE, read_text, require_shallow
from dcp.grid.jobs import GRID_DIR, Run
from dcp.lab.paper_values import ENVIRONMENTS, METHODS
from dcp.methods.pool_seed import read_pool_seed
from dcp.named_code import is_allowed
from dcp.presets import PRESETS, preset_overrides

Values = dict[str, list[Any]]
KEYS = ("preset", "folder", "set", "product", "zip", "rows")
MOST_RUNS = 100_000
GRIDS: dict[str, dict[str, Any]] = {  # built-in grids, in the form of a file's content
    "paper": {
        "preset": "paper",
        "product": {"env": list(ENVIRONMENTS), "method": list(METHODS), "seed": [0, 1, 2, 3, 4]},
    },
    "smoke": {
        "preset": "smoke",
        "set": {"env": "point_u_maze"},
        "product": {"method": ["crl", "dcp"], "seed": [0, 1, 2, 3]},
    },
}
PURPOSES = {
    "paper": "the paper's nine environments, three methods and five seeds: 135 runs",
    "smoke": "eight tiny runs of a point maze: shows that everything runs, learns nothing",
}


@dataclass(frozen=True)
class GridFile:
    """A grid as it was read. Names have been checked; values are checked when the runs are made."""

    source: str  # for error messages: the file's path, or the built-in grid's name
    preset: str | None = None
    folder: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    product: Values = field(default_factory=dict)
    zips: tuple[Values, ...] = ()
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)  # by pattern of environment names: first match


def read_grid(path: Path) -> GridFile:
    """Read a grid file; raise UserError if it is not one."""
    return parse_grid(read_toml(path), str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """Return what the file holds, unchecked; raise UserError if it cannot be read or is not TOML."""
    try:
        content = tomllib.loads(read_text(path, most=MEGABYTE))
        require_shallow(content)
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}): name a grid file, or use --preset") from error
    except (ValueError, RecursionError) as error:  # TOML's own, or an integer too long for Python
        raise UserError(f"{path} is not TOML ({one_line(error)}): correct the file") from error
    return content


def builtin_grid(name: str) -> GridFile:
    """Return the built-in grid of this name."""
    if name not in GRIDS:
        otherwise = f"choose one of {', '.join(GRIDS)}, or name a grid file"
        raise UserError(f"unknown grid {name!r}: {did_you_mean(name, GRIDS, otherwise, QUOTED)}")
    return parse_grid(GRIDS[name], f"--preset {name}")


def parse_grid(content: dict[str, Any], source: str) -> GridFile:
    """Check the names and the shape of a grid file's content."""
    for key in content:
        if key not in KEYS:
            raise UserError(f"{source}: {_unknown_key(key)}")
    preset, folder = content.get("preset"), content.get("folder", "")
    if preset is not None and not (isinstance(preset, str) and preset in PRESETS):
        raise UserError(f"{source}: unknown preset {shown(preset)}: choose one of {', '.join(PRESETS)}")
    if not isinstance(folder, str):
        raise UserError(f'{source}: folder must be text such as "{{batch_size}}", not {shown(folder)}')
    tables = {key: content.get(key, {}) for key in ("set", "product", "rows")}
    for key, table in tables.items():
        if not isinstance(table, dict):
            raise UserError(f"{source}: {key} must be a table: write [{key}] on a line of its own")
    zips = content.get("zip", [])
    zips = [zips] if isinstance(zips, dict) else zips  # [zip] for [[zip]]: there is only one
    if not isinstance(zips, list) or not all(isinstance(table, dict) for table in zips):
        raise UserError(f"{source}: zip must be tables: write [[zip]] on a line of its own")
    grid = GridFile(
        source,
        preset,
        folder,
        _fields(tables["set"], "[set]", source),
        _listed(tables["product"], "[product]", source),
        tuple(_zip(table, source) for table in zips),
        {pattern: _fields(row, f'[rows."{shown(pattern)[1:-1]}"]', source) for pattern, row in tables["rows"].items()},
    )
    _refuse_doubles(grid)
    return grid


def close_field(name: str) -> str:
    """Suggest what to write instead of a field that does not exist."""
    return did_you_mean(name, field_kinds(), "see `dcp train --help` for the names")


def _unknown_key(key: str) -> str:
    if key in field_kinds():
        return f"{key} is a setting: put it under [set], or as a list under [product]"
    if key in ("search", "tune"):
        return f"[{key}] is for a search: run the file by `dcp tune`"
    has = f"a grid has {', '.join(KEYS)}"
    return f"unknown key {shown(key)}: {did_you_mean(key, KEYS, has)}"


def _fields(table: Any, where: str, source: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UserError(f"{source}: {where} must be a table of settings, not {shown(table)}")
    table = _flat(table)
    for name, value in table.items():
        if not is_setting(name):
            raise UserError(f"{source}: unknown field {shown(name)} in {where}: {close_field(name)}")
        if isinstance(value, list) and where not in ("[product]", "[[zip]]"):
            raise UserError(f"{source}: {name} in {where} is a list: several values go under [product] or [[zip]]")
    if "env" in table and where.startswith("[rows"):
        raise UserError(f"{source}: env in {where} chooses the row: put it under [product] or [set]")
    return table


def _flat(table: dict[str, Any]) -> dict[str, Any]:
    """Flatten {"condition": {"scale": 2}}, which is how TOML reads condition.scale = 2, to {"condition.scale": 2}."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= {f"{name}.{part}": v for part, v in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _listed(table: dict[str, Any], where: str, source: str) -> Values:
    """Return a list; a single value becomes a list of one."""
    values = {n: v if isinstance(v, list) else [v] for n, v in _fields(table, where, source).items()}
    for name, listed in values.items():
        if not listed:
            raise UserError(f"{source}: {name} in {where} is an empty list: give it a value, or leave it out")
    return values


def _zip(table: dict[str, Any], source: str) -> Values:
    values = _listed(table, "[[zip]]", source)
    lengths = {name: len(listed) for name, listed in values.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise UserError(f"{source}: the lists of a [[zip]] must be equally long, but {counts} values: make them equal")
    return values


def _refuse_doubles(grid: GridFile) -> None:
    homes: dict[str, str] = {}
    swept = [("[product]", grid.product), *(("[[zip]]", zipped) for zipped in grid.zips)]
    for where, table in [*swept, ("[set]", grid.set)]:
        for name in table:
            if name in homes:
                raise UserError(f"{grid.source}: {name} is in {homes[name]} and in {where}: keep it in one of them")
            homes[name] = where
    for pattern, row in grid.rows.items():
        for name in row:
            if homes.get(name, "[set]") != "[set]":  # a row may change what [set] says
                raise UserError(
                    f'{grid.source}: {name} is in {homes[name]} and in [rows."{shown(pattern)[1:-1]}"]: keep it in one'
                )


def expand(grid: GridFile, where: Sequence[str] = ()) -> list[Run]:
    """List the grid's runs in the file's order: the first field of [product] changes slowest, the last [[zip]] fastest.

    `where`: conditions such as env=ant_* that every run must meet.
    """
    _check_template(grid)
    axes = _axes(grid)
    if (count := prod(map(len, axes))) > MOST_RUNS:
        raise UserError(f"{grid.source} names {count:,} runs, more than {MOST_RUNS:,}: shorten its lists")
    chosen = ({name: value for part in parts for name, value in part.items()} for parts in product(*axes))
    settings = [_settings(grid, values) for values in chosen]
    for problem in (problem for s in settings for problem in type_violations(s)):
        raise UserError(f"{grid.source}: {problem}")
    runs = [Run(s, _subfolder(grid, s)) for s in _filtered(settings, where)]
    _refuse_clashes(grid, runs)
    return runs


def check_runs(runs: Sequence[Run], own: Sequence[str] = ()) -> list[Run]:
    """Return the runs with the settings that their environments decide; raise UserError if a run is wrong.

    `own`: the module:name entries of the file that the user allows. They are code, and the file may be a stranger's.
    """
    from dcp.machine.checks import violations

    problems_of: dict[Settings, list[str]] = {}  # by settings without their seed, which is checked on its own
    resolved = []
    for run in runs:
        settings, cell = run.settings, replace(run.settings, seed=0)
        for name in settings.code.values():
            if name not in own and not is_allowed(name):
                raise UserError(
                    f"the grid names the code {shown(name)}: if you trust it, also give --own-code {name[:200]}"
                )
        if cell not in problems_of:
            # The process that will run it checks devices, and the launcher checks memory.
            problems_of[cell] = violations(replace(cell, devices=None), memory=False) or cell.violations()
        if problems := problems_of[cell] or settings.violations():
            raise UserError(f"{_shown_path(run)}: {'; '.join(problems)}")
        spec = env_of(settings).spec
        settings = settings.resolve(spec.episode_length)
        if settings.pool_seed is not None:  # if the file's content has changed, the folder holds another run
            settings = replace(settings, pool_seed_sha256=read_pool_seed(settings.pool_seed, spec).sha256)
        if settings.data is not None:
            settings = replace(settings, data_sha256=read_experience(settings.data, spec).sha256)
        resolved.append(replace(run, settings=settings))
    return resolved


def _axes(grid: GridFile) -> list[list[dict[str, Any]]]:
    """Return the lists of values that are multiplied: one of each field of [product], and one of each [[zip]]."""
    axes = [[{name: value} for value in values] for name, values in grid.product.items()]
    return axes + [[dict(zip(z, row, strict=True)) for row in zip(*z.values(), strict=True)] for z in grid.zips if z]


def _settings(grid: GridFile, chosen: dict[str, Any]) -> Settings:
    named = {**grid.set, **chosen}
    env = named.get("env")
    env_and_method = (x if isinstance(x, str) else None for x in (env, named.get("method")))
    start = preset_overrides(grid.preset, *env_and_method) if grid.preset else {}
    if env not in (None, start.get("env")):
        start = {name: value for name, value in start.items() if name != "eval_env"}  # of the preset's environment
    env = str(named.get("env", start.get("env", Settings.env)))
    row = next((row for pattern, row in grid.rows.items() if fnmatchcase(env, pattern)), {})
    return Settings(**gathered({**start, **grid.set, **row, **chosen}))


def _filtered(settings: list[Settings], where: Sequence[str]) -> list[Settings]:
    """Keep the runs whose KEY is one of the values of KEY=VALUE,VALUE; * and ? work as in file names."""
    for condition in where:
        key, _, values = condition.partition("=")
        if not values:
            raise UserError(f"--where takes KEY=VALUE, such as env=ant_u_maze or seed=0,1: not {shown(condition)}")
        if not is_setting(key):
            raise UserError(f"unknown field {key!r} in --where: {close_field(key)}")
        patterns = values.split(",")
        kept = [s for s in settings if any(fnmatchcase(_text(_value(s, key)), pattern) for pattern in patterns)]
        if settings and not kept:
            values = ", ".join(dict.fromkeys(_text(_value(s, key)) for s in settings))
            raise UserError(f"no run has {condition}: these runs have {key} {values[:300]}")
        settings = kept
    return settings


def _subfolder(grid: GridFile, settings: Settings) -> str:
    """Return the file's `folder` for this run: below --runs-dir, above env, method and seed."""

    def safe(value: Any) -> str:
        return re.sub(r"[^A-Za-z0-9_.+-]", ".", _text(value))

    parts = Formatter().parse(grid.folder)
    return "".join(text + (safe(_value(settings, name)) if name else "") for text, name, _, _ in parts)


def _check_template(grid: GridFile) -> None:
    try:
        parts = list(Formatter().parse(grid.folder))
    except ValueError as error:
        raise UserError(f"{grid.source}: folder {shown(grid.folder)} is broken ({error}): write {{field}}") from error
    for _, name, specification, conversion in parts:
        if name is not None and (not is_setting(name) or specification or conversion):
            raise UserError(f"{grid.source}: folder names {{{name}}}, which is not a setting: {close_field(name)}")
    path = PurePosixPath(grid.folder)
    if not grid.folder.isprintable():
        raise UserError(f"{grid.source}: folder {shown(grid.folder)} cannot be a name: write printable text")
    if path.is_absolute() or ".." in path.parts or path.parts[:1] == (GRID_DIR,):
        raise UserError(
            f"{grid.source}: folder {shown(grid.folder)} must lie below --runs-dir, and not in {GRID_DIR}/: "
            'write, for example, "batch_{batch_size}"'
        )


def _refuse_clashes(grid: GridFile, runs: list[Run]) -> None:
    first: dict[str, Run] = {}
    for run in runs:
        other = first.setdefault(run.path, run)
        if other is run:
            continue
        ours, theirs = asdict(run.settings), asdict(other.settings)
        names = [f.name for f in fields(Settings) if ours[f.name] != theirs[f.name]]
        if not names:
            raise UserError(f"{grid.source} names the run {_shown_path(run)} twice: remove one of the equal values")
        template = [name for _, name, _, _ in Formatter().parse(grid.folder) if name]
        folder = "_".join(f"{{{name}}}" for name in dict.fromkeys([*template, *names[:4]]))
        raise UserError(
            f"two runs would share the folder {_shown_path(run)}, because they differ in {', '.join(names)}: "
            f'give each its own by folder = "{folder}" at the top of the grid file'
        )


def _shown_path(run: Run) -> str:
    """Return a run's path for a sentence: a name in it may be long or have line breaks until it is checked."""
    return shown(run.path)[1:-1]


def _value(settings: Settings, name: str) -> Any:
    return settings.component_settings.get(name) if "." in name else getattr(settings, name)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
