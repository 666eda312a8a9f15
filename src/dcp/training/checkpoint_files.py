"""A checkpoint as a folder: whole or not there, with a checksum of every byte, and two of them kept.

    checkpoints/000000140_00003/     after 140 unrolls and 3 evaluations
      state/                         the arrays, by Orbax
      checkpoint.json                what is no array
      SHA256SUMS                     of all of the above; `sha256sum -c SHA256SUMS` can judge it too

What is being written or removed is called `*.draft`; nobody reads that.
"""

import errno
import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from dcp.errors import UserError

CHECKPOINTS_DIR = "checkpoints"
STATE_DIR, RECORD_FILE, SUMS_FILE = "state", "checkpoint.json", "SHA256SUMS"
KEPT = 2
_DRAFT = ".draft"
_NAME = re.compile(r"\d{9}_\d{5}")
_ROOM = 200_000  # bytes: for the record, the sums and what Orbax adds


class DamagedError(Exception):
    """This checkpoint is not what was written. The message says how that was seen."""


def name(unrolls: int, evaluations: int) -> str:
    """In the order of names, later ones are later in the run."""
    return f"{unrolls:09d}_{evaluations:05d}"


def draft(folder: Path, name: str) -> Path:
    """A fresh folder to write a checkpoint in."""
    path = folder / f"{name}{_DRAFT}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def require_room(path: Path, size: int) -> None:
    """Better now than half-way. What else fills the disk meanwhile is seen by whoever writes."""
    if shutil.disk_usage(path).free < size + _ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def publish(draft: Path, record: dict[str, Any]) -> Path:
    """Give the draft its record and its checksums, then its name; what is older than the last two goes."""
    _write_through(draft / RECORD_FILE, json.dumps(record).encode())
    _write_through(draft / SUMS_FILE, _sums(draft).encode())
    _sync_folder(draft)
    final = draft.with_name(draft.name.removesuffix(_DRAFT))
    if final.exists():  # the same moment, saved again
        remove(final)
    draft.rename(final)
    _sync_folder(final.parent)
    for old in checkpoints(final.parent)[KEPT:]:
        remove(old)
    return final


def checkpoints(folder: Path) -> list[Path]:
    """The newest first."""
    found = folder.iterdir() if folder.is_dir() else []  # a user may keep other things there
    return sorted((path for path in found if _NAME.fullmatch(path.name) and not path.is_symlink()), reverse=True)


def remove_drafts(folder: Path) -> None:
    """What a process left behind that ended while it wrote. Only for the owner of the run's lock."""
    for path in folder.glob(f"*{_DRAFT}"):
        shutil.rmtree(path, ignore_errors=True)


def verify(path: Path) -> None:
    """Raise `DamagedError` unless every byte is the one that was written, no file is missing and none is new."""
    try:
        stored, found = (path / SUMS_FILE).read_bytes(), _sums(path).encode()
    except FileNotFoundError as error:
        raise DamagedError(f"{error.filename} is missing") from error
    except OSError as error:  # it may be as good as ever
        raise UserError(f"cannot read {error.filename} ({error.strerror}): mend that, or move {path} away") from error
    if stored == found:
        return
    try:
        lines = stored.decode().splitlines()
    except UnicodeDecodeError:
        raise DamagedError(f"{SUMS_FILE} is damaged") from None
    changed = sorted({line.split("  ", 1)[-1] for line in set(lines) ^ set(found.decode().splitlines())})
    raise DamagedError(f"the checksum of {changed[0]} does not fit" if changed else f"{SUMS_FILE} is damaged")


def read_record(path: Path) -> dict[str, Any]:
    try:
        return json.loads((path / RECORD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(f"{RECORD_FILE} cannot be read: {error}") from error


def _sums(folder: Path) -> str:
    """As `sha256sum` writes them."""
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
    """A name is on the disk only once its folder is."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """By way of a draft: a half-removed checkpoint must not be taken for a damaged one."""
    doomed = path.with_name(f"{path.name}.old{_DRAFT}")
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
