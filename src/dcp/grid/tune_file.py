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
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from dcp.config import WITH_SETTINGS, Settings, gathered, is_setting, range_violations, type_violations
from dcp.errors import UserError, install_hint, one_line, shown
from dcp.grid.grid_file import check_runs, close_field, expand, parse_grid, read_toml
from dcp.grid.jobs import Run

NOT_SEARCHED = {
    "seed": "the best seed is luck: write several seeds under [product], and a trial trains them all",
    "env": "scores of two tasks cannot be compared: write it under [set] or [product]",
}


def optuna_package() -> Any:
    """Import Optuna; raise UserError if it is not installed."""
    try:
        optuna: Any = import_module("optuna")
    except ImportError as error:
        raise UserError(f"dcp tune needs Optuna: {install_hint('tune')}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


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
    search: dict[str, Any]  # by setting, as in the file: a list, or a table with low and high
    space: dict[str, Any]  # the same as Optuna's distributions
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
        lowest, highest = ({name: ends(values)[at] for name, values in self.space.items()} for at in (0, -1))
        try:
            return check_runs(self.runs(0, lowest, where), own)
        except UserError as error:
            try:
                return check_runs(self.runs(0, highest, where), own)
            except UserError:
                raise error from None

    def fingerprint(self, where: Sequence[str]) -> str:
        """Return a text that two searches share if their scores can be compared."""
        return json.dumps([self.content, self.search, self.options.metric, self.options.last, list(where)], default=str)


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
    search = _flat(search)
    space = {name: _distribution(name, values, source) for name, values in search.items()}
    for name in search:
        if name in fixed:
            raise UserError(f"{source}: {name} is in [search] and in {fixed[name]}: keep it in one of them")
    return TuneFile(source, content, search, space, _options(options, source))


def _flat(table: dict[str, Any]) -> dict[str, Any]:
    """Return condition.scale by that name: TOML reads it as a table in a table, as it reads a range."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        nested = name in WITH_SETTINGS and isinstance(value, dict)
        flat |= {f"{name}.{part}": inner for part, inner in value.items()} if nested else {name: value}
    return flat


def suggest(trial: Any, name: str, values: Any) -> Any:
    """Let Optuna's trial choose from a distribution. A second call returns the same."""
    if hasattr(values, "choices"):
        return trial.suggest_categorical(name, values.choices)
    choose = trial.suggest_int if isinstance(values.low, int) else trial.suggest_float
    return choose(name, values.low, values.high, step=values.step, log=values.log)


def ends(values: Any) -> tuple[Any, ...]:
    """Return values of a distribution such that all are right if these are: all choices, or a range's ends."""
    return getattr(values, "choices", None) or (values.low, values.high)


def _distribution(name: str, values: Any, source: str) -> Any:
    if not is_setting(name):
        raise UserError(f"{source}: unknown field {shown(name)} in [search]: {close_field(name)}")
    if name in NOT_SEARCHED:
        raise UserError(f"{source}: {name} is in [search], but {NOT_SEARCHED[name]}")
    made = _range(name, values, source) if isinstance(values, dict) else _choices(name, values, source)
    for value in ends(made):
        settings = Settings(**gathered({name: value}))
        for problem in type_violations(settings) or range_violations(settings):
            raise UserError(f"{source}: in [search], {problem}")
    return made


def _choices(name: str, values: Any, source: str) -> Any:
    is_list = isinstance(values, list) and all(isinstance(value, str | int | float) for value in values)
    if not is_list or len({repr(value) for value in values}) < max(len(values), 2):
        raise UserError(
            f"{source}: {name} in [search] is {shown(values)}: write a list of two or more different values, "
            "or {low = ..., high = ...}"
        )
    return optuna_package().distributions.CategoricalDistribution(values)


def _range(name: str, table: dict[str, Any], source: str) -> Any:
    where, known = f"{source}: {name} in [search]", ("low", "high", "log", "step")
    if wrong := table.keys() - set(known) or {"low", "high"} - table.keys():
        key = min(wrong)
        problem = "is unknown" if key in table else "is missing"
        raise UserError(f"{where} is a range, but {shown(key)} {problem}: it has low, high, log and step")
    numbers = [table[key] for key in ("low", "high", "step") if key in table]
    if not all(type(x) in (int, float) and -(2**63) < x < 2**63 for x in numbers):
        raise UserError(f"{where}: low, high and step must be numbers below 2**63")
    if not isinstance(table.get("log", False), bool):
        raise UserError(f"{where}: log must be true or false")
    distributions, whole = optuna_package().distributions, all(isinstance(x, int) for x in numbers)
    kind = distributions.IntDistribution if whole else distributions.FloatDistribution
    try:
        with warnings.catch_warnings(action="error"):  # Optuna would shorten a range that its steps do not fill
            return kind(**table)
    except (ValueError, TypeError, UserWarning) as error:
        raise UserError(f"{where}: {one_line(error)}") from error


def _options(table: Any, source: str) -> TuneSettings:
    known = {field.name: type(field.default) for field in fields(TuneSettings)}
    if not isinstance(table, dict):
        raise UserError(f"{source}: tune must be a table: write [tune] on a line of its own")
    for name, value in table.items():
        if name not in known:
            raise UserError(f"{source}: unknown key {shown(name)} in [tune]: it has {', '.join(known)}")
        if type(value) is not known[name] or (known[name] is int and not 1 <= value <= 100_000):
            kinds = {int: "a whole number from 1", bool: "true or false", str: "a column of metrics.csv"}
            raise UserError(f"{source}: {name} in [tune] is {shown(value)}: use {kinds[known[name]]}")
    return TuneSettings(**table)
