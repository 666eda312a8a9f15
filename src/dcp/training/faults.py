"""What ended a run, in one sentence, where it was neither its user nor a bug."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from dcp import hosts
from dcp.training.folder import RunFolder
from dcp.training.health import NotFiniteError
from dcp.training.progress import resume_command

_LOST_HOST = ("Gloo", "NCCL", "coordination service", "Connection closed")  # in JAX's words
_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def explained(error: BaseException, folder: RunFolder, last: int | None) -> str | None:
    """-> None for what is to be seen as it is. `last`: environment steps at the newest checkpoint."""
    kept = f"the checkpoint at {last:,} steps is kept" if last is not None else "there was no checkpoint yet"
    if isinstance(error, NotFiniteError):
        see = ""
        with suppress(OSError):  # on a full disk the sentence must do
            see = f"see {folder.save_fault({**error.seen(), 'last_checkpoint': last})}; "
        return f"{error}: {see}{kept}; try a lower learning rate or a larger batch in a new run"
    if reason := _writing_failed(error, folder.path):
        return f"cannot write to {folder.path} ({reason}): {kept}; mend that and run `{resume_command(folder.path)}`"
    if hosts.count() > 1 and any(sign in str(error) for sign in _LOST_HOST):
        return f"another host has ended ({_first_line(error)}): {kept}; start all again with --resume {folder.path}"
    return None


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:200]


def _writing_failed(error: BaseException, folder: Path) -> str | None:
    """The system's reason. Orbax's errors come from C++, where the reason is a part of the text."""
    if isinstance(error, OSError) and error.errno is not None:
        ours = str(error.filename or "").startswith((str(folder), str(folder.absolute())))
        if ours or error.errno in _WRITING:
            return os.strerror(error.errno)
    if not isinstance(error, Exception):
        return None
    reasons = [os.strerror(number) for number in _WRITING]
    return next((reason for reason in reasons if reason in str(error)), None)
