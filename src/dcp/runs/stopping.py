"""Handle the signals that end a run early."""

import os
import signal
import stat
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from dcp.machine.signals import listening

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last: the terminal or ssh session has ended


class Interrupted(KeyboardInterrupt):
    """Report that a signal stopped the run. Its folder holds the results so far; without results there is none."""

    def __init__(self, folder: Path, evaluations: int, env_steps: int | None):
        super().__init__(f"stopped after {evaluations} evaluations")
        self.folder, self.evaluations = folder, evaluations
        self.env_steps = env_steps  # at the checkpoint to resume from; None without one


class StopRequest:
    """Handle SIGINT, SIGTERM and SIGHUP: the first stops the run where it can resume later, the second ends it at once.

    Within this context, `signal` is the first signal received. See machine/signals.py for why a thread hears them.
    """

    def __init__(self, notice: Callable[[str], None] = lambda name: None):
        self.signal: signal.Signals | None = None
        self.notice = notice  # the listening thread calls it with the first signal's name
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(listening(SIGNALS, self._hear))
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _hear(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP and self.signal is not None:
            return  # a terminal that ends may send SIGHUP twice
        if self.signal is not None:
            os._exit(128 + number)  # a shell's code for a signal; checkpoints are complete at any moment
        if number == signal.SIGHUP:
            _leave_the_terminal()  # before the run can write to it
        self.signal = number
        with suppress(Exception):  # keep listening even if the terminal is gone
            self.notice(number.name)


def _leave_the_terminal() -> None:
    """Send what would be printed on a terminal to /dev/null: writing to one that is gone is an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nowhere, descriptor)
    os.close(nowhere)
