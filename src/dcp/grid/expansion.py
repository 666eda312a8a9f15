"""From a grid file to its runs: expanded, filtered, judged before anything starts, each with a folder of its own."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import PurePosixPath
from string import Formatter
from typing import Any

from dcp.config import Settings, field_kinds, shown, type_violations
from dcp.envs.registry import env_of
from dcp.errors import UserError
from dcp.grid.file import GridFile, close_field
from dcp.grid.jobs import GRID_DIR
from dcp.methods.pool_seed import read as read_pool_seed
from dcp.presets import preset_overrides
from dcp.types import EnvSpec

IN_RUN_PATH = ("env", "method", "seed")  # what `Settings.run_path` tells apart


@dataclass(frozen=True)
class Run:
    settings: Settings
    subfolder: str = ""

    @property
    def path(self) -> str:
        """Below the grid's --runs-dir."""
        return (PurePosixPath(self.subfolder) / self.settings.run_path).as_posix()


def expand(grid: GridFile, where: Sequence[str] = ()) -> list[Run]:
    """In the file's order: the first field of [product] changes slowest, the last [[zip]] fastest."""
    _check_template(grid)
    settings = [_settings(grid, chosen) for chosen in _choices(grid)]
    for problem in (problem for s in settings for problem in type_violations(s)):
        raise UserError(f"{grid.source}: {problem}")
    runs = [Run(s, subfolder(grid, s)) for s in _filtered(settings, where)]
    _refuse_clashes(grid, runs)
    return runs


def check_runs(runs: Sequence[Run], own: Sequence[str] = ()) -> list[Run]:
    """The runs with what their environments decide filled in; raises the sentence of whatever is wrong with one.

    `own`: environments named as module:factory that the user has allowed. They are code, and the file may be
    a stranger's.
    """
    from dcp.checks import violations

    judged: dict[Settings, list[str]] = {}
    checked = []
    for run in runs:
        settings = run.settings
        _require_allowed(settings, own)
        kind = _kind(settings)
        if kind not in judged:
            # Devices and memory are those of where it will run: its own process and the launcher judge them.
            judged[kind] = violations(replace(kind, devices=None), memory=False) or kind.violations()
        problems = judged[kind] or settings.violations()
        if problems:
            raise UserError(f"{run.path}: {'; '.join(problems)}")
        spec = env_of(settings).spec
        checked.append(replace(run, settings=_with_hash(settings.resolve(spec.episode_length), spec)))
    return checked


def _with_hash(settings: Settings, spec: EnvSpec) -> Settings:
    """A run names its seeds' hash: a folder whose run had a file of other content holds another run."""
    if settings.pool_seed is None:
        return settings
    return replace(settings, pool_seed_sha256=read_pool_seed(settings.pool_seed, spec).sha256)


def _kind(settings: Settings) -> Settings:
    """Runs that differ in their seed alone are judged once; the seed has a check of its own."""
    return replace(settings, seed=0)


def _require_allowed(settings: Settings, own: Sequence[str]) -> None:
    for name in (settings.env, settings.eval_env):
        if isinstance(name, str) and ":" in name and name not in own:
            raise UserError(f"the grid names the code {shown(name)}: if you trust it, name it too: --own-env {name}")


def _choices(grid: GridFile) -> Iterator[dict[str, Any]]:
    """What is swept, for each run."""
    axes = [[{name: value} for value in values] for name, values in grid.product.items()]
    axes += [[dict(zip(z, values, strict=True)) for values in zip(*z.values(), strict=True)] for z in grid.zips if z]
    for parts in product(*axes):
        yield {name: value for part in parts for name, value in part.items()}


def _settings(grid: GridFile, chosen: dict[str, Any]) -> Settings:
    told = {**grid.set, **chosen}
    env = told.get("env")
    start = preset_overrides(grid.preset, env if isinstance(env, str) else None) if grid.preset else {}
    if env not in (None, start.get("env")):
        start = {name: value for name, value in start.items() if name != "eval_env"}  # of the preset's environment
    env = str(told.get("env", start.get("env", Settings.env)))
    row = next((row for pattern, row in grid.rows.items() if fnmatchcase(env, pattern)), {})
    return Settings(**{**start, **grid.set, **row, **chosen})


def _filtered(settings: list[Settings], where: Sequence[str]) -> list[Settings]:
    """KEY=VALUE,VALUE: runs whose KEY is one of these; * and ? as in file names."""
    for condition in where:
        key, given, values = condition.partition("=")
        if not given or not values:
            raise UserError(f"--where takes KEY=VALUE, such as env=ant_u_maze or seed=0,1: not {shown(condition)}")
        if key not in field_kinds():
            raise UserError(f"unknown field {key!r} in --where: {close_field(key)}")
        patterns = values.split(",")
        kept = [s for s in settings if any(fnmatchcase(_text(getattr(s, key)), pattern) for pattern in patterns)]
        if settings and not kept:
            there = ", ".join(dict.fromkeys(_text(getattr(s, key)) for s in settings))
            raise UserError(f"no run has {condition}: these runs have {key} {there[:300]}")
        settings = kept
    return settings


def subfolder(grid: GridFile, settings: Settings) -> str:
    """The file's `folder` for this run: below --runs-dir, above env, method and seed."""
    parts = Formatter().parse(grid.folder)
    return "".join(text + (_safe(getattr(settings, name)) if name else "") for text, name, _, _ in parts)


def _check_template(grid: GridFile) -> None:
    try:
        parts = list(Formatter().parse(grid.folder))
    except ValueError as error:
        raise UserError(f"{grid.source}: folder {grid.folder!r} is broken ({error}): write {{field}}") from error
    for _, name, specification, conversion in parts:
        if name is None:
            continue
        if name not in field_kinds() or specification or conversion:
            raise UserError(f"{grid.source}: folder names {{{name}}}, which is no setting: {close_field(name)}")
    path = PurePosixPath(grid.folder)
    if not grid.folder.isprintable():
        raise UserError(f"{grid.source}: folder {grid.folder!r} cannot be a name: write printable text")
    if path.is_absolute() or ".." in path.parts or path.parts[:1] == (GRID_DIR,):
        raise UserError(
            f"{grid.source}: folder {grid.folder!r} must lie below --runs-dir, and not in {GRID_DIR}/: "
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
            raise UserError(f"{grid.source} names the run {run.path} twice: remove one of the equal values")
        cure = "_".join(f"{{{name}}}" for name in dict.fromkeys([*_template_fields(grid), *names[:4]]))
        raise UserError(
            f"two runs would share the folder {run.path}, for they differ in {', '.join(names)}: "
            f'give each its own by folder = "{cure}" at the top of the grid file'
        )


def _template_fields(grid: GridFile) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(grid.folder) if name]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _safe(value: Any) -> str:
    """As a part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9_.+-]", ".", _text(value))
