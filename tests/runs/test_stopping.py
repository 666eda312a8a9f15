"""The first signal asks a run to stop, wherever Python is; what was there before comes back."""

import os
import signal
import time

from dcp.runs.stopping import StopRequest


def heard(stop: StopRequest) -> signal.Signals | None:
    """The signal, which a thread hears within a moment."""
    for _ in range(500):
        if stop.signal is not None:
            break
        time.sleep(0.01)
    return stop.signal


def test_the_first_signal_is_kept_and_its_name_given_once():
    names = []
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest(names.append) as stop:
        assert stop.signal is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard(stop) == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGHUP)  # a terminal that ends may send it besides: it ends nothing
        time.sleep(0.05)
    assert stop.signal == signal.SIGTERM and names == ["SIGTERM"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_display_that_fails_does_not_keep_a_run_from_stopping():
    def fails(name: str) -> None:
        raise OSError("the terminal is gone")

    with StopRequest(fails) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard(stop) == signal.SIGTERM
        time.sleep(0.05)
        assert stop.signal == signal.SIGTERM
