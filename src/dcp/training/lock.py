"""One writer a run folder. The operating system holds the lock, so it ends with its owner, however that ends."""

import fcntl
import os
import socket
from pathlib import Path

from dcp.errors import RunError, UserError

LOCK_FILE = ".lock"


class FolderLock:
    def __init__(self, folder: Path):
        self._path = folder / LOCK_FILE
        self._descriptor: int | None = self._acquire()

    def _acquire(self) -> int:
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
                os.close(descriptor)
                raise UserError(
                    f"{self._path.parent} is in use by {owner}: wait for it, stop it, or choose another --runs-dir"
                ) from None
            except OSError as error:
                os.close(descriptor)
                raise UserError(
                    f"{self._path} cannot be locked ({error.strerror}): choose a --runs-dir on a file system with locks"
                ) from None
            if self._is_current(descriptor):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
                return descriptor
            os.close(descriptor)  # its owner removed it meanwhile: that was a lock on nothing

    def require(self) -> None:
        """Stop where the folder was moved or removed, or the lock taken away: this process must not write there."""
        if self._descriptor is not None and not self._is_current(self._descriptor):
            raise RunError(f"{self._path.parent} was moved or removed in the middle of its run: resume it where it is")

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        if self._descriptor is None:
            return
        self._path.unlink(missing_ok=True)  # while it is still ours
        os.close(self._descriptor)
        self._descriptor = None


def owner(folder: Path) -> str | None:
    """Who writes to this folder now: "process 12 on host", or None. Shares the lock for an instant to find out."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
    except OSError:
        return None  # whoever wants to write will be told
    finally:
        os.close(descriptor)
    return None
