"""Write and read the results of `dcp eval`: intervals over episodes, and the files in the run's folder."""

import csv
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dcp.errors import UserError
from dcp.evaluation import Measures
from dcp.lab.result_tables import writing_to
from dcp.lab.run_collection import EVALS_DIR, Collection, EvalRecord, Key, names_physics
from dcp.lab.statistics import Interval, episode_interval, paired_success_interval, success_interval, weighted_interval
from dcp.lab.trial import Trial
from dcp.policies.policy_file import write_whole

SCHEMA_VERSION = 1
_EPISODE_COLUMNS = (
    "success",
    "first_reach",
    "time_near_goal",
    "start_distance",
    "final_distance",
    "saturation",
    "action_flips",
)

Burst = tuple[int, int]  # P, L


def estimates(measures: Measures) -> dict[str, Interval]:
    return {
        "success_once": success_interval(measures.success),
        "time_near_goal": episode_interval(measures.time_near_goal),
        "first_reach": episode_interval(measures.first_reach[measures.success]),  # of the episodes that reached
        "final_distance": episode_interval(measures.final_distance),
        "saturation": weighted_interval(measures.saturation, measures.steps, 0.0, 1.0),
        "action_flips": weighted_interval(measures.action_flips, np.maximum(measures.steps - 1, 0), 0.0, 1.0),
    }


class Paired(NamedTuple):
    """Compare two evaluations on the same episodes: success and time near goal, `after` minus `before`."""

    success_once: Interval
    time_near_goal: Interval
    wins: int  # reached only after
    ties: int
    losses: int  # reached only before


def paired(before: Measures, after: Measures) -> Paired:
    if not np.array_equal(before.start, after.start):
        raise UserError("two evaluations on different episodes cannot be paired: use the same seeds and environment")
    gain = after.success.astype(int) - before.success.astype(int)  # [N]
    wins, losses = int(np.sum(gain > 0)), int(np.sum(gain < 0))
    gained_time = episode_interval(after.time_near_goal - before.time_near_goal)
    gained = paired_success_interval(wins, losses, len(gain))
    return Paired(gained, gained_time, wins, len(gain) - wins - losses, losses)


def as_json(trial: Trial, about: dict[str, Any]) -> dict[str, Any]:
    """Return everything but the single episodes, which are in the CSV file."""
    measures = trial.all
    return {
        "schema_version": SCHEMA_VERSION,
        **about,
        "env": trial.spec.name,
        "episode_length": trial.episode_length,
        "episodes": len(measures.success),
        "diverged_episodes": int(measures.diverged.sum()),
        "summary": {name: estimate.as_json() for name, estimate in estimates(measures).items()},
        "seeds": [
            {"seed": seed, "goal_set_sha256": fingerprint, **one.summary()}
            for seed, fingerprint, one in zip(trial.seeds, trial.goal_sets(), trial.by_seed, strict=True)
        ],
        "distance": trial.distances[0],
        "by_distance": [part._asdict() for part in trial.by_distance()],
        "cumulative_reach": [round(float(share), 6) for share in measures.cumulative_reach],
    }


def as_csv(trial: Trial) -> str:
    """Return one row per episode."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    goal = [f"goal_{i}" for i in range(trial.spec.goal_size)]
    writer.writerow(["seed", "episode", "distance", *_EPISODE_COLUMNS, "diverged", "steps", *goal])
    along, at = trial.distances[1], 0
    for seed, m in zip(trial.seeds, trial.by_seed, strict=True):
        goals = trial.spec.split(m.start)[1]  # [N, G]
        for i in range(len(m.success)):
            numbers = [_plain(getattr(m, name)[i]) for name in (*_EPISODE_COLUMNS, "diverged", "steps")]
            writer.writerow([seed, i, _plain(along[at]), *numbers, *(_plain(x) for x in goals[i])])
            at += 1
    return lines.getvalue()


def _plain(value: Any) -> int | float:
    """Return a bool as 0 or 1, and a float32 as the shortest text that reads back as the same number."""
    return int(value) if np.issubdtype(type(value), np.integer) or isinstance(value, np.bool_) else float(str(value))


def write(folder: Path, name: str, content: dict[str, Any], episodes: str) -> list[Path]:
    """Write <folder>/evals/<name>.json and .csv, each completely or not at all."""
    paths = [folder / EVALS_DIR / f"{name}{ending}" for ending in (".json", ".csv")]
    with writing_to(folder / EVALS_DIR):
        write_whole(paths[0], json.dumps(finite(content), indent=1, allow_nan=False).encode())
        write_whole(paths[1], episodes.encode())
    return paths


def finite(tree: Any) -> Any:
    """Replace what is not known by null: JSON has no nan and no infinity."""
    if isinstance(tree, dict):
        return {name: finite(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [finite(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


@dataclass(frozen=True)
class EvalResult:
    """Results of one trained policy on one set of episodes, in percent, without and perhaps also with a burst."""

    environment: str
    method: str
    seed: int  # the policy's: the paper's three seeds are three trained policies
    burst: Burst | None
    reach: float  # episodes that were near their goal at least once
    reach_with_burst: float  # nan without a burst
    saturation: float  # action components beyond 0.95, without a burst
    env_steps: int  # of the policy's training
    episodes: int
    eval_seeds: tuple[int, ...]
    source: str

    @property
    def key(self) -> Key:
        return self.environment, self.method

    @property
    def gain(self) -> float:
        """Return the gain; exactly 0 for a tie, because equal shares may differ by rounding."""
        return round(self.reach_with_burst - self.reach, 9)


def eval_results(collection: Collection) -> tuple[list[EvalResult], list[str]]:
    """Return the results, and a sentence for each file that could not be used."""
    records = [(record, run.label) for run in collection.runs for record in run.evals]
    records += [(record, _label(record.about)) for record in collection.loose_evals]
    found, unused = [], []
    for record, label in records:
        if reason := _unfit(record):
            unused.append(f"{record.path}: {reason}.")
            continue
        try:
            found.append(_result(record, label))
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            unused.append(f"{record.path}: not a result that this version can read ({error!r}).")
    return found, unused


def one_each(results: list[EvalResult]) -> tuple[list[EvalResult], list[str]]:
    """Choose one per run: of its latest policy, with most episodes, then the first by file name.

    -> those, and a sentence for each that was left out
    """
    chosen: dict[tuple[str, str, int], EvalResult] = {}
    left = []
    for result in sorted(results, key=lambda r: (-r.env_steps, -r.episodes, r.source)):
        identity = (*result.key, result.seed)
        if identity in chosen and _same_episodes(result, chosen[identity]):
            continue  # a file with a burst, and one of the same episodes without
        if identity in chosen:
            left.append(f"{result.source}: left out, because {chosen[identity].source} belongs to the same run.")
        else:
            chosen[identity] = result
    return sorted(chosen.values(), key=lambda r: r.seed), left


def _same_episodes(one: EvalResult, other: EvalResult) -> bool:
    """Return whether two files hold the same numbers without a burst, and one of them also a burst."""
    names = ("env_steps", "episodes", "eval_seeds", "reach", "saturation")
    return (one.burst is None) != (other.burst is None) and all(getattr(one, n) == getattr(other, n) for n in names)


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
    """Return percent over all episodes of all evaluation seeds. JSON has null for nan."""
    shares = [math.nan if part[measure] is None else float(part[measure]) for part in content["seeds"]]
    if not shares:
        raise ValueError("it has no episodes")
    return 100.0 * float(np.mean(shares))
