"""Two runs beside each other: in which settings and versions they differ, and what each reached."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dcp.analysis.collection import collect
from dcp.analysis.curves import METRICS, curve
from dcp.analysis.run_reading import EvalRecord, Run
from dcp.analysis.tables import DASH
from dcp.errors import UserError
from dcp.run_folder import CONFIG_FILE, read_config_file
from dcp.statistics import Interval, paired_success_interval, t_interval

# What decides the episodes of an evaluation, besides its number: equal ones meet the same starts and goals.
_EPISODES = ("seed", "eval_env", "eval_episodes", "episode_length", "fidelity", "physics")


class Difference(NamedTuple):
    name: str
    a: str
    b: str


class Shared(NamedTuple):
    """One metric at the evaluations that both runs had, as shown (percent, steps)."""

    steps: np.ndarray  # [K]
    a: np.ndarray  # [K]
    b: np.ndarray  # [K]


class PairedEval(NamedTuple):
    """The same episodes by both policies: what `dcp eval` found, a less b."""

    name: str
    success: tuple[float, float]  # percent: a, b
    gain: Interval  # of success, points
    time_gain: Interval  # of time near goal, steps
    wins: int  # reached by a alone
    ties: int
    losses: int


@dataclass(frozen=True)
class Side:
    run: Run
    versions: Mapping[str, str]

    @property
    def has_results(self) -> bool:
        return self.run.num_evaluations > 0


@dataclass(frozen=True)
class Comparison:
    a: Side
    b: Side

    @cached_property
    def names(self) -> tuple[str, str]:
        """What tells them apart: method, environment, seed; the folders if nothing does."""
        a, b = self.a.run, self.b.run
        if a.method != b.method:
            return f"A: {a.method}", f"B: {b.method}"
        parts = [(x, y) for x, y in ((a.env, b.env), (f"seed {a.seed}", f"seed {b.seed}")) if x != y]
        if not parts:
            parts = [(str(a.folder), str(b.folder))]
        words = [", ".join((a.method, *side)) for side in zip(*parts, strict=True)]
        return f"A: {words[0]}", f"B: {words[1]}"

    @cached_property
    def settings(self) -> list[Difference]:
        return differences(self.a.run.config, self.b.run.config)

    @cached_property
    def versions(self) -> list[Difference]:
        return differences(self.a.versions, self.b.versions)

    @cached_property
    def same_episodes(self) -> bool:
        """Whether evaluations of one number are on the same episodes: their differences are then paired."""
        return all(self.a.run.config.get(name) == self.b.run.config.get(name) for name in _EPISODES)

    @property
    def elsewhere(self) -> str:
        """What makes their numbers answers to different questions; empty if nothing does."""
        configs = [run.config for run in (self.a.run, self.b.run)]
        a, b = ((config.get("eval_env") or config.get("env"), config.get("episode_length")) for config in configs)
        physics = [config.get("physics", "brax") for config in configs]
        if a[0] != b[0]:
            return f"A was evaluated on {a[0]} and B on {b[0]}"
        if physics[0] != physics[1]:
            return f"A was stepped by {physics[0]} and B by {physics[1]}"
        return "" if a[1] == b[1] else f"A was evaluated for {a[1]} steps an episode and B for {b[1]}"

    @property
    def metrics(self) -> list[str]:
        """Those that both recorded."""
        return [name for name in METRICS if name in self.a.run.metrics and name in self.b.run.metrics]

    def shared(self, metric: str) -> Shared:
        """At the same environment steps; empty if there are none."""
        (steps_a, values_a), (steps_b, values_b) = (curve(side.run.metrics, metric) for side in (self.a, self.b))
        steps, at_a, at_b = np.intersect1d(steps_a, steps_b, return_indices=True)
        return Shared(steps, values_a[at_a], values_b[at_b])

    @cached_property
    def paired_evals(self) -> list[PairedEval]:
        """Results of `dcp eval` that both have on the same episodes."""
        theirs = {record.path.name: record for record in self.b.run.evals}
        pairs = [(mine, theirs[mine.path.name]) for mine in self.a.run.evals if mine.path.name in theirs]
        return [found for mine, other in pairs if (found := _paired(mine, other)) is not None]


def compare(a: str | Path, b: str | Path) -> Comparison:
    """Two run folders, or folders with one run below."""
    one, other = _side(a), _side(b)
    if one.run.folder.resolve() == other.run.folder.resolve():
        raise UserError(f"{a} and {b} are one and the same run: name two")
    return Comparison(one, other)


def _side(path: str | Path) -> Side:
    runs = collect([path]).runs
    if len(runs) != 1:
        names = ", ".join(str(run.folder) for run in runs[:3])
        more = f"name one of {names}{' …' if len(runs) > 3 else ''}" if runs else "name a run's folder"
        raise UserError(f"{path} holds {len(runs)} runs: {more}")
    if runs[0].is_damaged:
        raise UserError(f"{runs[0].folder} is {runs[0].state}")
    versions = read_config_file(runs[0].folder / CONFIG_FILE)["versions"]
    return Side(runs[0], versions if isinstance(versions, dict) else {})


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Only what differs, in a's order, then what b alone has."""
    names = dict.fromkeys([*a, *b])
    return [Difference(name, _text(a, name), _text(b, name)) for name in names if _text(a, name) != _text(b, name)]


def _text(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return DASH
    value = values[name]
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _paired(mine: EvalRecord, other: EvalRecord) -> PairedEval | None:
    """None unless both met the same episodes, stepped alike, and kept them one by one."""
    if mine.content.get("physics", "brax") != other.content.get("physics", "brax"):
        return None
    fingerprints = [_goal_sets(record) for record in (mine, other)]
    columns = [_episodes(record.path.with_suffix(".csv")) for record in (mine, other)]
    if fingerprints[0] != fingerprints[1] or None in fingerprints[0] or None in columns:
        return None
    (success_a, time_a), (success_b, time_b) = columns  # pyright: ignore[reportGeneralTypeIssues]
    if len(success_a) != len(success_b) or not len(success_a):
        return None
    gain = success_a - success_b
    return PairedEval(
        mine.path.stem,
        (100.0 * float(success_a.mean()), 100.0 * float(success_b.mean())),
        _symmetric(paired_success_interval(int(np.sum(gain > 0)), int(np.sum(gain < 0)), len(gain)), len(gain)),
        t_interval(time_a - time_b),
        int(np.sum(gain > 0)),
        int(np.sum(gain == 0)),
        int(np.sum(gain < 0)),
    )


def _goal_sets(record: EvalRecord) -> list[Any]:
    """None among them for what a damaged file lacks."""
    return [seed.get("goal_set_sha256") if isinstance(seed, dict) else None for seed in record.content["seeds"]]


def _symmetric(found: Interval, pairs: int) -> Interval:
    """In points, as wide to both sides as to the wider one."""
    half = 100.0 * max(found.high - found.mean, found.mean - found.low)
    return Interval(100.0 * found.mean, half_width=half, count=pairs)


def _episodes(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return tuple(np.array([float(row[name]) for row in rows]) for name in ("success", "time_near_goal"))  # pyright: ignore[reportReturnType]
    except (OSError, ValueError, KeyError, TypeError):
        return None
