"""How processes end: each is started, ended in its way, and must have sent the safe action last. No JAX in any."""

import signal
import subprocess
import sys
import textwrap

import pytest

from dcp.deploy.control.signals import SignalGuard, cause

ROBOT = """
import os, signal, sys, time
import numpy as np
from dcp.deploy import Controller, LeRobotArm, Stopped

# As at a terminal, whoever started the tests: nohup ignores SIGHUP, a shell SIGINT for what it runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

def send(action):
    print("safe" if action[0] == 0.0 else "act", flush=True)

def controller(policy=lambda state, goal: goal, read=lambda: np.zeros(1), **settings):
    return Controller(policy, read, lambda: np.ones(1), send, rate_hz=100, safe_action=[0.0], stale_after=1.0,
                      max_overruns=None, **settings)
"""


def run(script: str) -> tuple[list[str], str, int]:
    code = ROBOT + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.split(), done.stderr, done.returncode


@pytest.mark.parametrize(("name", "code"), [("SIGINT", -signal.SIGINT), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_ends_the_loop_through_the_safe_action(name: str, code: int):
    script = f"""
    calls = []
    def read():
        calls.append(1)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.{name})
            time.sleep(30.0)  # a read that would not come back for long
        return np.zeros(1)
    print(signal.getsignal(signal.SIGINT).__name__)
    robot = controller(read=read, warm_up=0)
    try:
        robot.run()
    finally:
        print(robot.report().ended, signal.getsignal(signal.SIGINT).__name__, "jax" in sys.modules)
    """
    words, errors, returned = run(script)
    ended = "Ctrl-C" if name == "SIGINT" else name
    assert words == [
        "default_int_handler", "act", "act", "act", "act", "safe", ended, "default_int_handler", "False",
    ], errors  # fmt: skip
    assert returned == code


def test_a_program_that_ends_without_leaving_the_controller_is_ended_by_the_watchdog():
    script = """
    robot = controller(warm_up=0)
    robot.__enter__()
    robot.step()
    robot.step()
    sys.exit(0)
    """
    words, errors, _ = run(script)
    assert words == ["act", "act", "safe"]
    assert "the loop has not come round" in errors and "your code between two steps" in errors


def test_an_exception_in_ones_own_code_sends_the_safe_action_before_the_traceback():
    words, errors, returned = run("""
    with controller(warm_up=0) as robot:
        robot.step()
        raise KeyError("mine")
    """)
    assert (words, returned) == (["act", "safe"], 1) and "KeyError: 'mine'" in errors


def test_a_signal_waits_for_the_end_of_a_send_and_the_third_does_not():
    guard = SignalGuard()
    with pytest.raises(KeyboardInterrupt), guard.held():
        guard._handle(signal.SIGINT, None)
        guard._handle(signal.SIGTERM, None)
        reached = True
    assert reached and guard.busy  # the way out is not interrupted
    guard = SignalGuard()
    with pytest.raises(SystemExit) as ended, guard.held():
        for _ in range(3):
            guard._handle(signal.SIGTERM, None)
        pytest.fail("a send that hangs could not be ended")
    assert ended.value.code == 143


def test_the_cause_is_read_off_the_exception():
    errors = [None, KeyboardInterrupt(), SystemExit(143), SystemExit(0), SystemExit("bye"), KeyError("x")]
    assert [cause(error) for error in errors] == [
        "the with block ended", "Ctrl-C", "SIGTERM", "the program exits", "the program exits",
        "an exception left the loop (KeyError)",
    ]  # fmt: skip
