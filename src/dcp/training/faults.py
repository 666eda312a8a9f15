"""What ended a run, in one sentence, where it was neither its user nor a bug."""

import errno
import os

from dcp.training.folder import RunFolder
from dcp.training.health import NotFiniteError

_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def explained(error: BaseException, folder: RunFolder, last: int | None) -> str | None:
    """-> None for what is to be seen as it is. `last`: environment steps at the newest checkpoint."""
    kept = f"the checkpoint at {last:,} steps is kept" if last is not None else "there was no checkpoint yet"
    if isinstance(error, NotFiniteError):
        path = folder.save_fault({**error.seen(), "last_checkpoint": last})
        return f"{error}: see {path}; {kept}; try a lower learning rate or a larger batch in a new run"
    if reason := _writing_failed(error):
        return f"cannot write to {folder.path} ({reason}): {kept}; make room and run `dcp train --resume {folder.path}`"
    return None


def _writing_failed(error: BaseException) -> str | None:
    """The system's reason. Orbax's errors come from C++, where the reason is a part of the text."""
    if isinstance(error, OSError) and error.errno in _WRITING:
        return os.strerror(error.errno)
    if not isinstance(error, Exception):
        return None
    reasons = [os.strerror(number) for number in _WRITING]
    return next((reason for reason in reasons if reason in str(error)), None)
