"""SIGINT and SIGTERM: the first asks the run to stop where it can go on later, the second ends it at once."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

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
