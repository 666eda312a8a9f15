"""A model of MuJoCo's own package, made a task in a user's module: trained, killed, resumed, evaluated, rendered,
diagnosed and exported, each in a new process."""

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import dcp
from tests.outside.test_own_parts import DCP, QUIET, dcp_command
from tests.support.same_run import assert_same_run

# Three legs with wheels under a free head, muscles, a height field, a mesh and an equality constraint.
MODULE = """
from pathlib import Path

import mujoco

import dcp


def roller():
    return dcp.MujocoTask(
        "roller",
        Path(mujoco.__file__).parent / "testdata" / "model.xml",
        goal="body:head",
        axes="xy",
        goals=([-1.0, -1.0], [1.0, 1.0]),
        observe=("q", "qd"),
        starts={"hipz_0": (-0.1, 0.1)},
        ends_outside={"body:head": ([-5.0, -5.0, 0.1], [5.0, 5.0, 2.0])},
        threshold=0.3,
        episode_length=50,
    )
"""
SETTINGS = ["--preset", "smoke", "--fidelity", "fixed", "--num-evals", "3", *QUIET]
RUN = "my_robot.roller/dcp/seed_0"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("robot")
    (path / "my_robot.py").write_text(MODULE)
    return path


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    dcp_command(folder, "train", *SETTINGS, "--env", "my_robot:roller")
    return folder / "runs" / RUN


def test_killed_and_resumed_it_ends_bit_by_bit_the_same(trained: Path, folder: Path):
    argv = ["train", *SETTINGS, "--env", "my_robot:roller", "--runs-dir", "killed", "--checkpoint-evals", "1"]
    child = subprocess.Popen([*DCP, *argv], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run = folder / "killed" / RUN
    deadline = time.monotonic() + 200
    while not any(run.glob("checkpoints/*/SHA256SUMS")) and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert any(run.glob("checkpoints/*")), "nothing was written before the kill"
    dcp_command(folder, "train", "--resume", str(run), "--import", "my_robot", *QUIET)
    assert_same_run(run, trained)


def test_every_command_takes_the_run_once_its_module_is_named(trained: Path, folder: Path):
    for argv in (
        ["eval", str(trained), "--episodes", "4"],
        ["render", str(trained), "--format", "gif", "html"],
        ["diagnose", str(trained), "--episodes", "4"],
        ["export", str(trained), "--format", "stablehlo", "--out", "mine.stablehlo"],
    ):
        dcp_command(folder, *argv, "--import", "my_robot")
    assert list((trained / "videos").glob("*.gif")) and (folder / "mine.stablehlo").exists()
    assert json.loads((trained / "config.json").read_text())["config"]["physics"] == "mujoco"
    action = dcp.load_policy(trained)(np.zeros(94, np.float32), goal=[0.5, 0.5])
    assert np.shape(action) == (10,) and np.all(np.isfinite(action))


def test_a_config_alone_runs_nothing_of_the_module(trained: Path, tmp_path: Path):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "my_robot.py").write_text("open('ran', 'w')\n" + MODULE)
    said = dcp_command(tmp_path, "eval", "run", code=2).stderr
    assert "--import my_robot" in said and len(said.splitlines()) == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"body:head",\n', '"site:hat",\n', "unknown site 'hat': choose one of"),
        ('"model.xml"', '"modell.xml"', "MuJoCo cannot read the model"),
        ('"hipz_0": (-0.1, 0.1)', '"hipz_0": float("nan")', "must be 1 finite numbers"),
    ],
)
def test_a_mistake_in_the_module_is_one_sentence(old: str, new: str, sentence: str, tmp_path: Path):
    assert old in MODULE
    (tmp_path / "my_robot.py").write_text(MODULE.replace(old, new))
    said = dcp_command(tmp_path, "train", *SETTINGS, "--env", "my_robot:roller", code=2).stderr
    assert sentence in said and len(said.splitlines()) == 1
