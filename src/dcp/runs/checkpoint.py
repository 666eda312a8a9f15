"""Save and load whole runs as checkpoints: the arrays of a `RunState`, and a `HostState` with the rest."""

import subprocess
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from platform import python_version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dcp import __version__
from dcp.algorithm import RunState
from dcp.config import Config, Settings, cores
from dcp.errors import UserError, shown
from dcp.files.run_folder import CHECKPOINTS_DIR
from dcp.loop import HostState
from dcp.runs.checkpoint_files import (
    CHECKPOINT_SCHEMA_VERSION,
    RECORD_FILE,
    STATE_DIR,
    DamagedError,
    checkpoints,
    load_orbax,
    new_draft,
    publish,
    read_arrays,
    read_record,
    remove_checkpoint,
    remove_drafts,
    require_room,
    verify,
    write_arrays,
)

UNSPLIT = "off"  # the value of split_batches before config.json stored it
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "brax", "mujoco", "numpy")
# A change of these may change rounding: libraries, and the processor with its number of cores.
_DECIDE_BITS = {"jax", "jaxlib", "dcp", "flax", "optax", "brax", "mujoco", "device", "processor", "cores"}
_MAY_CHANGE = {"steps", "num_evals"}  # a run may be trained longer


class Saver:
    """Write checkpoints in the background; training continues as soon as the arrays are copied.

    An error while writing is raised at the next call. `owned`: whether the folder is still this process's.
    """

    def __init__(self, folder: Path, config: Config, owned: Callable[[], bool] = lambda: True):
        self.folder, self._config, self._owned = folder, config, owned
        self.last: int | None = None  # environment steps at the newest complete checkpoint
        self._copies: dict[str, np.ndarray] = {}  # reused, because new memory costs more than copying
        self._thread = ThreadPoolExecutor(1, "dcp-checkpoint")
        self._writing: Future[None] | None = None
        self._thread.submit(load_orbax)  # importing Orbax takes a second; do it while the programs compile

    def save(self, run: RunState, host: HostState) -> None:
        self.wait()
        arrays = self._copied(run)
        record = _record(host, self._config, arrays)
        draft = new_draft(self.folder, host.unrolls, len(host.rows))
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
        if self._owned():
            remove_drafts(self.folder)

    def _copied(self, run: RunState) -> dict[str, np.ndarray]:
        """Return a host copy of every array by its path in the tree: the next unroll reuses the originals' memory."""
        for name, plain in _stored_arrays(run):
            if name not in self._copies:
                self._copies[name] = np.empty(plain.shape, plain.dtype)
            for shard in plain.addressable_shards:
                if shard.replica_id == 0:
                    self._copies[name][shard.index] = shard.data
        return self._copies

    def _write(self, draft: Path, arrays: dict[str, np.ndarray], record: dict[str, Any]) -> None:
        write_arrays(draft / STATE_DIR, arrays)
        publish(draft, record)
        self.last = record["env_steps"]


def load_latest(
    folder: Path, config: Config, shapes: RunState, saver: Saver, note: Callable[[str], None]
) -> tuple[RunState, HostState] | None:
    """Load a run folder's newest checkpoint, or the one before it if that is damaged. -> None if there is none

    `note` is called with what the run's owner should know.
    """
    remove_drafts(folder / CHECKPOINTS_DIR)
    damaged = []
    for path in checkpoints(folder / CHECKPOINTS_DIR):
        try:
            resumed = load(path, config, shapes)
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
        return resumed
    if damaged:
        raise UserError(
            f"every checkpoint of {folder} is damaged: restore one from a copy, or begin again with --overwrite"
        )
    note(f"{folder} has no checkpoint yet: beginning again.")
    return None


def load(path: Path, config: Config, shapes: RunState) -> tuple[RunState, HostState]:
    """Verify and load a checkpoint, with its arrays on the host. `shapes`: of the run.

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
    return _from_arrays(arrays, shapes), HostState(**kept)


def versions() -> dict[str, str]:
    """Return versions that affect a run's numbers, and others worth knowing: {"python": "3.11.7", "jax": ...}."""
    found = {"python": python_version(), "dcp": source_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


@cache
def source_version() -> str:
    """Return dcp's version, with the commit if it runs from a git checkout: 0.1.0+9bb0880, with -dirty if edited."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return __version__
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{told.stdout.strip()}"


def machine() -> dict[str, str]:
    """Return what else affects rounding, besides versions: the processor and its cores."""
    kind = jax.devices()[0].device_kind
    return {"device": kind, "processor": _processor(), "cores": str(cores())}


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


@dataclass(frozen=True)
class Cadence:
    """Set how often to checkpoint: every `evals` evaluations and every `minutes` minutes. 0 turns one off."""

    evals: int = 1
    minutes: float = 15.0

    def __post_init__(self) -> None:
        if self.evals < 0 or not 0 <= self.minutes < float("inf"):
            raise UserError("checkpoint-evals and checkpoint-minutes must be 0 or more (0: not by this clock)")


class CheckpointTimer:
    """Say when a checkpoint is due."""

    def __init__(self, cadence: Cadence, evaluations: int):
        self._cadence, self._evaluations = cadence, evaluations  # evaluations: in the whole run
        self._saved = time.monotonic()

    def is_due(self, host: HostState) -> bool:
        cadence, evaluations = self._cadence, len(host.rows)
        if not cadence.evals and not cadence.minutes:
            return False
        just_evaluated = bool(host.rows) and not host.metrics
        by_evaluations = just_evaluated and cadence.evals > 0 and evaluations % cadence.evals == 0
        by_minutes = cadence.minutes > 0 and time.monotonic() - self._saved >= 60 * cadence.minutes
        return by_evaluations or by_minutes or self.is_last(host)

    def is_last(self, host: HostState) -> bool:
        """Tell whether the run is complete."""
        return len(host.rows) == self._evaluations

    def saved(self) -> None:
        self._saved = time.monotonic()


# What a checkpoint holds.


def _record(host: HostState, config: Config, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        "schema_version": CHECKPOINT_SCHEMA_VERSION,
        "env_steps": host.unrolls * config.env_steps_per_unroll,
        **asdict(host),
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


def require_planned(host: HostState, config: Config, points: list[int], folder: Path) -> None:
    """Refuse a checkpoint whose number of evaluations does not match its unrolls: the run would never end.
    `points`: the iterations done at each evaluation."""
    done = host.unrolls - config.num_prefill_unrolls
    if not bisect_left(points, done) <= len(host.rows) <= bisect_right(points, done):
        raise UserError(
            f"the checkpoint of {folder} has {len(host.rows)} evaluations after {host.unrolls} unrolls, which its "
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
