"""Whole programs: each way to end one sends the safe action last, without JAX; and the example runs."""

import signal
import subprocess
import sys
import textwrap

import pytest

from dcp.runs.training import TrainedRun
from examples.controller_realtime import main

ROBOT = """
import os, signal, sys, time
import numpy as np
from dcp.robots import Controller, Stopped

# As at a terminal, whoever started the tests: nohup ignores SIGHUP, a shell SIGINT for what it runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

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


@pytest.mark.parametrize(
    ("name", "code"), [("SIGINT", -signal.SIGINT), ("SIGTERM", 143), ("SIGHUP", 129), ("SIGQUIT", 131)]
)
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
    assert "no step has begun" in errors and "your code between two steps" in errors


def test_an_exception_in_ones_own_code_sends_the_safe_action_before_the_traceback():
    words, errors, returned = run("""
    with controller(warm_up=0) as robot:
        robot.step()
        raise KeyError("mine")
    """)
    assert (words, returned) == (["act", "safe"], 1) and "KeyError: 'mine'" in errors


# ---- the example


def test_a_simulated_robot_is_driven_in_real_time(tiny_run: TrainedRun, capsys: pytest.CaptureFixture[str]):
    assert main([str(tiny_run.folder), "--seconds", "0.5", "--stale-after", "20"]) == 0
    said = capsys.readouterr().out
    assert "point_u_maze: the simulator at 20 Hz, the controller at 20 Hz" in said
    assert "ended: completed its" in said and "the safe action was sent" in said
    assert "the goal was" in said


def test_a_sensor_that_dies_stops_it(tiny_run: TrainedRun, tmp_path, capsys: pytest.CaptureFixture[str]):
    box = tmp_path / "box.csv"
    arguments = ["--freeze-after", "0.1", "--seconds", "60", "--black-box", str(box)]
    assert main([str(tiny_run.folder), *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("stopped: ") and "the safe action was sent" in captured.err
    assert box.is_file()


def test_a_policy_that_is_not_there_gives_a_sentence(tmp_path, capsys: pytest.CaptureFixture[str]):
    assert main([str(tmp_path / "nowhere")]) == 2
    said = capsys.readouterr().err
    assert "no policy at" in said and "dcp train" in said and len(said.splitlines()) == 1
