"""What `dcp eval` found, with intervals over episodes, as a table's numbers and as files in the run's folder."""

import csv
import io
import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dcp.errors import UserError
from dcp.evaluation.measures import Measures
from dcp.evaluation.trial import Trial
from dcp.policies.policy_file import write_whole
from dcp.statistics import Interval, episode_interval, paired_success_interval, success_interval

SCHEMA_VERSION = 1
EVALS_DIR = "evals"


def estimates(measures: Measures) -> dict[str, Interval]:
    return {
        "success_once": success_interval(measures.success),
        "time_near_goal": episode_interval(measures.time_near_goal),
        "first_reach": episode_interval(measures.first_reach[measures.success]),  # of the episodes that reached
        "final_distance": episode_interval(measures.final_distance),
        "saturation": episode_interval(measures.saturation, 0.0, 1.0),
    }


class Paired(NamedTuple):
    """The same episodes twice, `after` against `before`: differences of success and of time near goal."""

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
    return Paired(
        paired_success_interval(wins, losses, len(gain)), gained_time, wins, len(gain) - wins - losses, losses
    )


def as_json(trial: Trial, about: dict[str, Any]) -> dict[str, Any]:
    """Everything but the single episodes, which are in the CSV file."""
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
    """One row an episode."""
    lines = io.StringIO()
    columns = ("success", "first_reach", "time_near_goal", "start_distance", "final_distance", "saturation")
    writer = csv.writer(lines, lineterminator="\n")
    goal = [f"goal_{i}" for i in range(trial.spec.goal_size)]
    writer.writerow(["seed", "episode", "distance", *columns, "diverged", "steps", *goal])
    along, at = trial.distances[1], 0
    for seed, m in zip(trial.seeds, trial.by_seed, strict=True):
        goals = trial.spec.split(m.start)[1]  # [N, G]
        for i in range(len(m.success)):
            numbers = [_plain(getattr(m, name)[i]) for name in (*columns, "diverged", "steps")]
            writer.writerow([seed, i, _plain(along[at]), *numbers, *(_plain(x) for x in goals[i])])
            at += 1
    return lines.getvalue()


def _plain(value: Any) -> int | float:
    """A bool as 0 or 1; float32 as the shortest number that is it."""
    return int(value) if np.issubdtype(type(value), np.integer) or isinstance(value, np.bool_) else float(str(value))


def write(folder: Path, name: str, content: dict[str, Any], episodes: str) -> list[Path]:
    """<folder>/evals/<name>.json and .csv, each whole or not at all."""
    paths = [folder / EVALS_DIR / f"{name}{ending}" for ending in (".json", ".csv")]
    with _told(folder):
        write_whole(paths[0], json.dumps(finite(content), indent=1, allow_nan=False).encode())
        write_whole(paths[1], episodes.encode())
    return paths


def require_room(folder: Path) -> None:
    """Before minutes of work: that results can be written there."""
    with _told(folder):
        (folder / EVALS_DIR).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder / EVALS_DIR):
            pass


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write to {folder / EVALS_DIR} ({error.strerror}): choose a folder by --out") from error


def finite(tree: Any) -> Any:
    """JSON has no nan: what is not known is null."""
    if isinstance(tree, dict):
        return {name: finite(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [finite(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree
