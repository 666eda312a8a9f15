"""Ctrl-C and its kin, in processes of their own: what a thread hears, whatever the main thread is doing."""

import os
import signal
import subprocess
import sys
import time

import pytest

from dcp.machine.signals import StopRequest
from tools.interrupts import measure

AS_AT_A_TERMINAL = "import os, signal, time; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def ends(code: str) -> tuple[int, str, str]:
    command = [sys.executable, "-c", AS_AT_A_TERMINAL + code]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return process.returncode, process.stdout, process.stderr


def test_ctrl_c_ends_code_that_swallows_every_exception():
    """As JAX's callback in the garbage collector does."""
    code = "from dcp.machine.signals import stopped_at_once\nwith stopped_at_once():\n"
    code += "  try:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(30)\n  except BaseException: pass\n"
    assert ends(code + "print('went on')") == (130, "", "dcp: stopped\n")


def test_the_innermost_context_hears_a_signal_and_the_outer_one_again_after_it():
    code = "from dcp.machine.signals import listening\nboth = (signal.SIGINT, signal.SIGTERM)\n"
    code += "with listening(both, lambda n: print('outer', n.name, flush=True)):\n"
    code += "  with listening((signal.SIGINT,), lambda n: print('inner', n.name, flush=True)):\n"
    code += "    os.kill(os.getpid(), signal.SIGINT); os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.5)\n"
    code += "  os.kill(os.getpid(), signal.SIGINT); time.sleep(0.5)\n"
    code += "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.set_wakeup_fd(-1))\n"
    assert ends(code) == (0, "inner SIGINT\nouter SIGTERM\nouter SIGINT\nTrue -1\n", "")


def test_a_handler_that_other_code_installs_takes_the_signal_over():
    code = "from dcp.machine.signals import stopped_at_once\nwith stopped_at_once():\n"
    code += "  signal.signal(signal.SIGINT, lambda *_: print('the robot stops'))\n"
    code += "  os.kill(os.getpid(), signal.SIGINT); time.sleep(0.3); print('went on')\n"
    assert ends(code) == (0, "the robot stops\nwent on\n", "")


def test_a_signal_that_is_ignored_stays_ignored():
    code = "from dcp.machine.signals import listening\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    code += "with listening((signal.SIGHUP,), lambda n: print('heard')):\n"
    code += "  os.kill(os.getpid(), signal.SIGHUP); time.sleep(0.3); print('went on')\n"
    assert ends(code) == (0, "went on\n", "")


def test_a_command_that_holds_a_robot_gets_its_keyboard_interrupt():
    code = "from dcp.machine.signals import raise_again, stopped_at_once\nwith stopped_at_once():\n  raise_again()\n"
    code += "  try:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(5)\n"
    code += "  except KeyboardInterrupt: print('released')\n"
    assert ends(code) == (0, "released\n", "")


@pytest.mark.parametrize("starts", [12, pytest.param(300, marks=pytest.mark.slow)])
def test_no_ctrl_c_in_the_first_three_seconds_of_dcp_train_is_swallowed(starts: int):
    measured = measure(starts, 1.5 if starts == 12 else 3.0, seed=starts)
    assert measured["wrong"] == [] and measured["starts"] == starts


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
