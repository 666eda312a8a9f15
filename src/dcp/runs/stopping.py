"""Why a run ends before its end: signals, numbers that are not finite, full disks, hosts that are gone."""

import errno
import math
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from dcp import hosts
from dcp.learner import LearnerState
from dcp.runs.folder import RunFolder
from dcp.runs.run_status import resume_command
from dcp.types import Array


class Interrupted(KeyboardInterrupt):
    """Stopped by a signal. The folder holds what there was; without anything to keep there is none."""

    def __init__(self, folder: Path, evaluations: int, env_steps: int | None):
        super().__init__(f"stopped after {evaluations} evaluations")
        self.folder, self.evaluations = folder, evaluations
        self.env_steps = env_steps  # of the checkpoint that the run can go on from; None without one


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Within this context, `signal` is the first signal that came.

    Python runs its handlers between bytecodes, and a training iteration is one call of many seconds. So a thread
    listens at the pipe that the C handler writes to: it hears both signals as they come.
    """

    def __init__(self, notice: Callable[[str], None] = lambda name: None):
        self.signal: signal.Signals | None = None
        self._notice = notice  # called with the first signal's name, by the listening thread
        self._old: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self  # Python lets only the main thread set handlers
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._mouth, False)
        self._old_mouth = signal.set_wakeup_fd(self._mouth, warn_on_full_buffer=False)
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup: the starter's wish
                self._old[number] = signal.signal(number, lambda *_: None)
        self._thread = threading.Thread(target=self._listen, name="dcp-signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if not hasattr(self, "_thread"):
            return
        for number, handler in self._old.items():
            signal.signal(number, handler or signal.SIG_DFL)  # pyright: ignore[reportArgumentType]
        signal.set_wakeup_fd(self._old_mouth)
        os.close(self._mouth)
        self._thread.join()
        os.close(self._ear)

    def _listen(self) -> None:
        while heard := os.read(self._ear, 1):
            if heard[0] not in SIGNALS:
                continue
            if self.signal is not None:
                os._exit(128 + heard[0])  # as a shell reports it; checkpoints are whole at any moment
            self.signal = signal.Signals(heard[0])
            with suppress(Exception):  # a terminal that is gone must not make us deaf
                self._notice(self.signal.name)


class NotFiniteError(Exception):
    """A loss or a parameter is NaN or infinite."""

    def __init__(self, env_steps: int, metrics: dict[str, float], arrays: dict[str, str]):
        self.env_steps, self.metrics, self.arrays = env_steps, metrics, arrays
        first = [f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value)]
        first += [f"{name} has {what}" for name, what in arrays.items()]
        super().__init__(f"{first[0]} at {env_steps:,} environment steps")

    def seen(self) -> dict[str, object]:
        """As JSON can hold it: what is not finite as a word."""
        metrics = {name: value if math.isfinite(value) else str(value) for name, value in self.metrics.items()}
        return {"env_steps": self.env_steps, "metrics": metrics, "arrays_not_finite": self.arrays}


def require_finite(metrics: dict[str, float], learner: LearnerState, env_steps: int) -> None:
    """Raise `NotFiniteError` with all that can be seen. Of parameters and Adam's moments alike."""
    if all(map(math.isfinite, metrics.values())) and bool(_all_finite(learner)):
        return
    raise NotFiniteError(env_steps, metrics, _not_finite(learner))


@jax.jit
def _all_finite(learner: LearnerState) -> Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(learner)]))


def _not_finite(learner: LearnerState) -> dict[str, str]:
    """{"params/actor/out/bias": "3 of 8 numbers not finite"}"""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(learner):
        if count := int(np.sum(~np.isfinite(leaf))):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            found[name] = f"{count} of {np.size(leaf)} numbers not finite"
    return found


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
