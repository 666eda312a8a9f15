"""Find run folders, read them, and group them by seeds that may be averaged.

Nothing is filled in, nothing is interpolated, and nothing is written.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dcp.config import Config, Settings, fields_where
from dcp.errors import UserError, is_text, printable
from dcp.files.run_folder import CONFIG_FILE, METRICS_FILE, PLOTS_DIR, located, read_config_file, read_metrics
from dcp.files.validation import read_json
from dcp.lab import paper_values
from dcp.lab.paper_values import MUJOCO_IS_THE_PAPERS, REACH
from dcp.lab.statistics import Interval, t_interval
from dcp.methods.table import METHODS

EVALS_DIR, VIDEOS_DIR = "evals", "videos"
FEWEST_SEEDS = 3  # for an interval, and for a winner
FINISHED, NO_EVALUATION, DAMAGED = "finished", "no evaluation", "damaged"
_VIDEO_ENDINGS, _PLOT_ENDINGS = (".mp4", ".gif", ".html"), (".png", ".gif", ".svg", ".pdf")
_EXPECTED = ("env_steps", "success_once", "time_near_goal")
_METHODS = tuple(dict.fromkeys((*paper_values.METHODS, *METHODS)))  # the paper's order, then the table's
# Runs that differ only in these are seeds of the same configuration, perhaps of different lengths.
_NOT_A_VARIANT = ("env", "method", *fields_where(compared=False))
_OF_A_METHOD = fields_where(of_method=True)
_DEFAULTS = {field.name: field.default for field in fields(Settings)}

Key = tuple[str, str]  # environment, label of the method


class Metric(NamedTuple):
    label: str
    factor: float  # shown value = stored value times this
    top: float | None  # the largest possible value

    @property
    def name(self) -> str:
        """Return the label without its unit."""
        return self.label.split(" (")[0]


METRICS = {
    "success_once": Metric("Success at least once (%)", 100.0, 100.0),
    "time_near_goal": Metric("Time near goal (steps)", 1.0, None),
}


@dataclass(frozen=True)
class EvalRecord:
    """A file that `dcp eval` wrote."""

    path: Path
    content: dict[str, Any]

    @property
    def about(self) -> dict[str, Any]:
        """Return env, method, seed and env_steps of the policy, as far as the file has them."""
        about = self.content.get("about")
        return about if isinstance(about, dict) else {}


@dataclass(frozen=True, eq=False)  # compared by identity, because arrays have no single truth value
class Run:
    folder: Path
    config: dict[str, Any] = field(default_factory=dict)  # empty if it cannot be read
    metrics: dict[str, np.ndarray] = field(default_factory=dict)  # column -> a number per evaluation, nan as it is
    state: str = FINISHED  # or: running or stopped at x of y steps; no evaluation; damaged: why
    evals: tuple[EvalRecord, ...] = ()
    videos: tuple[Path, ...] = ()
    plots: tuple[Path, ...] = ()
    label: str = ""  # the method, with settings in which it differs from other runs of the collection
    remark: str = ""  # what a reader must know besides the state

    @property
    def env(self) -> str:
        """Return the environment it was trained on, and the one it was evaluated on if that differs."""
        trained, evaluated = str(self.config.get("env", "")), self.config.get("eval_env")
        return trained if evaluated in (None, trained) else f"{trained} on {evaluated}"

    @property
    def method(self) -> str:
        return str(self.config.get("method", ""))

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def budget(self) -> int:
        """Return the environment steps that were asked for."""
        return int(self.config["steps"])

    @property
    def num_evaluations(self) -> int:
        return len(self.metrics.get("env_steps", ()))

    @property
    def env_steps(self) -> float:
        """Return the environment steps at the last evaluation; 0 before the first."""
        return float(self.metrics["env_steps"][-1]) if self.num_evaluations else 0.0

    @property
    def episode_files(self) -> list[Path]:
        """Return its videos, and the GIF that training drew."""
        return [*self.videos, *(path for path in self.plots if path.name == "episode.gif")]

    @property
    def is_damaged(self) -> bool:
        return self.state.startswith(DAMAGED)


def read_run(folder: Path) -> Run:
    """Read one run folder. What is wrong with it becomes its state, so that one bad run does not stop the others."""
    evals, remarks = read_evals(folder / EVALS_DIR)
    videos, plots = _files(folder / VIDEOS_DIR, _VIDEO_ENDINGS), _files(folder / PLOTS_DIR, _PLOT_ENDINGS)
    run = Run(folder, evals=evals, videos=videos, plots=plots, remark="; ".join(remarks))
    try:
        stored = read_config_file(folder / CONFIG_FILE)["config"]
        run = replace(run, config=asdict(Config.from_dict(stored)))  # a missing field had its default
        metrics, torn = read_metrics(folder / METRICS_FILE) if (folder / METRICS_FILE).exists() else ({}, False)
        _require_columns(metrics)
    except UserError as error:
        return replace(run, state=f"{DAMAGED}: {error}")
    remarks += ["the last line of metrics.csv is incomplete and left out"] if torn else []
    for name in (name for name in _EXPECTED if name in metrics):
        if bad := int(np.sum(~np.isfinite(metrics[name]))):
            remarks.append(f"{name} is not finite in {bad} of {len(metrics[name])} evaluations")
    run = replace(run, metrics=metrics, remark="; ".join(remarks))
    if not run.num_evaluations:
        return replace(run, state=NO_EVALUATION)
    unfinished = f"running or stopped at {run.env_steps:,.0f} of {run.budget:,} steps"
    return replace(run, state=FINISHED if run.env_steps >= run.budget else unfinished)


def _require_columns(metrics: dict[str, np.ndarray]) -> None:
    """Refuse columns without steps that increase. A measure may be nan, but not the steps at which it was taken."""
    if not any(map(len, metrics.values())):
        return
    for column in _EXPECTED:
        if column not in metrics:
            raise UserError(f"{METRICS_FILE} lacks the column {column}")
    steps = metrics["env_steps"]
    if not np.isfinite(steps).all() or steps[0] < 0:
        raise UserError(f"{METRICS_FILE} has a row without a number of steps")
    if not np.all(np.diff(steps) > 0):
        raise UserError(f"{METRICS_FILE} has steps that do not increase from row to row")


def read_evals(folder: Path) -> tuple[tuple[EvalRecord, ...], list[str]]:
    """Return the results of `dcp eval` in a folder, and a sentence for each file that it did not write."""
    records, remarks = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            content = read_json(path)
            if not isinstance(content, dict) or not isinstance(content.get("seeds"), list):
                raise ValueError("it holds no result of dcp eval")
            records.append(EvalRecord(path, content))
        except (OSError, ValueError) as error:
            remarks.append(f"{EVALS_DIR}/{path.name} cannot be read ({error})")
    return tuple(records), remarks


def _files(folder: Path, endings: tuple[str, ...]) -> tuple[Path, ...]:
    files = folder.iterdir() if folder.is_dir() else ()
    return tuple(sorted(path for path in files if path.suffix in endings and path.is_file()))


@dataclass(frozen=True)
class Collection:
    """Hold every run, good or not; `groups` holds the runs that statistics may use."""

    runs: tuple[Run, ...]
    unread: tuple[str, ...] = ()  # a sentence for each folder that is left out

    @cached_property
    def groups(self) -> dict[Key, tuple[Run, ...]]:
        """Return (environment, method) -> its runs that have an evaluation, one per seed, in the order of the seeds."""
        groups: dict[Key, list[Run]] = {}
        for run in self.runs:
            if run.num_evaluations and not run.is_damaged and run not in self.repeated:
                groups.setdefault((run.env, run.label), []).append(run)
        order = [(env, method) for env in in_order(e for e, _ in groups) for method in in_order(m for _, m in groups)]
        return {key: tuple(sorted(groups[key], key=lambda run: run.seed)) for key in order if key in groups}

    @cached_property
    def repeated(self) -> list[Run]:
        """Return runs whose seed a longer run already covers: they would count it twice."""
        longest: dict[tuple[str, str, int], Run] = {}
        usable = [run for run in self.runs if run.num_evaluations and not run.is_damaged]
        longest_first = sorted(usable, key=lambda run: (-run.env_steps, -run.num_evaluations))  # ties: by path
        return [run for run in longest_first if longest.setdefault((run.env, run.label, run.seed), run) is not run]

    @property
    def environments(self) -> list[str]:
        return list(dict.fromkeys(env for env, _ in self.groups))

    @property
    def methods(self) -> list[str]:
        return in_order(method for _, method in self.groups)

    def of(self, environment: str, method: str) -> tuple[Run, ...]:
        """Return its runs, one per seed; empty if there are none."""
        return self.groups.get((environment, method), ())

    def missing_seeds(self, environment: str, method: str) -> list[int]:
        """Return the seeds that another method of this environment has and this one lacks."""
        seeds = {run.seed for (env, _), runs in self.groups.items() if env == environment for run in runs}
        return sorted(seeds - {run.seed for run in self.of(environment, method)})

    def settings_apart(self, environment: str) -> list[str]:
        """Return settings in which the methods of an environment differ and that neither method nor label names."""
        configs = {method: runs[0].config for (env, method), runs in self.groups.items() if env == environment}
        return [
            name
            for name in _DEFAULTS
            if name not in (*_NOT_A_VARIANT, *_OF_A_METHOD)
            and len({repr(config.get(name)) for config in configs.values()}) > 1
            and not any(f"{name} " in label for label in configs)
        ]

    @cached_property
    def apart_from_paper(self) -> dict[Key, list[str]]:
        """Return (environment, label) -> in what its runs differ from the paper's; if empty, they compare."""
        return {
            key: list(dict.fromkeys(reason for run in runs for reason in paper_values.settings_apart(run.config)))
            for key, runs in self.groups.items()
        }

    def like_the_paper(self, environment: str, label: str) -> str | None:
        """Return the paper's name of a group's method if its runs have the paper's settings."""
        apart = self.apart_from_paper.get((environment, label), ["no run"])
        return None if apart else self.of(environment, label)[0].method

    def apart_notes(self) -> list[str]:
        """Return a sentence for each group beside which the paper's values do not stand, although it has the method."""
        methods = {key: runs[0].method for key, runs in self.groups.items()}
        return paper_values.apart_notes(self.apart_from_paper, methods)

    def where(self, keep: Callable[[Run], bool]) -> "Collection":
        """Return a collection of these runs alone, labelled anew."""
        return Collection(tuple(_labelled([run for run in self.runs if keep(run)])))

    @cached_property
    def remarks(self) -> list[str]:
        """Return a sentence for everything that is missing or damaged. Nothing is ever filled in for it."""
        lines = [f"{run.folder}: {run.state}." for run in self.runs if run.state != FINISHED]
        lines += [f"{run.folder}: {run.remark}." for run in self.runs if run.remark]
        lines += self.unread
        lines += [f"{run.folder}: left out, another run of {run.label} has seed {run.seed}." for run in self.repeated]
        for env, method in self.groups:
            if missing := ", ".join(map(str, self.missing_seeds(env, method))):
                lines.append(f"{env}, {method}: no run of seed {missing}, which other methods have.")
        for env in self.environments:
            if names := ", ".join(self.settings_apart(env)):
                lines.append(f"{env}: the methods also differ in {names}, so a difference may be due to that.")
        return lines


def collect(paths: Sequence[str | Path]) -> Collection:
    """Read run folders, or folders above them at any depth, in the order of the paths."""
    if not paths:
        raise UserError("no runs to read: name run folders, or a folder above them such as runs/")
    folders: dict[Path, Path] = {}  # resolved -> as named: a folder named twice counts once
    unread: list[str] = []
    for path in paths:
        start = located(path)
        if not start.is_dir():
            raise UserError(f"there is no folder {start}: name run folders, or a folder above them such as runs/")
        for folder in _walk(start):
            if not is_text(str(folder)):
                unread.append(
                    f"{printable(str(folder))} is left out: its name has signs that cannot be shown; rename it."
                )
                continue
            folders.setdefault(folder.resolve(), folder)
    if not folders:
        if unread:
            raise UserError(unread[0].removesuffix("."))
        raise UserError(f"no run below {', '.join(map(str, paths))}: a run folder has a {CONFIG_FILE} (dcp train)")
    return Collection(tuple(_labelled([read_run(folder) for folder in folders.values()])), tuple(unread))


def _walk(start: Path) -> Iterator[Path]:
    """Find run folders. Folders inside a run, such as checkpoints, belong to it."""
    for folder, inner, files in os.walk(start):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if CONFIG_FILE in files:
            yield Path(folder)
            inner.clear()


def _labelled(runs: list[Run]) -> list[Run]:
    """Label runs of one method by the settings that differ: they are never averaged together."""
    values: dict[Key, dict[str, set[str]]] = {}
    for run in runs:
        into = values.setdefault((run.env, run.method), {})
        for name, value in run.config.items():
            into.setdefault(name, set()).add(repr(value))
    labelled = []
    for run in runs:
        vary = [name for name, seen in values[run.env, run.method].items() if len(seen) > 1]
        # Other physics are another task, even if every run has them.
        if run.config.get("physics", "brax") != "brax" and run.config["env"] not in MUJOCO_IS_THE_PAPERS:
            vary = list(dict.fromkeys([*vary, "physics"]))
        apart = [name for name in vary if name not in _NOT_A_VARIANT and run.config.get(name) != _DEFAULTS.get(name)]
        settings = ", ".join(f"{name} {run.config.get(name)}" for name in apart)
        labelled.append(replace(run, label=f"{run.method} ({settings})" if settings else run.method))
    return labelled


def in_order(names: Iterable[str]) -> list[str]:
    """Sort names: those of the paper first, in its order; variants after their method; the rest by name."""
    order = (*paper_values.ENVIRONMENTS, *_METHODS)

    def rank(name: str) -> tuple[int, str]:
        plain = name.split(" ")[0]
        return (order.index(plain) if plain in order else len(order), name)

    return sorted(dict.fromkeys(names), key=rank)


# Which evaluation of a run represents a number of environment steps.


def nearest(run: Run, steps: float) -> int | None:
    """Return the evaluation nearest to these steps, if it lies within a tenth of them and one evaluation interval.

    Because of the second condition, a run that is at 92M on its way to 100M is not quoted at 100M.
    """
    if not run.num_evaluations:
        return None
    points = np.asarray(run.metrics["env_steps"], float)
    at = int(np.argmin(np.abs(points - steps)))
    interval = np.max(np.diff(points, prepend=0.0))
    return at if abs(points[at] - steps) <= min(REACH * steps, interval) else None


def values_at(runs: Sequence[Run], metric: str, steps: float) -> dict[int, float]:
    """Return seed -> value as shown, for seeds with a near evaluation; nan if nan was measured."""
    places = [(run, nearest(run, steps)) for run in runs]
    factor = METRICS[metric].factor
    return {run.seed: float(factor * run.metrics[metric][at]) for run, at in places if at is not None}


def interval_at(runs: Sequence[Run], metric: str, steps: float) -> Interval | None:
    """Return the interval over the seeds with a near evaluation; None if there are none."""
    values = list(values_at(runs, metric, steps).values())
    return seeds_interval(values) if values else None


def seeds_interval(values: Sequence[float]) -> Interval:
    """Return Student's t interval; for fewer than three seeds their range, which says nothing about further seeds.

    With two seeds t is 12.7: an interval would be wider than anything that was measured.
    """
    if len(values) >= FEWEST_SEEDS:
        return t_interval(values)
    return Interval(float(np.mean(values)), min(values), max(values), count=len(values))


def common_end(runs: Sequence[Run]) -> float:
    """Return the last evaluation of the shortest run, at which all of them can be compared."""
    return min(run.env_steps for run in runs)
