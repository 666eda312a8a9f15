"""`dcp export` from a run folder to a file that acts."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from dcp.cli.main import main
from dcp.policies.exports import load_exported
from dcp.policies.policy_file import load_policy


@pytest.fixture
def folder(tiny_run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))


def test_a_run_is_exported_into_its_folder_and_acts_as_before(folder: Path, capsys):
    assert main(["export", str(folder), "--format", "numpy"]) == 0
    shown = capsys.readouterr().out
    assert f"Wrote {folder / 'policy.npz'}" in shown
    assert "state [2], goal [2] -> action [2]." in shown
    state, goal = np.array([[4.0, 4.0], [4.0, 8.0]]), np.array([[4.0, 12.0], [4.0, 8.0]])
    exported = load_exported(folder / "policy.npz")
    np.testing.assert_allclose(exported(state, goal), load_policy(folder)(state, goal), rtol=0, atol=1e-5)
    assert exported.about["env_steps"] > 0
    assert (exported.about["env"], exported.about["method"]) == ("point_u_maze", "dcp")


def test_onnx_is_the_default_and_a_policy_file_will_do(folder: Path, capsys):
    assert main(["export", str(folder / "policy.safetensors"), "--out", str(folder / "ant.onnx")]) == 0
    assert load_exported(folder / "ant.onnx").action_size == 2


def test_the_ending_of_the_file_says_its_format(folder: Path, capsys):
    assert main(["export", str(folder), "--out", str(folder / "z.npz")]) == 0
    assert load_exported(folder / "z.npz").action_size == 2
    assert main(["export", str(folder), "--out", str(folder / "z.zip")]) == 2
    assert "end its name in one of .onnx (onnx), .stablehlo (stablehlo), .npz (numpy)" in capsys.readouterr().err
    assert main(["export", str(folder), "--out", str(folder / "y.npz"), "--format", "onnx"]) == 2
    assert "y.npz does not end in .onnx" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], "nothing to export: name a run's folder or a policy file"),
        (["missing"], "no policy at missing"),
        (["missing", "--format", "torch"], "unknown value 'torch' for --format: choose one of onnx, stablehlo, numpy"),
    ],
)
def test_a_mistake_gives_one_sentence(args: list[str], sentence: str, capsys):
    assert main(["export", *args]) == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_in_place_of_a_file_gives_one_sentence(folder: Path, tmp_path: Path, capsys):
    (tmp_path / "a.npz").mkdir()
    assert main(["export", str(folder), "--format", "numpy", "--out", str(tmp_path / "a.npz")]) == 2
    assert "is a folder" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_not_made(folder: Path, tmp_path: Path, capsys):
    assert main(["export", str(folder), "--format", "numpy", "--out", str(tmp_path / "no" / "p.npz")]) == 2
    assert "make it first, or choose another --out" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
