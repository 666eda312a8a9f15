"""Ctrl-C, SIGTERM and a lost connection end the loop through its safe action, and never in the middle of a send."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # SIGHUP: the ssh session that started us is gone
INSIST = 3  # so many signals end even a send_action that hangs


class SignalGuard:
    """While `busy`, a signal waits. Else it raises, once, where the loop is: reads and sleeps do not outlive it."""

    def __init__(self):
        self.busy = False
        self._count = 0
        self._pending: int | None = None
        self._old: dict[int, object] = {}

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Python hands signals to the main thread alone: it must call stop() itself
        for name in NAMES:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                self._old[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        while self._old:
            number, handler = self._old.popitem()
            signal.signal(number, handler or signal.SIG_DFL)  # pyright: ignore[reportArgumentType]

    @contextmanager
    def held(self) -> Iterator[None]:
        """A signal that comes meanwhile is due at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield  # no signal reaches this thread, and `busy` is the main thread's
            return
        before, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = before
            if self._pending is not None and not before:
                self._raise(self._pending)

    def _handle(self, number: int, frame: object) -> None:
        self._count += 1
        if self.busy and self._count < INSIST:
            self._pending = self._pending or number
        else:
            self._raise(number)

    def _raise(self, number: int) -> None:
        self.busy, self._pending = True, None  # what follows is the way out: it is not interrupted again
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)


def cause(error: BaseException | None) -> str:
    """What ended a loop, said of the exception that left it."""
    if error is None:
        return "the with block ended"
    if isinstance(error, KeyboardInterrupt):
        return "Ctrl-C"
    numbers = {128 + getattr(signal, name): name for name in NAMES if hasattr(signal, name)}
    if isinstance(error, SystemExit):
        return numbers.get(error.code if isinstance(error.code, int) else 0, "the program exits")
    return f"an exception left the loop ({type(error).__name__})"
