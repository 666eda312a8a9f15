"""A job on cores of its own: how many decides how XLA computes, and so the bits of a run.

Each core has a file, and a process that computes on it holds the file's lock: the operating system lets go of it
however the process ends. So jobs of several grids, and of several launchers on one machine, do not meet on one core.
"""

import fcntl
import os
import tempfile
from pathlib import Path

_HELD: list[int] = []  # descriptors, for as long as this process lives


def pin(count: int) -> tuple[int, ...] | None:
    """Keep this process on so many of its cores. Before JAX starts. -> which, or None where nothing is to be done"""
    if not hasattr(os, "sched_setaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    if count >= len(allowed):
        return None
    chosen = _claim(allowed, count)
    if len(chosen) < count:  # more jobs than cores: somebody must share
        shift = os.getpid() % len(allowed)
        rest = [core for core in allowed[shift:] + allowed[:shift] if core not in chosen]
        chosen += rest[: count - len(chosen)]
    os.sched_setaffinity(0, chosen)
    return tuple(sorted(chosen))


def _claim(allowed: list[int], count: int) -> list[int]:
    """Cores that nobody holds, at most `count`; none where their files cannot be had."""
    folder = Path(tempfile.gettempdir()) / f"dcp-cores-{os.getuid()}"
    claimed: list[int] = []
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            return []
        for core in allowed:
            if len(claimed) == count:
                break
            descriptor = os.open(folder / str(core), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                continue
            _HELD.append(descriptor)
            claimed.append(core)
    except OSError:
        pass
    return claimed
