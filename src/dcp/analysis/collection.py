"""Any set of run folders as one thing: found, read, and put in groups of seeds that may be averaged."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dcp.analysis import paper_values
from dcp.analysis.run_reading import EvalRecord, Run, read_evals, read_run
from dcp.analysis.trials import EVALS_DIR
from dcp.config import Settings
from dcp.errors import UserError
from dcp.methods.table import METHODS
from dcp.run_folder import CONFIG_FILE, located

_METHODS = tuple(dict.fromkeys((*paper_values.METHODS, *METHODS)))  # the paper's order, then the table's
# Runs that differ in these alone are seeds of one and the same thing, of other lengths perhaps.
_NOT_A_VARIANT = (
    "env",
    "method",
    "seed",
    "steps",
    "eval_env",
    "num_evals",
    "eval_episodes",
    "devices",
    "split_batches",
)
_MUJOCO_IS_THE_PAPERS = ("ant_push",)
_DEFAULTS = {field.name: field.default for field in fields(Settings)}

Key = tuple[str, str]  # environment, label of the method


@dataclass(frozen=True)
class Collection:
    """Every run that was found, good or not; `groups` holds what statistics may be made of."""

    runs: tuple[Run, ...]
    loose_evals: tuple[EvalRecord, ...] = ()  # results of `dcp eval --out`, or of the zoo: in no run folder
    unread: tuple[str, ...] = ()  # a sentence for each of these that cannot be read

    @cached_property
    def groups(self) -> dict[Key, tuple[Run, ...]]:
        """(environment, method) -> its runs that have an evaluation, one a seed, in the order of the seeds."""
        found: dict[Key, list[Run]] = {}
        for run in self.runs:
            if run.num_evaluations and not run.is_damaged and run not in self.repeated:
                found.setdefault((run.env, run.label), []).append(run)
        order = [(env, method) for env in in_order(e for e, _ in found) for method in in_order(m for _, m in found)]
        return {key: tuple(sorted(found[key], key=lambda run: run.seed)) for key in order if key in found}

    @cached_property
    def repeated(self) -> list[Run]:
        """Runs of a seed that another run already stands for: the longer one counts, the other would count it twice."""
        seen: set[tuple[str, str, int]] = set()
        left = []
        for run in sorted(self.runs, key=lambda run: -run.num_evaluations):  # stable: ties in the order of the paths
            if run.is_damaged or not run.num_evaluations:
                continue
            identity = (run.env, run.label, run.seed)
            if identity in seen:
                left.append(run)
            seen.add(identity)
        return left

    @property
    def environments(self) -> list[str]:
        return list(dict.fromkeys(env for env, _ in self.groups))

    @property
    def methods(self) -> list[str]:
        return in_order(method for _, method in self.groups)

    def of(self, environment: str, method: str) -> tuple[Run, ...]:
        """Its seeds; none if there are none."""
        return self.groups.get((environment, method), ())

    def missing_seeds(self, environment: str, method: str) -> list[int]:
        """Seeds that another method of this environment has and this one lacks."""
        there = {run.seed for (env, _), runs in self.groups.items() if env == environment for run in runs}
        return sorted(there - {run.seed for run in self.of(environment, method)})

    @cached_property
    def remarks(self) -> list[str]:
        """A sentence for everything that is not whole: never a reason to fill anything in."""
        said = [f"{run.folder}: {run.state}." for run in self.runs if run.state != "finished"]
        said += [f"{run.folder}: {run.remark}." for run in self.runs if run.remark]
        said += self.unread
        said += [f"{run.folder}: left out, another run of {run.label} has seed {run.seed}." for run in self.repeated]
        for env, method in self.groups:
            if missing := self.missing_seeds(env, method):
                said.append(
                    f"{env}, {method}: no run of seed {', '.join(map(str, missing))}, which other methods have."
                )
        return said


def collect(paths: Sequence[str | Path]) -> Collection:
    """Run folders, or folders above them at any depth. -> what is there, in the order of the paths"""
    if not paths:
        raise UserError("no runs to read: name run folders, or a folder above them such as runs/")
    folders: dict[Path, Path] = {}  # resolved -> as named: a folder named twice counts once
    loose: dict[Path, Path] = {}
    for given in paths:
        start = located(given)
        if not start.is_dir():
            raise UserError(f"there is no folder {start}: name run folders, or a folder above them such as runs/")
        for folder in _walk(start):
            into = folders if (folder / CONFIG_FILE).is_file() else loose
            into.setdefault(folder.resolve(), folder)
    if not folders and not loose:
        raise UserError(f"no run below {', '.join(map(str, paths))}: a run folder has a {CONFIG_FILE} (dcp train)")
    runs = [read_run(folder) for folder in folders.values()]
    evals, unread = [], []
    for folder in loose.values():
        records, bad = read_evals(folder / EVALS_DIR, None)
        evals += records
        unread += [f"{folder}: {why}." for why in bad]
    return Collection(tuple(_labelled(runs)), tuple(evals), tuple(unread))


def _walk(start: Path) -> Iterator[Path]:
    """Run folders and folders of loose results. What lies inside a run (checkpoints, a run set aside) is its own."""
    for folder, inner, files in os.walk(start):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        is_run = CONFIG_FILE in files
        if is_run or EVALS_DIR in inner:
            yield Path(folder)
        if is_run:
            inner.clear()


def _labelled(runs: list[Run]) -> list[Run]:
    """Runs of one method whose settings differ are told apart by the settings that do, never averaged together."""
    values: dict[Key, dict[str, set[str]]] = {}
    for run in runs:
        into = values.setdefault((run.env, run.method), {})
        for name, value in run.config.items():
            into.setdefault(name, set()).add(repr(value))
    labelled = []
    for run in runs:
        vary = [name for name, seen in values[run.env, run.method].items() if len(seen) > 1]
        if names_physics(run.config) and "physics" not in vary:
            vary.append("physics")
        apart = [name for name in vary if name not in _NOT_A_VARIANT and run.config.get(name) != _DEFAULTS.get(name)]
        said = ", ".join(f"{name} {run.config.get(name)}" for name in apart)
        labelled.append(replace(run, label=f"{run.method} ({said})" if said else run.method))
    return labelled


def names_physics(about: Mapping[str, Any]) -> bool:
    """Another physics makes another task of it: a label says so also where every run has it."""
    return about.get("physics", "brax") != "brax" and about.get("env") not in _MUJOCO_IS_THE_PAPERS


def in_order(names: Iterable[str]) -> list[str]:
    """Those of the paper first, in its order; variants after their method; the rest by name."""
    order = (*paper_values.ENVIRONMENTS, *_METHODS)

    def rank(name: str) -> tuple[int, str]:
        plain = name.split(" ")[0]
        return (order.index(plain) if plain in order else len(order), name)

    return sorted(dict.fromkeys(names), key=rank)
