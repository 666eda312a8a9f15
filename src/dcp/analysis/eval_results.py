"""What `dcp eval` found, run by run: the input of the burst and saturation tables."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dcp.analysis.collection import Collection, Key, names_physics
from dcp.analysis.run_reading import EvalRecord
from dcp.analysis.trials import SCHEMA_VERSION

Burst = tuple[int, int]  # P, L


@dataclass(frozen=True)
class EvalResult:
    """One trained policy on one set of episodes, in percent; perhaps with a burst too, on the same episodes."""

    environment: str
    method: str
    seed: int  # the policy's: the paper's three seeds are three trained policies
    burst: Burst | None
    reach: float  # episodes that were near their goal at least once
    reach_with_burst: float  # nan without a burst
    saturation: float  # action components beyond 0.95, without a burst
    env_steps: int  # that the policy was trained for
    episodes: int
    eval_seeds: tuple[int, ...]
    source: str

    @property
    def key(self) -> Key:
        return self.environment, self.method

    @property
    def gain(self) -> float:
        """Exactly 0 for a tie: shares of the same number of episodes, up to rounding."""
        return round(self.reach_with_burst - self.reach, 9)


def eval_results(collection: Collection) -> tuple[list[EvalResult], list[str]]:
    """-> results, and a sentence for each file that could not be used"""
    found, unused = [], []
    for record, label in _records(collection):
        if reason := _unfit(record):
            unused.append(f"{record.path}: {reason}.")
            continue
        try:
            found.append(_result(record, label))
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            unused.append(f"{record.path}: not a result that this version can read ({error!r}).")
    return found, unused


def one_each(results: list[EvalResult]) -> tuple[list[EvalResult], list[str]]:
    """One a run: of its latest policy, with most episodes, then the first by file name. -> those, what was left out"""
    chosen: dict[tuple[str, str, int], EvalResult] = {}
    left = []
    for result in sorted(results, key=lambda r: (-r.env_steps, -r.episodes, r.source)):
        identity = (*result.key, result.seed)
        if identity in chosen and _same_episodes(result, chosen[identity]):
            continue  # a burst's file and the file of its other half
        if identity in chosen:
            left.append(f"{result.source}: left out, {chosen[identity].source} is of the same run.")
        else:
            chosen[identity] = result
    return sorted(chosen.values(), key=lambda r: r.seed), left


def _same_episodes(one: EvalResult, other: EvalResult) -> bool:
    """The same numbers of the same policy, without a burst, in two files, of which one has a burst besides."""
    names = ("env_steps", "episodes", "eval_seeds", "reach", "saturation")
    return (one.burst is None) != (other.burst is None) and all(getattr(one, n) == getattr(other, n) for n in names)


def _records(collection: Collection) -> Iterator[tuple[EvalRecord, str]]:
    for run in collection.runs:
        yield from ((record, run.label) for record in run.evals)
    yield from ((record, _label(record.about)) for record in collection.loose_evals)


def _label(about: dict[str, Any]) -> str:
    method = str(about.get("method", ""))
    return f"{method} (physics {about['physics']})" if names_physics(about) else method


def _unfit(record: EvalRecord) -> str:
    content = record.content
    if (version := content.get("schema_version", SCHEMA_VERSION)) != SCHEMA_VERSION:
        return f"schema_version {version!r}, and this version reads {SCHEMA_VERSION}"
    if "tried" in content:
        return "a sweep, whose burst was chosen by its result"
    if content.get("burst_inside"):
        return "of an exported policy with a burst inside, which has no result without it"
    if (physics := content.get("physics", "brax")) != record.about.get("physics", "brax"):
        return f"stepped by {physics}, unlike the run itself"
    if content.get("stochastic"):
        return "with actions drawn at random, unlike the paper's deployment"
    return ""


def _result(record: EvalRecord, label: str) -> EvalResult:
    content, burst = record.content, record.content.get("burst")
    plain = content["without_burst"] if burst else content
    trained, evaluated = _text(record.about["env"]), _text(content["env"])
    return EvalResult(
        environment=trained if trained == evaluated else f"{trained} on {evaluated}",
        method=label or _text(record.about["method"]),
        seed=int(record.about["seed"]),
        burst=(int(burst[0]), int(burst[1])) if burst else None,
        reach=_percent(plain, "success_once"),
        reach_with_burst=_percent(content, "success_once") if burst else math.nan,
        saturation=_percent(plain, "saturation"),
        env_steps=int(record.about.get("env_steps") or 0),
        episodes=int(content["episodes"]),
        eval_seeds=tuple(int(part["seed"]) for part in content["seeds"]),
        source=str(record.path),
    )


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a name is {name!r}")
    return name


def _percent(content: dict[str, Any], measure: str) -> float:
    """Over all episodes of all evaluation seeds; JSON has null for nan."""
    shares = [math.nan if part[measure] is None else float(part[measure]) for part in content["seeds"]]
    if not shares:
        raise ValueError("it has no episodes")
    return 100.0 * float(np.mean(shares))
