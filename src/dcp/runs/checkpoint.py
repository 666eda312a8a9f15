"""Save and load whole runs as checkpoints: arrays by Orbax, the rest as JSON. Neither can hold code.

    checkpoints/000000140_00003/     after 140 unrolls and 3 evaluations
      state/                         the arrays, by Orbax
      checkpoint.json                what is not an array
      SHA256SUMS                     of all of the above; `sha256sum -c SHA256SUMS` checks them too

A checkpoint is complete or does not exist, and the newest two are kept. While one is written or removed its name ends
in `.draft`, which nothing reads.
"""

import errno
import hashlib
import json
import logging
import os
import re
import shutil
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from platform import python_version
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from msgspec import Meta, Struct

from dcp import hosts
from dcp.algorithm import RunState
from dcp.components import shown
from dcp.config import Config, Settings
from dcp.devices import cores
from dcp.errors import UserError
from dcp.run_folder import CHECKPOINTS_DIR
from dcp.runs.multihost import broadcast, pieces
from dcp.validation import MEGABYTE, Count, FormatError, Name, checked, read_json

Row = dict[str, float]
CHECKPOINT_SCHEMA_VERSION = 1
STATE_DIR, RECORD_FILE, SUMS_FILE = "state", "checkpoint.json", "SHA256SUMS"
KEPT = 2
UNSPLIT = "off"  # the value of split_batches before config.json stored it
PACKAGES = ("dcp", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "brax", "mujoco", "numpy")
# A change of these may change rounding: libraries, and the processor with its number of cores.
_DECIDE_BITS = {"jax", "jaxlib", "dcp", "flax", "optax", "brax", "mujoco", "device", "processor", "cores", "hosts"}
_MAY_CHANGE = {"steps", "num_evals"}  # a run may be trained longer
_DRAFT = ".draft"
_NAME = re.compile(r"\d{9}_\d{5}")
_ROOM = 200_000  # bytes for checkpoint.json, SHA256SUMS and what Orbax adds


class _Record(Struct):
    """Hold what is not an array: the content of checkpoint.json."""

    env_steps: Count
    unrolls: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    rows: list[dict[Name, float]]
    metrics: list[dict[Name, float]]
    diverged: Count
    seconds: Annotated[float, Meta(ge=0, le=1e12)]
    arrays: dict[Name, Name]  # name -> type and shape
    config: dict[str, Any]
    versions: dict[str, str]
    machine: dict[str, str]


class DamagedError(Exception):
    """Report that a checkpoint is not what was written. The message says how that was found."""


@dataclass
class Moment:
    """Hold all that a run needs to resume between two unrolls, besides its arrays (the `RunState`)."""

    unrolls: int = 0  # RunState.unrolls, as a number on the host
    rows: list[Row] = field(default_factory=list)  # of metrics.csv, one per evaluation
    metrics: list[Row] = field(default_factory=list)  # one per iteration since the last evaluation
    diverged: int = 0  # episodes that had diverged by the last evaluation
    seconds: float = 0.0  # of work so far, in all processes that took part


class Saver:
    """Write checkpoints in the background; training continues as soon as the arrays are copied.

    An error while writing is raised at the next call. Without a folder, as on every host but the first, `save` only
    helps to gather the arrays.
    """

    def __init__(self, folder: Path | None, config: Config):
        self.folder, self._config = folder, config
        self.last: int | None = None  # environment steps at the newest complete checkpoint
        self._copies: dict[str, np.ndarray] = {}  # reused, because new memory costs more than copying
        self._thread = ThreadPoolExecutor(1, "dcp-checkpoint")
        self._writing: Future[None] | None = None
        if folder is not None:
            self._thread.submit(_orbax)  # importing Orbax takes a second; do it while the programs compile

    def save(self, run: RunState, moment: Moment) -> None:
        self.wait()
        arrays = self._copied(run)
        if self.folder is None:
            self.last = moment.unrolls * self._config.env_steps_per_unroll
            return
        record = _record(moment, self._config, arrays)
        draft = new_draft(self.folder, moment.unrolls, len(moment.rows))
        require_room(draft, sum(array.nbytes for array in arrays.values()))
        self._writing = self._thread.submit(self._write, draft, arrays, record)

    def check(self) -> None:
        """Raise the error of the background thread, if there was one."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def close(self) -> None:
        """Finish without raising, however the run ended."""
        self._thread.shutdown()  # waits for a write in progress
        if self.folder is not None:
            remove_drafts(self.folder)

    def _copied(self, run: RunState) -> dict[str, np.ndarray]:
        """Return a host copy of every array by its path in the tree: the next unroll reuses the originals' memory."""
        for name, plain in _stored_arrays(run):
            if name not in self._copies and self.folder is not None:
                self._copies[name] = np.empty(plain.shape, plain.dtype)
            for where, what in pieces(plain):
                if self.folder is not None:
                    self._copies[name][where] = what
        return self._copies

    def _write(self, draft: Path, arrays: dict[str, np.ndarray], record: dict[str, Any]) -> None:
        ocp = _orbax()
        as_they_are = ocp.type_handlers.NumpyHandler(deepcopy_host_arrays=False)
        registry = ocp.type_handlers.create_type_handler_registry((np.ndarray, as_they_are))
        handler = ocp.PyTreeCheckpointHandler(  # floats hardly compress
            use_compression=False, type_handler_registry=registry, **_alone(ocp)
        )
        with ocp.Checkpointer(handler, **_alone(ocp)) as writer:
            writer.save((draft / STATE_DIR).absolute(), args=ocp.args.PyTreeSave(arrays))
        publish(draft, record)
        self.last = record["env_steps"]


def load_latest(
    folder: Path, config: Config, shapes: RunState, saver: Saver, note: Callable[[str], None]
) -> tuple[RunState, Moment] | None:
    """Load a run folder's newest checkpoint, or the one before it if that is damaged. -> None if there is none

    `note` is called with what the run's owner should know.
    """
    remove_drafts(folder / CHECKPOINTS_DIR)
    damaged = []
    for path in checkpoints(folder / CHECKPOINTS_DIR):
        try:
            found = load(path, config, shapes)
        except DamagedError as damage:
            note(f"The checkpoint {path} is damaged ({damage}): trying the one before it.")
            damaged.append(path)
            continue
        for path_of_damaged in damaged:  # it would block later checkpoints
            remove_checkpoint(path_of_damaged)
        record = read_record(path)
        saver.last = record["env_steps"]
        _compare(record["versions"], versions(), note)
        _compare(record["machine"], machine(), note)
        return found
    if damaged:
        raise UserError(
            f"every checkpoint of {folder} is damaged: restore one from a copy, or begin again with --overwrite"
        )
    note(f"{folder} has no checkpoint yet: beginning again.")
    return None


def load(path: Path, config: Config, shapes: RunState) -> tuple[RunState, Moment]:
    """Verify and load a checkpoint, with its arrays on the host, and send it to other hosts. `shapes`: of the run.

    Raises `DamagedError` if its bytes are not those that were written, `UserError` if it belongs to another run.
    """
    verify(path)
    record = _checked_record(path, read_record(path), config)
    wanted = {name: _describe(leaf) for name, leaf in _named(shapes) if leaf.size}
    for name in sorted(wanted.keys() | record["arrays"].keys()):
        if wanted.get(name) != record["arrays"].get(name):
            raise UserError(
                f"{path} holds {name} as {record['arrays'].get(name)}, where this version of dcp has "
                f"{wanted.get(name)}: continue the run with the dcp that began it ({record['versions'].get('dcp')})"
            )
    arrays = read_arrays(path / STATE_DIR, wanted)
    if {name: _describe(array) for name, array in arrays.items()} != wanted:
        raise UserError(f"{path} holds other arrays than its {RECORD_FILE} says: use a checkpoint that dcp wrote")
    if "unrolls" in arrays and int(arrays["unrolls"]) != record["unrolls"]:
        raise UserError(
            f"{path} has the arrays of {int(arrays['unrolls'])} unrolls, not of {record['unrolls']} as its "
            f"{RECORD_FILE} says: use a checkpoint that dcp wrote"
        )
    kept = {name: record[name] for name in ("unrolls", "rows", "metrics", "diverged", "seconds")}
    if hosts.count() > 1:
        hosts.send({"moment": kept})
        broadcast(arrays)
    return _from_arrays(arrays, shapes), Moment(**kept)


def receive(shapes: RunState) -> tuple[RunState | None, Moment]:
    """Return, on every host but the first, what host 0 has loaded; None if the run starts from the beginning."""
    kept = hosts.receive()["moment"]
    if kept is None:
        return None, Moment()
    plain = {name: jax.eval_shape(_plain, leaf) for name, leaf in _named(shapes) if leaf.size}
    arrays = {name: np.empty(leaf.shape, leaf.dtype) for name, leaf in plain.items()}
    broadcast(arrays)
    return _from_arrays(arrays, shapes), Moment(**kept)


def versions() -> dict[str, str]:
    """Return versions that affect a run's numbers, and others worth knowing: {"python": "3.11.7", "jax": ...}."""
    found = {"python": python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def machine() -> dict[str, str]:
    """Return what else affects rounding, besides versions: the processor and its cores."""
    kind = jax.devices()[0].device_kind
    return {"device": kind, "processor": _processor(), "cores": str(cores()), "hosts": str(hosts.count())}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, UnicodeDecodeError):
        return "unknown"


def _compare(then: dict[str, str], now: dict[str, str], note: Callable[[str], None]) -> None:
    changed = [f"{name} {then[name]} -> {now[name]}" for name in now if then.get(name, now[name]) != now[name]]
    changed = [change for change in changed if change.split()[0] in _DECIDE_BITS]
    if changed:
        note(f"Not what this run was trained with ({', '.join(changed)}): it resumes, but perhaps not bit for bit.")


# A checkpoint's folder.


def new_draft(folder: Path, unrolls: int, evaluations: int) -> Path:
    """Create an empty folder for a checkpoint. Names sort in the order of the run."""
    path = folder / f"{unrolls:09d}_{evaluations:05d}{_DRAFT}"
    shutil.rmtree(path, ignore_errors=True)
    folder.mkdir(exist_ok=True)  # not its parents: do not recreate a run that was moved away
    path.mkdir()
    return path


def require_room(path: Path, size: int) -> None:
    """Refuse before writing if the disk is too full. If it fills up later, the write itself fails."""
    if shutil.disk_usage(path).free < size + _ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def publish(draft: Path, record: dict[str, Any]) -> Path:
    """Add checkpoint.json and checksums to the draft, rename it, and remove all but the last two checkpoints."""
    _write_through(draft / RECORD_FILE, json.dumps(record).encode())
    _write_through(draft / SUMS_FILE, _sums(draft).encode())
    _sync_folder(draft)
    final = draft.with_name(draft.name.removesuffix(_DRAFT))
    if final.exists():  # the same moment was saved before
        remove_checkpoint(final)
    draft.rename(final)
    _sync_folder(final.parent)
    for old in checkpoints(final.parent)[KEPT:]:
        remove_checkpoint(old)
    return final


def checkpoints(folder: Path) -> list[Path]:
    """List the checkpoints in a folder, the newest first."""
    found = folder.iterdir() if folder.is_dir() else []  # a user may keep other files there
    return sorted((path for path in found if _NAME.fullmatch(path.name) and not path.is_symlink()), reverse=True)


def remove_checkpoint(path: Path) -> None:
    """Rename the checkpoint to a draft and remove it, so that a partly removed one does not look damaged."""
    doomed = path.with_name(f"{path.name}.old{_DRAFT}")
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def remove_drafts(folder: Path) -> None:
    """Remove drafts of a process that ended while it wrote. Only the owner of the run's lock may call this."""
    for path in folder.glob(f"*{_DRAFT}"):
        shutil.rmtree(path, ignore_errors=True)


def verify(path: Path) -> None:
    """Raise `DamagedError` unless every byte is as it was written, no file is missing and none was added."""
    try:
        stored, found = (path / SUMS_FILE).read_bytes(), _sums(path).encode()
    except FileNotFoundError as error:
        raise DamagedError(f"{error.filename} is missing") from error
    except OSError as error:  # cannot be read, which is not damage
        raise UserError(f"cannot read {error.filename} ({error.strerror}): repair that, or move {path} away") from error
    if stored == found:
        return
    try:
        lines = stored.decode().splitlines()
    except UnicodeDecodeError:
        raise DamagedError(f"{SUMS_FILE} is damaged") from None
    changed = sorted({line.split("  ", 1)[-1] for line in set(lines) ^ set(found.decode().splitlines())})
    raise DamagedError(f"the checksum of {changed[0][:200]} does not fit" if changed else f"{SUMS_FILE} is damaged")


def read_record(path: Path) -> dict[str, Any]:
    """Read checkpoint.json. Types are checked for the current version; `load` refuses other versions."""
    try:
        record = read_json(path / RECORD_FILE, most=1024 * MEGABYTE)
    except (OSError, ValueError) as error:
        raise DamagedError(f"{RECORD_FILE} cannot be read: {error}") from error
    if not isinstance(record, dict):
        raise DamagedError(f"{RECORD_FILE} holds no object")
    if record.get("schema_version") == CHECKPOINT_SCHEMA_VERSION:
        try:
            checked(record, _Record)
        except FormatError as error:
            raise UserError(
                f"{path / RECORD_FILE} is not what dcp wrote ({error}): use a checkpoint that dcp wrote"
            ) from error
    return record


def read_arrays(path: Path, names: Iterable[str], among_others: bool = False) -> dict[str, np.ndarray]:
    """Read the arrays of these names. `among_others`: the checkpoint may hold others, which are skipped."""
    ocp = _orbax()
    plain = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**_alone(ocp)), **_alone(ocp)) as reader:
        try:
            part = {"item": dict.fromkeys(plain, 0), "partial_restore": True} if among_others else {}
            return reader.restore(path.absolute(), args=ocp.args.PyTreeRestore(restore_args=plain, **part))
        except Exception as error:  # Orbax's and TensorStore's errors share no class
            raise DamagedError(f"its arrays cannot be read: {' '.join(str(error).split())[:200]}") from error


POOL = "acting/command/pool"  # the name of the command's array


def read_pool(folder: Path) -> np.ndarray | None:
    """Return the pool [P, G] of a run folder's newest readable checkpoint; None if there is none."""
    for path in checkpoints(folder / CHECKPOINTS_DIR):
        try:
            if POOL in read_record(path).get("arrays", {}):
                return read_arrays(path / STATE_DIR, [POOL], among_others=True)[POOL]
        except DamagedError:
            continue
    return None


def _sums(folder: Path) -> str:
    """Return the checksums in the format of `sha256sum`."""
    entries = sorted(folder.rglob("*"))
    for entry in entries:
        if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            raise DamagedError(f"{entry.relative_to(folder)} is neither a file nor a folder")
    files = [entry for entry in entries if entry.is_file() and entry != folder / SUMS_FILE]
    return "".join(f"{_digest(file)}  {file.relative_to(folder).as_posix()}\n" for file in files)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_through(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """Flush a folder to disk, because a file's name is stored in its folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# What a checkpoint holds.


def _record(moment: Moment, config: Config, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        "schema_version": CHECKPOINT_SCHEMA_VERSION,
        "env_steps": moment.unrolls * config.env_steps_per_unroll,
        **asdict(moment),
        "arrays": {name: _describe(array) for name, array in arrays.items()},
        "config": asdict(config),
        "versions": versions(),
        "machine": machine(),
    }


def _checked_record(path: Path, record: dict[str, Any], config: Config) -> dict[str, Any]:
    """Return the record if its version can be read and it belongs to this run; refuse it otherwise."""
    version = record.get("schema_version")
    if type(version) is not int or version != CHECKPOINT_SCHEMA_VERSION:
        remedy = "upgrade dcp" if isinstance(version, int) and version > CHECKPOINT_SCHEMA_VERSION else "train again"
        raise UserError(f"{path} has schema_version {shown(version)}, not {CHECKPOINT_SCHEMA_VERSION}: {remedy}")
    before = {**asdict(Settings()), "split_batches": UNSPLIT}  # values for fields that were added later
    ours, theirs = asdict(config), {**before, **record["config"]}
    for name in sorted(ours.keys() - _MAY_CHANGE):
        if theirs[name] != ours[name]:
            raise UserError(
                f"{path} was written with {name} {shown(theirs[name])}, but the run's config.json has "
                f"{shown(ours[name])}: restore config.json"
            )
    if wrong := _disagreement(record, config):
        raise UserError(f"{path / RECORD_FILE} contradicts itself ({wrong}): use a checkpoint that dcp wrote")
    return record


def _disagreement(record: dict[str, Any], config: Config) -> str | None:
    """Return a sentence if counters disagree with each other or with the plan, else None."""
    unrolls, rows, metrics, steps = record["unrolls"], record["rows"], record["metrics"], config.env_steps_per_unroll
    if unrolls > config.num_unrolls or record["env_steps"] != unrolls * steps:
        return f"{unrolls} unrolls of {config.num_unrolls} are not {record['env_steps']} steps"
    if len({frozenset(row) for row in rows}) > 1 or len({frozenset(row) for row in metrics}) > 1:
        return "rows of different columns"
    at = [row.get("env_steps", -1) / steps for row in rows]  # unrolls at each evaluation
    first = config.num_prefill_unrolls
    if any(before >= after for before, after in pairwise([first, *at])) or (at and at[-1] > unrolls):
        return "evaluations at steps that do not increase, or beyond its own"
    since = max(0, unrolls - (at[-1] if at else first))
    if len(metrics) != since:
        return f"metrics of {len(metrics)} iterations since the last evaluation, not of {since:g}"
    return None


def require_planned(moment: Moment, config: Config, points: list[int], folder: Path) -> None:
    """Refuse a checkpoint whose number of evaluations does not match its unrolls: the run would never end.
    `points`: the iterations done at each evaluation."""
    done = moment.unrolls - config.num_prefill_unrolls
    if not bisect_left(points, done) <= len(moment.rows) <= bisect_right(points, done):
        raise UserError(
            f"the checkpoint of {folder} has {len(moment.rows)} evaluations after {moment.unrolls} unrolls, which its "
            "config does not plan: use a checkpoint that dcp wrote"
        )


def _stored_arrays(run: RunState) -> Iterator[tuple[str, jax.Array]]:
    """Yield the named arrays that a checkpoint stores: all but empty ones, which Orbax refuses."""
    return ((name, _plain(leaf)) for name, leaf in _named(run) if leaf.size)


def _from_arrays(arrays: dict[str, np.ndarray], shapes: RunState) -> RunState:
    def leaf(path: Any, abstract: Any) -> Any:
        if not abstract.size:
            return jnp.zeros(abstract.shape, abstract.dtype)
        array = arrays[_name(path)]
        if jnp.issubdtype(abstract.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(jnp.array(array))
        return array

    return jax.tree_util.tree_map_with_path(leaf, shapes)


def _named(run: RunState) -> list[tuple[str, Any]]:
    return [(_name(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(run)]


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _plain(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _describe(leaf: Any) -> str:
    """Return a leaf's type and shape as text: float32[512,29]."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return f"{np.dtype(leaf.dtype).name}[{','.join(map(str, leaf.shape))}]"


def _alone(ocp: Any) -> dict[str, Any]:
    """Return options that let this host read and write alone: otherwise Orbax makes all hosts wait."""
    if hosts.count() == 1:
        return {}
    here = hosts.index()
    return {"multiprocessing_options": ocp.options.MultiprocessingOptions(here, {here}, "dcp")}


def _quiet(unraisable: Any) -> None:
    """Drop TensorStore's late reports about a read that has already failed and been reported."""
    if str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


def _orbax() -> Any:
    import orbax.checkpoint

    if sys.unraisablehook is not _quiet:
        sys.unraisablehook = _quiet
    logging.getLogger("absl").setLevel(logging.CRITICAL)  # the caller reports the same errors
    return orbax.checkpoint
