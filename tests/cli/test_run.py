"""`dcp run` on the simulated SO-101: what it says, what it refuses, and how it ends."""

import csv
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import so101_loop
from dcp.cli.main import main
from dcp.cli.run import RunOptions, _goal, _result, numpy_policy
from dcp.errors import UserError
from dcp.policies.exports import export_policy
from dcp.robots.so101_simulated import SimulatedSo101
from dcp.robots.timing import Step


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ([], "no policy to run"),
        (["zoo/point_u_maze/dcp", "--speed", "2"], "--speed is 2, a share of the trained speed"),
        (["nowhere", "--seconds", "-1"], "--seconds is -1: use a number of seconds above 0"),
        (["nowhere", "--seconds", "nan"], "--seconds is nan: use a number of seconds above 0"),
        (["nowhere", "--goal-timeout", "0"], "--goal-timeout is 0"),
        (["nowhere", "--port", "/dev/ttyACM0"], "--port is for a real arm: add --robot so101_follower"),
        (["zoo/so101_reach/dcp", "--goal", "0.9", "0", "0.2"], "the goal 0.9 0 0.2 is outside what the policy"),
        (["zoo/so101_reach/dcp"], "this policy's goal has 3 numbers, not 0"),
        (["zoo/point_u_maze/dcp", "--goal", "1", "1"], "fits no so101 task"),
        (["zoo/point_u_maze/dcp", "--goal", "1", "1", "--robot", "so101_follower"], "needs --port"),
        (["zoo/point_u_maze/dcp", "--goal", "1", "1", "--robot", "so101_follower", "--port", "x"], "lerobot[feetech]"),
    ],
)
def test_a_mistake_gets_one_sentence(flags: list[str], sentence: str, capsys):
    assert main(["run", *flags]) == 2
    assert sentence in capsys.readouterr().err


def test_a_policy_that_does_not_say_its_environment_gets_any_goal_that_the_arm_might_reach():
    policy = SimpleNamespace(goal_size=3, about={"env": None})
    assert _goal(policy, RunOptions(goal=(0.5, -0.5, -0.1)))().tolist() == [0.5, -0.5, -0.1]
    with pytest.raises(UserError, match=r"the goal 0\.51 0 0 is farther than the arm can reach"):
        _goal(policy, RunOptions(goal=(0.51, 0.0, 0.0)))


# A robot that is slow to send, on which Ctrl-C reaches the whole command.
SLOW_ROBOT = """
import signal, sys, time
import dcp.cli.run
from dcp.cli.main import main
from dcp.robots.so101_simulated import SimulatedSo101
from dcp.robots.timing import Step

class Slow(SimulatedSo101):
    def connect(self, calibrate=True):
        super().connect(calibrate)
        print("connected", flush=True)
        if CONNECTS_FOR_LONG:
            time.sleep(30.0)

    def send_action(self, action):
        time.sleep(0.003)
        print("sent", flush=True)
        return super().send_action(action)

    def disconnect(self):
        print("disconnecting", flush=True)
        time.sleep(RELEASES_IN)
        super().disconnect()
        print("disconnected", flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test's process may ignore it
for name in ("SIGHUP", "SIGQUIT"):
    signal.signal(getattr(signal, name), signal.SIG_DFL)
dcp.cli.run.make_robot = lambda options, cube: Slow()
sys.exit(main(["run", *sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def reach_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zoo's policy for so101_reach in its NumPy form, which loads fast."""
    return export_policy("zoo/so101_reach/dcp", "numpy", tmp_path_factory.mktemp("policy") / "policy.npz")


def started(reach_policy: Path, log: Path, *flags: str, connects_for_long=False, releases_in=0.0) -> subprocess.Popen:
    flags = (str(reach_policy), "--goal", "0.25", "0.1", "0.2", "--log", str(log), "--seconds", "60", *flags)
    script = f"CONNECTS_FOR_LONG, RELEASES_IN = {connects_for_long}, {releases_in}\n{SLOW_ROBOT}"
    argv = [sys.executable, "-c", script, *flags]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_until(process: subprocess.Popen, line: str, times: int = 1) -> None:
    assert process.stdout is not None
    for _ in range(times):
        while (read := process.stdout.readline()) != f"{line}\n":
            assert read, process.communicate()


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGQUIT", 131)])
def test_a_signal_to_the_command_holds_the_arm_and_disconnects_it(
    reach_policy: Path, tmp_path: Path, name: str, code: int
):
    log = tmp_path / "log.csv"
    with started(reach_policy, log) as process:
        read_until(process, "sent", 10)
        process.send_signal(getattr(signal, name))
        out, err = process.communicate(timeout=60)
    assert out.splitlines()[-1] == "disconnected" and "the safe action was sent" in out
    assert (process.returncode, err) == (code, "dcp: stopped\n" if name == "SIGINT" else "")
    with log.open() as file:
        assert list(csv.DictReader(file))[-1]["ended"] == ("Ctrl-C" if name == "SIGINT" else name)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_while_the_arm_is_being_connected_releases_it(reach_policy: Path, tmp_path: Path, name: str):
    log = tmp_path / "log.csv"
    with started(reach_policy, log, connects_for_long=True) as process:
        read_until(process, "connected")
        process.send_signal(getattr(signal, name))
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + getattr(signal, name) and "Traceback" not in err
    assert out.splitlines()[-1] == "disconnected" and "sent" not in out.split()
    assert not log.exists()  # nothing moved


def test_a_second_ctrl_c_neither_interrupts_the_release_nor_gives_a_traceback(reach_policy: Path, tmp_path: Path):
    with started(reach_policy, tmp_path / "log.csv", releases_in=0.5) as process:
        read_until(process, "sent", 10)
        process.send_signal(signal.SIGINT)
        read_until(process, "disconnecting")
        process.send_signal(signal.SIGINT)
        read_until(process, "disconnected")
        for _ in range(20):  # during the interpreter's exit
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "dcp: stopped\n")


def failing(kind: type[Exception], sentence: str):
    def fail(*_, **__):
        raise kind(sentence)

    return fail


@pytest.fixture
def commanded(reach_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A simulated arm, and the `dcp run` that moves it for a moment. -> the robot, the command"""
    robot = SimulatedSo101()
    monkeypatch.setattr("dcp.cli.run.make_robot", lambda options, cube: robot)
    flags = ["--goal", "0.25", "0.1", "0.2", "--seconds", "0.5", "--log", str(tmp_path / "log.csv")]
    return robot, ["run", str(reach_policy), *flags]


def test_a_wrong_port_gets_one_sentence(commanded, capsys):
    robot, command = commanded
    robot.connect = failing(OSError, "could not open port /dev/ttyACM9")
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dcp: cannot connect to the arm (OSError: could not open port /dev/ttyACM9): check --port")


def test_a_policy_that_does_not_fit_is_refused_before_the_arm_is_connected(commanded, capsys):
    robot, _ = commanded
    robot.connect = failing(AssertionError, "connected")
    assert main(["run", "zoo/point_u_maze/dcp", "--goal", "1", "1"]) == 2
    assert "fits no so101 task" in capsys.readouterr().err


def test_a_pulled_cable_says_why_the_arm_stopped_and_that_it_was_not_released(commanded, capsys):
    robot, command = commanded
    robot.disconnect = failing(ConnectionError, "no status packet")
    sends = iter(range(5))

    def pull_after_five(action):
        if next(sends, None) is None:
            raise OSError("device disconnected")

    robot.send_action = pull_after_five
    assert main(command) == 1
    first, last = (line for line in capsys.readouterr().err.splitlines() if line.startswith("dcp: "))
    assert first.startswith("dcp: the arm could not be released (ConnectionError: no status packet): hold it")
    assert "send_action failed (OSError: device disconnected)" in last


def test_an_arm_that_cannot_be_released_after_a_good_run_is_a_fault(commanded, capsys):
    robot, command = commanded
    robot.disconnect = failing(ConnectionError, "no status packet")
    assert main(command) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dcp: the arm could not be released")


SEEDS = (*range(8), 22)


def test_with_every_error_of_an_arm_it_arrives_and_stays_and_does_not_chatter(monkeypatch: pytest.MonkeyPatch):
    """Nine arms and goals, five seconds each, as `dcp run --randomize all` drives them. The last one stood still 22 cm
    away while targets continued from the last target everywhere."""
    monkeypatch.setattr("dcp.robots.controller.freeze_garbage", lambda: False)
    policy = numpy_policy("zoo/so101_reach/dcp")
    arms = np.array([so101_loop.run(policy, seed, "all", RunOptions.settle, RunOptions.smooth) for seed in SEEDS])
    assert not np.isnan(arms).any() and arms[:, 0].max() < 75  # arrives within 2.5 s
    assert arms[:, 1].mean() >= 0.95 and arms[:, 3].mean() <= 0.1
    chattering = np.array([so101_loop.run(policy, seed, "all", 0.0, 0.0) for seed in range(8)])  # as in training
    assert chattering[:, 1].mean() < 0.9 and chattering[:, 3].mean() > 0.2


# What it says, and its log


def test_it_names_the_simulated_arm_first_and_its_result_last(commanded, tmp_path: Path, capsys):
    _, command = commanded
    assert main([*command[:-3], "2", *command[-2:]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Driving the simulated SO-101 with ") and lines[0].endswith(str(tmp_path / "log.csv"))
    assert re.fullmatch(
        r"first within 2 cm of the goal at step \d+, then in \d+\.\d% of the steps; \d\.\d cm from the goal at the end",
        lines[-1],
    )
    assert any("of the joints' commands change sign" in line for line in lines)


def test_the_result_by_hand():
    policy: Any = SimpleNamespace(goal_dims=(1,))
    step = lambda place: Step(0, 0.0, state=np.array([9.0, place]), goal=np.array([0.0]))  # noqa: E731
    steps = [step(x) for x in (0.05, 0.01, 0.03, 0.0, 0.01)]
    assert _result(steps, policy, 0.02) == (
        "first within 2 cm of the goal at step 1, then in 75.0% of the steps; 1.0 cm from the goal at the end"
    )
    assert _result(steps[:1], policy, 0.02) == (
        "never within 2 cm of the goal (nearest 5.0 cm); 5.0 cm from the goal at the end"
    )
    assert _result([Step(0, 0.0)], policy, 0.02) == "no step was taken"


def test_a_log_is_never_overwritten(commanded, tmp_path: Path, monkeypatch, capsys):
    robot, command = commanded
    monkeypatch.chdir(tmp_path)
    for name in ("run.csv", "run_2.csv"):
        assert main(command[:-2]) == 0
        assert f"every step goes to {name}\n" in capsys.readouterr().out
    first = Path("run.csv").read_bytes()
    assert main([*command[:-1], "run.csv"]) == 2
    assert "--log run.csv exists, and a log is never overwritten" in capsys.readouterr().err
    robot.connect = failing(OSError, "no such port")
    assert main(command[:-2]) == 2
    assert Path("run.csv").read_bytes() == first and sorted(os.listdir()) == ["run.csv", "run_2.csv"]


def test_a_log_that_cannot_be_written_is_refused_before_the_arm_is_connected(commanded, capsys):
    robot, command = commanded
    robot.connect = failing(AssertionError, "connected")
    assert main([*command[:-1], "/proc/x.csv"]) == 2
    assert "cannot write the log /proc/x.csv" in capsys.readouterr().err


def test_a_log_on_a_full_disk_is_a_fault_that_is_reported(commanded, capsys, monkeypatch):
    robot, command = commanded
    monkeypatch.setattr("dcp.robots.timing.Recorder.write", failing(OSError, "No space left on device"))
    assert main(command) == 1
    assert "the black box could not be written to" in capsys.readouterr().err and not robot.is_connected


def test_a_pushing_policy_of_the_zoo_brings_the_cube_to_its_goal(tmp_path: Path, monkeypatch, capsys):
    """In real time, as on a robot: three seconds are 90 steps, and the cube has 8 cm to go."""
    monkeypatch.chdir(tmp_path)
    places = ["--goal", "0.25", "0.05", "--cube", "0.28", "-0.02"]
    assert main(["run", "zoo/so101_push/sac_direction", *places, "--seconds", "3", "--log", "run.csv"]) == 0
    out = capsys.readouterr().out
    first = re.search(r"first within 3 cm of the goal at step (\d+)", out)
    assert first is not None and int(first[1]) < 60, out
    assert float(re.search(r"([\d.]+) cm from the goal at the end", out)[1]) < 3.0  # pyright: ignore[reportOptionalSubscript]
    assert len(list(csv.DictReader((tmp_path / "run.csv").open()))) >= 80
