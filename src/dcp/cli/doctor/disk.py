"""Where runs and compiled programs go: is there room, and can it be written?"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dcp.cli.doctor.check import Check, ProbeError
from dcp.cli.doctor.machine import LARGE, NOT_KNOWN, gigabytes, look

TRIAL = 2**20  # bytes
OFF = "off"


def runs(folder: Path) -> Iterator[Check]:
    """A run cannot do without. One at the paper's settings takes what its checkpoints take."""
    try:
        free = _write(folder)
    except OSError as error:
        yield Check("disk for runs", "problem", _refusal(folder, error), "Choose another --runs-dir.")
        return
    found, need = f"{gigabytes(free)} free for {folder.absolute()}", 0
    with suppress(ProbeError):  # JAX has its own row
        need = look()["checkpoints"]
        found += f"; a run's checkpoints take up to {gigabytes(need)} at the paper's settings ({LARGE})"
    if free >= need:
        yield Check("disk for runs", "ok", found)
    else:
        yield Check("disk for runs", "missing", found, "For such a run make room, or choose another --runs-dir.")


def cache() -> Iterator[Check]:
    """It only saves time, so a run goes on without."""
    try:
        seen = look()
    except ProbeError:
        yield Check("disk for cache", "missing", NOT_KNOWN, "See JAX.")
        return
    folder = Path(seen["cache"] or seen["cache_wanted"]).expanduser()
    if str(folder) == OFF:
        yield Check("disk for cache", "ok", "off, as $DCP_CACHE_DIR says: every run compiles anew")
        return
    try:
        yield Check("disk for cache", "ok", f"{gigabytes(_write(folder))} free for {folder}")
    except OSError as error:
        advice = "Every run compiles anew until $DCP_CACHE_DIR names a folder that can be written."
        yield Check("disk for cache", "missing", _refusal(folder, error), advice)


def _write(folder: Path) -> int:
    """Write a little where the folder is or would be made, and take it away. -> free bytes"""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    with tempfile.TemporaryFile(dir=place) as file:
        file.write(bytes(TRIAL))
        file.flush()
        os.fsync(file.fileno())
    return shutil.disk_usage(place).free


def _refusal(folder: Path, error: OSError) -> str:
    return f"{folder.absolute()} cannot be written ({error.strerror})"
