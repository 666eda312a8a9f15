"""Write checkpoints of whole runs: the arrays of a `RunState`, and a `HostState` with the rest.

    checkpoints/000000140_00003/     after 140 unrolls and 3 evaluations
      state.npz                      the arrays by name, uncompressed; NumPy reads them without running code
      checkpoint.json                what is not an array
      SHA256SUMS                     of both; `sha256sum -c SHA256SUMS` checks them too

A checkpoint is complete or absent, and the newest two are kept. While one is written or removed its name ends in
`.draft`, which nothing reads. `dcp.runs.run_status` reads them.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dcp import __version__
from dcp.algorithm import RunState
from dcp.config import Config, cores
from dcp.errors import UserError
from dcp.loop import HostState
from dcp.machine.devices import flags_besides_ours
from dcp.types import named_arrays

CHECKPOINT_SCHEMA_VERSION = 2
ARRAYS_FILE, RECORD_FILE, SUMS_FILE = "state.npz", "checkpoint.json", "SHA256SUMS"
KEPT = 2
_DRAFT = ".draft"
_NAME = re.compile(r"\d{9}_\d{5}")
_ROOM = 200_000  # bytes for checkpoint.json, SHA256SUMS and the arrays' headers
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "mujoco", "numpy")
# JAX's own settings that change random numbers or rounding.
NUMERICS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_threefry_partitionable")
NUMERICS += ("jax_numpy_dtype_promotion",)


class DamagedError(Exception):
    """Report that a checkpoint is not what was written. The message says how that was found."""


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

    def save(self, run: RunState, host: HostState) -> None:
        self.wait()
        arrays = self._copied(run)
        record = {
            "schema_version": CHECKPOINT_SCHEMA_VERSION,
            "env_steps": host.unrolls * self._config.env_steps_per_unroll,
            **asdict(host),
            "arrays": {name: type_and_shape(array) for name, array in arrays.items()},
            "config": asdict(self._config),
            "versions": versions(),
            "machine": machine(),
        }
        draft = new_draft(self.folder, host.unrolls, len(host.rows))
        size = sum(array.nbytes for array in arrays.values()) + _ROOM
        if shutil.disk_usage(draft).free < size:  # if the disk fills up later, the write itself fails
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(draft))
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
        for name, leaf in stored_arrays(run).items():
            plain = jax.random.key_data(leaf) if _is_key(leaf) else leaf
            if name not in self._copies:
                self._copies[name] = np.empty(plain.shape, plain.dtype)
            for shard in plain.addressable_shards:
                if shard.replica_id == 0:
                    self._copies[name][shard.index] = shard.data
        return self._copies

    def _write(self, draft: Path, arrays: dict[str, np.ndarray], record: dict[str, Any]) -> None:
        write_arrays(draft, arrays)
        publish(draft, record)
        self.last = record["env_steps"]


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
        self._cadence, self._planned = cadence, evaluations  # evaluations in the whole run
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
        return len(host.rows) == self._planned

    def saved(self) -> None:
        self._saved = time.monotonic()


# What a checkpoint says of where it was written.


def versions() -> dict[str, str]:
    """Return versions that affect a run's numbers, and others worth knowing: {"python": "3.11.7", "jax": ...}."""
    installed = {"python": python_version(), "dcp": source_version()}
    for package in _PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            installed[package] = "not installed"
    return installed


@cache
def source_version() -> str:
    """Return dcp's version, with the commit if it runs from a git checkout: 0.1.0+9bb0880, with -dirty if edited."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return __version__
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{commit}"


def machine() -> dict[str, str]:
    """Return what else affects rounding, besides versions: the processor, its cores, and settings of XLA and JAX."""
    return {
        "device": jax.devices()[0].device_kind,
        "processor": _processor(),
        "cores": str(cores()),
        "xla_flags": flags_besides_ours(os.environ.get("XLA_FLAGS", "")),
        "libtpu_init_args": os.environ.get("LIBTPU_INIT_ARGS", ""),
        **{name: str(jax.config.values.get(name)) for name in NUMERICS},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, UnicodeDecodeError):
        return "unknown"


# The arrays and the files.


def stored_arrays(run: RunState) -> dict[str, Any]:
    """Return the arrays of a run by name, such as replay/rows/state, without empty ones."""
    return {name: leaf for name, leaf in named_arrays(run).items() if leaf.size}


def type_and_shape(leaf: Any) -> str:
    """Return a leaf's type and shape as text: float32[512,29]."""
    if _is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return f"{np.dtype(leaf.dtype).name}[{','.join(map(str, leaf.shape))}]"


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def new_draft(folder: Path, unrolls: int, evaluations: int) -> Path:
    """Create an empty folder for a checkpoint. Names sort in the order of the run."""
    path = folder / f"{unrolls:09d}_{evaluations:05d}{_DRAFT}"
    shutil.rmtree(path, ignore_errors=True)
    folder.mkdir(exist_ok=True)  # not its parents: do not recreate a run that was moved away
    path.mkdir()
    return path


def write_arrays(draft: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays by name, uncompressed: floats hardly compress."""
    with (draft / ARRAYS_FILE).open("wb") as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
        file.flush()
        os.fsync(file.fileno())


def publish(draft: Path, record: dict[str, Any]) -> Path:
    """Add checkpoint.json and checksums to the draft, rename it, and remove all but the last two checkpoints."""
    _write_through(draft / RECORD_FILE, json.dumps(record).encode())
    _write_through(draft / SUMS_FILE, sums(draft).encode())
    _sync_folder(draft)
    final = draft.with_name(draft.name.removesuffix(_DRAFT))
    if final.exists():  # the same state was saved before
        remove_checkpoint(final)
    draft.rename(final)
    _sync_folder(final.parent)
    for old in checkpoints(final.parent)[KEPT:]:
        remove_checkpoint(old)
    return final


def checkpoints(folder: Path) -> list[Path]:
    """List the checkpoints in a folder, the newest first."""
    entries = folder.iterdir() if folder.is_dir() else []  # a user may keep other files there
    return sorted((path for path in entries if _NAME.fullmatch(path.name) and not path.is_symlink()), reverse=True)


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


def sums(folder: Path) -> str:
    """Return the checksums of a checkpoint's files in the format of `sha256sum`."""
    lines = []
    for entry in sorted(folder.rglob("*")):
        name = entry.relative_to(folder).as_posix()
        if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            raise DamagedError(f"{name} is neither a file nor a folder")
        if entry.is_file() and name != SUMS_FILE:
            with entry.open("rb") as file:
                lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n")
    return "".join(lines)


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
