"""Hear a signal the moment it arrives, whatever Python is doing.

Python runs a signal's handler between two bytecodes of the main thread: after a minute of compilation, or inside one of
JAX's callbacks, which swallows what the handler raises. So the handler does nothing, and a thread reads the pipe that
Python's C handler writes to. This module is imported before anything heavy, so it needs little itself.
"""

import fcntl
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from dcp.errors import EXIT_INTERRUPTED

Reaction = Callable[[signal.Signals], None]
_listeners: list[tuple[Sequence[signal.Signals], Reaction]] = []
CLEAN_UPS: list[Callable[[], None]] = []  # what `end_at_once` calls first


@contextmanager
def listening(signals: Sequence[signal.Signals], react: Reaction) -> Iterator[None]:
    """Within this context, call `react` from another thread as soon as one of these signals arrives.

    The innermost context that names a signal gets it. A signal that is ignored, as under nohup, stays ignored, and one
    that gets another handler meanwhile is that handler's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets only the main thread set handlers
        return
    with ExitStack() as stack:
        if not _listeners:
            stack.enter_context(_reading_thread())
        _listeners.append((signals, react))
        stack.callback(_listeners.pop)
        for number in signals:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before = signal.signal(number, _left_to_the_thread)
                stack.callback(_restore, number, before or signal.SIG_DFL)
        yield


def _restore(number: signal.Signals, before: Any) -> None:
    if signal.getsignal(number) is _left_to_the_thread:  # else it has got a handler that is to stay
        signal.signal(number, before)


@contextmanager
def stopped_at_once() -> Iterator[None]:
    """Within this context, the first Ctrl-C ends the process, unless the caller has a handler of its own."""
    handler = signal.getsignal(signal.SIGINT)
    if handler not in (signal.default_int_handler, signal.SIG_DFL, _left_to_the_thread):
        yield
        return
    with listening((signal.SIGINT,), end_at_once):
        yield


def end_at_once(number: signal.Signals) -> None:
    """End the process without a shutdown of the interpreter.

    While it shuts down, XLA's threads still compile or step, and use memory that it has freed: a segmentation fault.
    """
    for clean_up in CLEAN_UPS:
        with suppress(Exception):
            clean_up()
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    show_cursor = "\x1b[?25h\r\n" if is_terminal else ""  # a progress bar hides it
    with suppress(OSError):
        os.write(2, f"{show_cursor}dcp: stopped\n".encode())
    os._exit(EXIT_INTERRUPTED)


def raise_again() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from here on, for a command that must release what it holds."""
    if signal.getsignal(signal.SIGINT) is _left_to_the_thread:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _reading_thread() -> Iterator[None]:
    ends = os.pipe()
    reader, writer = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)  # 0 to 2 may be closed, and free
    for end in ends:
        os.close(end)
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread = threading.Thread(target=_read, args=(reader,), name="dcp-signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)  # the thread reads the end of the file and returns
        thread.join()
        os.close(reader)


def _read(reader: int) -> None:
    while byte := os.read(reader, 1):
        number = byte[0]
        if signal.getsignal(number) is _left_to_the_thread:
            react = next((react for signals, react in reversed(_listeners) if number in signals), None)
            if react is not None:
                react(signal.Signals(number))


def _left_to_the_thread(number: int, frame: object) -> None:
    pass


# What asks a run to stop.

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last: the terminal or ssh session has ended


class Interrupted(KeyboardInterrupt):
    """Report that a signal stopped the run. Its folder holds the results so far; without results there is none."""

    def __init__(self, folder: Path, evaluations: int, env_steps: int | None):
        super().__init__(f"stopped after {evaluations} evaluations")
        self.folder, self.evaluations = folder, evaluations
        self.env_steps = env_steps  # at the checkpoint to resume from; None without one


class StopRequest:
    """Handle SIGINT, SIGTERM and SIGHUP: the first stops the run where it can resume later, the second ends it at once.

    Within this context, `signal` is the first signal received.
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
