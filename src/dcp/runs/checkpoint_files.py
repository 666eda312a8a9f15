"""The files of checkpoints: complete or absent, with checksums. Arrays are by Orbax, the rest is JSON.

    checkpoints/000000140_00003/     after 140 unrolls and 3 evaluations
      state/                         the arrays, by Orbax
      checkpoint.json                what is not an array
      SHA256SUMS                     of all of the above; `sha256sum -c SHA256SUMS` checks them too

The newest two are kept. While a checkpoint is written or removed its name ends in `.draft`, which nothing reads.
"""

import errno
import hashlib
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from dcp.errors import UserError
from dcp.files.run_folder import CHECKPOINTS_DIR
from dcp.files.validation import MEGABYTE, Count, FormatError, Name, checked, read_json

CHECKPOINT_SCHEMA_VERSION = 1
STATE_DIR, RECORD_FILE, SUMS_FILE = "state", "checkpoint.json", "SHA256SUMS"
KEPT = 2
POOL = "acting/command/pool"  # the name of the command's array
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


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays by name, uncompressed: floats hardly compress."""
    ocp = load_orbax()
    as_they_are = ocp.type_handlers.NumpyHandler(deepcopy_host_arrays=False)
    registry = ocp.type_handlers.create_type_handler_registry((np.ndarray, as_they_are))
    handler = ocp.PyTreeCheckpointHandler(use_compression=False, type_handler_registry=registry)
    with ocp.Checkpointer(handler) as writer:
        writer.save(path.absolute(), args=ocp.args.PyTreeSave(arrays))


def read_arrays(path: Path, names: Iterable[str], among_others: bool = False) -> dict[str, np.ndarray]:
    """Read the arrays of these names. `among_others`: the checkpoint may hold others, which are skipped."""
    ocp = load_orbax()
    plain = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        try:
            part = {"item": dict.fromkeys(plain, 0), "partial_restore": True} if among_others else {}
            return reader.restore(path.absolute(), args=ocp.args.PyTreeRestore(restore_args=plain, **part))
        except Exception as error:  # Orbax's and TensorStore's errors share no class
            raise DamagedError(f"its arrays cannot be read: {' '.join(str(error).split())[:200]}") from error


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


def _quiet(unraisable: Any) -> None:
    """Drop TensorStore's late reports about a read that has already failed and been reported."""
    if str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


def load_orbax() -> Any:
    import orbax.checkpoint

    if sys.unraisablehook is not _quiet:
        sys.unraisablehook = _quiet
    logging.getLogger("absl").setLevel(logging.CRITICAL)  # the caller reports the same errors
    return orbax.checkpoint
