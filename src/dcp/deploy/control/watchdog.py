"""A thread that looks whether the loop still comes round: a read that blocks cannot notice itself."""

import threading
from collections.abc import Callable


class Watchdog(threading.Thread):
    """Not a daemon: if the loop's thread is gone without a stop, Python waits for us, and we send the safe action."""

    def __init__(self, overdue: Callable[[], str | None], trip: Callable[[str], object], poll: float):
        super().__init__(name="dcp-watchdog", daemon=False)
        self._overdue, self._trip, self._poll = overdue, trip, poll
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(self._poll):
            if sentence := self._overdue():
                self._trip(sentence)
                return

    def end(self) -> None:
        self._ended.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join()
