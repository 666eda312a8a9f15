"""Read the file of a search: a grid file with two more tables.

[search]                            # each setting with what a trial may choose for it
width = [64, 128, 256]              # one of a list
discount = { low = 0.9, high = 0.999 }
actor_learning_rate = { low = 1e-4, high = 1e-2, log = true }
unroll_length = { low = 5, high = 50, step = 5 }       # whole numbers, because low and high are
[tune]                              # all of it may be left out
trials = 30
metric = "success_once"             # a column of metrics.csv; larger is better
last = 3                            # the score is the mean of its last three evaluations
prune = true                        # stop a trial that is worse than the median of the others at the same evaluation

Each trial trains all runs of the file's [product] and [[zip]] with its own choice; its score is the mean of theirs.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from dcp.config import WITH_SETTINGS, Settings, gathered, is_setting, range_violations, type_violations
from dcp.errors import UserError, shown
from dcp.grid.grid_file import check_runs, close_field, expand, parse_grid, read_toml
from dcp.grid.jobs import Run
from dcp.presets import preset_overrides

NOT_SEARCHED = {
    "seed": "the best seed is luck: write several seeds under [product], and a trial trains them all",
    "env": "scores of two tasks cannot be compared: write it under [set] or [product]",
}


class Suggests(Protocol):
    """What a search space needs of Optuna's trial."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any: ...
    def suggest_int(self, name: str, low: int, high: int, *, step: int, log: bool) -> int: ...
    def suggest_float(self, name: str, low: float, high: float, *, step: float | None, log: bool) -> float: ...


@dataclass(frozen=True)
class Choices:
    values: tuple[str | int | float | bool, ...]
    log: bool = False

    @property
    def ends(self) -> tuple[Any, ...]:
        """Return values such that all are right if these are."""
        return self.values

    def suggest(self, trial: Suggests, name: str) -> Any:
        return trial.suggest_categorical(name, self.values)

    def __str__(self) -> str:
        return f"one of {', '.join(map(str, self.values))}"


@dataclass(frozen=True)
class Range:
    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.low, self.high

    def suggest(self, trial: Suggests, name: str) -> Any:
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, step=int(self.step or 1), log=self.log)
        return trial.suggest_float(name, self.low, self.high, step=self.step, log=self.log)

    def __str__(self) -> str:
        how = ", on a log scale" if self.log else "" if self.step is None else f", in steps of {self.step:g}"
        return f"{self.low:g} to {self.high:g}{how}"


@dataclass(frozen=True)
class TuneSettings:
    """The table [tune]."""

    trials: int = 30
    metric: str = "success_once"
    last: int = 3
    prune: bool = True


@dataclass(frozen=True)
class TuneFile:
    source: str
    content: dict[str, Any]  # of the grid file, without the two tables
    search: dict[str, Choices | Range]
    options: TuneSettings = TuneSettings()

    def runs(self, number: int, chosen: Mapping[str, Any], where: Sequence[str] = ()) -> list[Run]:
        """Return the runs of a trial; `check_runs` says whether its choice fits together."""
        folder = f"trial_{number}/{self.content.get('folder', '')}".rstrip("/")
        product = {**self.content.get("product", {}), **{name: [value] for name, value in chosen.items()}}
        return expand(parse_grid({**self.content, "folder": folder, "product": product}, self.source), where)

    def check(self, where: Sequence[str], own: Sequence[str]) -> list[Run]:
        """Return the runs of a trial of the lowest values, or of the highest if those do not fit together; raise
        UserError if neither do: then the mistake is elsewhere in the file."""
        for name in (condition.partition("=")[0] for condition in where):
            if name in self.search:
                raise UserError(f"--where chooses {name}, which is in [search]: change the file, or leave it out")
        lowest, highest = ({name: given.ends[at] for name, given in self.search.items()} for at in (0, -1))
        try:
            return check_runs(self.runs(0, lowest, where), own)
        except UserError as error:
            try:
                return check_runs(self.runs(0, highest, where), own)
            except UserError:
                raise error from None

    def train_command(self, chosen: Mapping[str, Any], where: Sequence[str]) -> str:
        """Return the `dcp train` of a trial's first run, without its seed: what it chose, and what the preset lacks."""
        settings, preset = self.runs(0, chosen, where)[0].settings, self.content.get("preset")
        start = replace(Settings(), **(preset_overrides(preset, settings.env) if preset else {}))
        if settings.env != start.env:
            start = replace(start, eval_env=None)
        values = {
            name: value for name, value in vars(settings).items() if value != getattr(start, name) or name in chosen
        }
        own = values.pop("component_settings", {})
        words = ["dcp", "train", *(["--preset", preset] if preset else [])]
        for name, value in {**values, **own}.items():
            if isinstance(value, bool) and name not in own:
                words.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
            elif name != "seed":
                words += [f"--{name.replace('_', '-')}", str(value)]
        return shlex.join(words)

    def fingerprint(self, where: Sequence[str]) -> str:
        """Return a text that two searches share if their scores can be compared."""
        space = {name: str(given) for name, given in self.search.items()}
        return json.dumps([self.content, space, self.options.metric, self.options.last, list(where)], default=str)


def read_tune_file(path: Path) -> TuneFile:
    """Read the file of a search; raise UserError if it is not one."""
    return parse_tune_file(read_toml(path), str(path))


def parse_tune_file(content: dict[str, Any], source: str) -> TuneFile:
    """Check a file's content, each value of [search] by itself; whether they fit together is known for each trial."""
    content = dict(content)
    search, options = content.pop("search", None), content.pop("tune", {})
    grid = parse_grid(content, source)
    if not isinstance(search, dict) or not search:
        raise UserError(f"{source} has no [search]: give settings there, such as width = [64, 128]")
    fixed = {name: "[product]" for name in grid.product} | {name: "[[zip]]" for zipped in grid.zips for name in zipped}
    fixed |= {name: "[set]" for name in grid.set}
    fixed |= {name: f'[rows."{shown(pattern)[1:-1]}"]' for pattern, row in grid.rows.items() for name in row}
    space = {}
    for name, given in _flat(search).items():
        space[name] = _searched(name, given, source)
        if name in fixed:
            raise UserError(f"{source}: {name} is in [search] and in {fixed[name]}: keep it in one of them")
    return TuneFile(source, content, space, _options(options, source))


def _flat(table: dict[str, Any]) -> dict[str, Any]:
    """Return condition.scale by that name: TOML reads it as a table in a table, as it reads a range."""
    flat: dict[str, Any] = {}
    for name, given in table.items():
        nested = name in WITH_SETTINGS and isinstance(given, dict)
        flat |= {f"{name}.{part}": inner for part, inner in given.items()} if nested else {name: given}
    return flat


def _searched(name: str, given: Any, source: str) -> Choices | Range:
    if not is_setting(name):
        raise UserError(f"{source}: unknown field {shown(name)} in [search]: {close_field(name)}")
    if name in NOT_SEARCHED:
        raise UserError(f"{source}: {name} is in [search], but {NOT_SEARCHED[name]}")
    made = _range(name, given, source) if isinstance(given, dict) else _choices(name, given, source)
    for value in made.ends:
        settings = Settings(**gathered({name: value}))
        for problem in type_violations(settings) or range_violations(settings):
            raise UserError(f"{source}: in [search], {problem}")
    return made


def _choices(name: str, given: Any, source: str) -> Choices:
    is_list = isinstance(given, list) and all(isinstance(value, str | int | float) for value in given)
    if not is_list or len({repr(value) for value in given}) < max(len(given), 2):
        raise UserError(
            f"{source}: {name} in [search] is {shown(given)}: write a list of two or more different values, "
            "or {low = ..., high = ...}"
        )
    return Choices(tuple(given))


def _range(name: str, given: dict[str, Any], source: str) -> Range:
    where = f"{source}: {name} in [search]"
    known = [field.name for field in fields(Range)]
    if wrong := [key for key in given if key not in known] or [key for key in known[:2] if key not in given]:
        raise UserError(f"{where} is a range, but {shown(wrong[0])} {_wrong(wrong[0])}: it has low, high, log and step")
    low, high, log, step = (given.get(key, default) for key, default in zip(known, (0, 0, False, None), strict=True))
    numbers = (low, high, 1 if step is None else step)
    if not all(type(value) in (int, float) and abs(value) < 2**63 for value in numbers):
        raise UserError(f"{where}: low, high and step must be numbers below 2**63")
    if not isinstance(log, bool) or low >= high:
        raise UserError(f"{where}: low must be below high, and log true or false")
    if log and (low <= 0 or step is not None):
        raise UserError(f"{where} is on a log scale: low must be above 0, and step left out")
    if step is None:
        return Range(low, high, log)
    whole = not isinstance(low, int) or not isinstance(high, int) or isinstance(step, int)
    count = (high - low) / step if step > 0 else 0.5
    if not whole or abs(count - round(count)) > 1e-6:
        raise UserError(f"{where}: step {shown(step)} must lead from {low} to {high} in equal, positive steps")
    return Range(low, high, log, step)


def _wrong(key: str) -> str:
    return "is missing" if key in ("low", "high") else "is unknown"


def _options(table: Any, source: str) -> TuneSettings:
    known = {field.name: type(field.default) for field in fields(TuneSettings)}
    if not isinstance(table, dict):
        raise UserError(f"{source}: tune must be a table: write [tune] on a line of its own")
    for name, value in table.items():
        if name not in known:
            raise UserError(f"{source}: unknown key {shown(name)} in [tune]: it has {', '.join(known)}")
        if type(value) is not known[name] or (known[name] is int and not 1 <= value <= 100_000):
            wanted = {int: "a whole number from 1", bool: "true or false", str: "a column of metrics.csv"}[known[name]]
            raise UserError(f"{source}: {name} in [tune] is {shown(value)}: use {wanted}")
    return TuneSettings(**table)
