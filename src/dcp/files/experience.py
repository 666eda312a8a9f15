"""Read experience from a file: OGBench's NPZ, or a Minari data set such as `dcp record` writes. None of it is run."""

import hashlib
import os
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dcp.errors import UserError, install_hint, one_line, shown
from dcp.files.validation import open_regular
from dcp.types import EnvSpec, Transition

FORMS = (
    "OGBench's NPZ (observations, actions, terminals), or a Minari data set: its id, its folder or its main_data.hdf5"
)
_MAIN = "main_data.hdf5"
GOALS = ("achieved_goal", "desired_goal")


@dataclass(frozen=True)
class Experience:
    """Hold a file's episodes one after the other, checked against an environment."""

    rows: Transition  # NumPy arrays [R, ...]; an episode's last state, after which nobody acts, is left out
    sha256: str


class _Episode(NamedTuple):
    """Hold one episode of T steps as a file has it."""

    observation: np.ndarray  # [T, ...] or more rows
    action: np.ndarray  # [T, A]
    achieved: np.ndarray | None  # where the file has them apart
    desired: np.ndarray | None
    terminated: bool


def located(path: str) -> Path | None:
    """Return the file that holds the experience; None if this names none."""
    root = Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")
    for folder in (Path(path), root / path):
        for file in (folder, folder / _MAIN, folder / "data" / _MAIN):
            with suppress(OSError, ValueError):  # no name of a file
                if file.is_file():
                    return file
    return None


def is_experience(path: str) -> bool:
    """Tell whether this names a file with actions, by its form alone."""
    file = located(path)
    if file is None or not zipfile.is_zipfile(file):
        return file is not None and file.suffix in (".hdf5", ".h5")
    with zipfile.ZipFile(file) as archive:
        return {"observations.npy", "actions.npy"} <= set(archive.namelist())


def read_experience(path: str, spec: EnvSpec) -> Experience:
    """Return the file's rows, or raise UserError with one sentence on what is wrong."""
    file = located(path)
    if file is None:
        raise UserError(f"there is no data {shown(path)}: give {FORMS}")
    status = file.stat()
    return _read(file, status.st_mtime_ns, status.st_size, spec)


@lru_cache(maxsize=2)  # checks and the run read the same file
def _read(file: Path, changed: int, size: int, spec: EnvSpec) -> Experience:
    is_npz = zipfile.is_zipfile(file)
    try:
        with open_regular(file) as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()  # pyright: ignore[reportArgumentType]
        parts = [_rows(episode, i, spec) for i, episode in enumerate((_of_npz if is_npz else _of_minari)(file))]
    except UserError as error:
        raise UserError(f"the data {shown(str(file))} {error}") from error
    except Exception as error:  # a damaged file: zip, NumPy and HDF5 raise many kinds
        raise UserError(f"cannot read the data {shown(str(file))} ({one_line(error)}): give {FORMS}") from error
    if not parts:
        raise UserError(f"the data {shown(str(file))} hold no episode: give at least one")
    return Experience(_joined(parts), sha256)


def _rows(episode: _Episode, number: int, spec: EnvSpec) -> Transition:
    """Return one episode in the form of our replay: [T, ...]"""
    steps = len(episode.action)
    state = np.asarray(episode.observation[:steps], np.float32).reshape(steps, -1)
    achieved = None if episode.achieved is None else np.reshape(episode.achieved[:steps], (steps, -1))
    if achieved is not None and state.shape[1] + spec.goal_size == spec.state_size:  # as in `gym:ID`
        state = np.concatenate([state, achieved], 1, dtype=np.float32)
    action = np.asarray(episode.action, np.float32).reshape(steps, -1)
    if (state.shape, action.shape) != ((steps, spec.state_size), (steps, spec.action_size)):
        raise UserError(
            f"have states of {state.shape[-1]} and actions of {action.shape[-1]} numbers, and {len(state)} states for "
            f"{steps} actions: {spec.name} has {spec.state_size} and {spec.action_size}"
        )
    if not (np.all(np.isfinite(state)) and np.all(np.abs(action) <= 1.001)):  # a comparison with NaN is False
        raise UserError("hold a NaN, an infinity or an action outside [-1, 1]: repair them")
    goal = np.broadcast_to(spec.achieved(state[-1:]), (steps, spec.goal_size))  # what it came to, if it was told none
    if episode.desired is not None:
        goal = np.asarray(episode.desired[:steps], np.float32).reshape(steps, -1)
    if goal.shape != (steps, spec.goal_size):
        raise UserError(f"have goals of {goal.shape[-1]} numbers: {spec.name} has {spec.goal_size}")
    fell = np.zeros(steps, bool)
    fell[-1] = episode.terminated
    return Transition(state, np.clip(action, -1.0, 1.0), goal, np.full(steps, number, np.int32), fell)  # pyright: ignore


def _of_npz(file: Path) -> Iterator[_Episode]:
    """Yield the episodes. OGBench marks each one's last row, which is a time limit's doing; the last may lack it."""
    with np.load(file, allow_pickle=False) as arrays:
        missing = [name for name in ("observations", "actions", "terminals") if name not in arrays.files]
        if missing:
            raise UserError(f"lack {missing[0]}: give {FORMS}")
        observations, actions, ends = (arrays[name] for name in ("observations", "actions", "terminals"))
    if len(observations) != len(actions) or len(ends) != len(actions):
        raise UserError(f"have {len(observations)} observations, {len(actions)} actions and {len(ends)} terminals")
    cuts = np.flatnonzero(ends) + 1
    for start, end in zip([0, *cuts], [*cuts, len(actions)], strict=True):
        if end > start:
            yield _Episode(observations[start:end], actions[start:end], None, None, False)


def _of_minari(file: Path) -> Iterator[_Episode]:
    try:
        import h5py
    except ImportError as error:
        raise UserError(f"need h5py: {install_hint('minari')}") from error

    def array(group: Any, name: str) -> np.ndarray:
        """Return an array that lies in this file: a link could lead to any other."""
        if not isinstance(group.get(name, getlink=True), h5py.HardLink) or group[name].external:
            raise UserError(f"have no array {name} of their own: give {FORMS}")
        return group[name][:]

    with h5py.File(file, "r") as content:
        names = [name for name in map(str, content) if name.removeprefix("episode_").isdecimal()]
        for name in sorted(names, key=lambda name: int(name.removeprefix("episode_"))):
            episode: Any = content[name]
            actions, seen = array(episode, "actions"), episode["observations"]
            ended = bool(np.any(array(episode, "terminations")))
            if not len(actions):
                continue
            if isinstance(seen, h5py.Dataset):
                yield _Episode(array(episode, "observations"), actions, None, None, ended)
            else:
                achieved, desired = (array(seen, part) if part in seen else None for part in GOALS)
                yield _Episode(array(seen, "observation"), actions, achieved, desired, ended)


def at_least(rows: Transition, number: int) -> Transition:
    """Return the rows, with their episodes repeated under other ids until there are so many."""
    have, last = len(rows.state), int(rows.episode_id[-1]) + 1
    copies = [rows._replace(episode_id=rows.episode_id + i * last) for i in range(-(-number // have))]
    return _joined(copies)


def _joined(parts: list[Transition]) -> Transition:
    arrays: list[Any] = [np.concatenate(leaves) for leaves in zip(*parts, strict=True)]
    return Transition(*arrays)
