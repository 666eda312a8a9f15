"""`dcp landscape` on a run that trained for a moment."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dcp.cli.main import main
from dcp.runs.training import TrainedRun


def test_pictures_and_numbers_of_a_run(tiny_run: TrainedRun, tmp_path: Path, capsys):
    out = tmp_path / "new" / "picture.pdf"
    arguments = [str(tiny_run.folder), "--goal", "3", "2", "--rollouts", "0", "--out", str(out)]
    assert main(["landscape", *arguments]) == 0
    shown = capsys.readouterr().out
    assert f"Wrote {out.with_suffix('.png')} and {out}." in shown
    with Image.open(out.with_suffix(".png")) as picture:
        pixels = np.asarray(picture.convert("L"))
    assert len(np.unique(pixels)) > 100  # not blank
    assert np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]).min() == 255  # nothing is cut off
    assert out.read_bytes().startswith(b"%PDF")
    assert "3, 2" in shown and "the direction" in shown and "rank correlation" in shown


def test_a_single_policy_file_is_enough_and_its_episodes_are_drawn(tiny_run: TrainedRun, tmp_path: Path, capsys):
    os.link(tiny_run.folder / "policy.safetensors", tmp_path / "mine.safetensors")
    arguments = [str(tmp_path / "mine.safetensors"), "--rollouts", "2", "--no-directions"]
    assert main(["landscape", *arguments, "--out", str(tmp_path / "a.png")]) == 0
    shown = capsys.readouterr().out
    assert "dcp, seed 0" in shown and "straight line" in shown and " of 2 " in shown


BAD = [
    ([], "nothing to draw"),
    (["{run}", "--goal", "2", "1"], "lies in a wall"),
    (["{run}", "--goal", "2"], "has 2 numbers, not 1"),
    (["{run}", "--goal", "x", "1"], "--goal"),
    (["{run}", "--env", "pusher_easy"], "sizes"),
    (["{run}", "--env", "nowhere"], "dcp envs"),
    (["{run}/nothing"], "no policy at"),
    (["{run}", "--out", "picture.gif"], ".png or .pdf"),
    (["{run}", "--range", "mine"], "panel, paper, common, space"),
    (["{run}", "--rollouts", "-1"], "0 or more"),
    (["zoo/nothing/dcp"], "the zoo has no"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=[" ".join(arguments) or "nothing" for arguments, _ in BAD])
def test_a_mistake_is_one_sentence(tiny_run: TrainedRun, arguments: list[str], words: str, capsys):
    assert main(["landscape", *(argument.format(run=tiny_run.folder) for argument in arguments)]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert "\n" not in error


def test_a_run_without_a_policy_is_one_sentence(tiny_run: TrainedRun, tmp_path: Path, capsys):
    (tmp_path / "config.json").write_text((tiny_run.folder / "config.json").read_text())
    assert main(["landscape", str(tmp_path)]) == 2
    assert "has no policy yet" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_one_sentence(tiny_run: TrainedRun, tmp_path: Path, capsys):
    (tmp_path / "file").write_text("in the way")
    arguments = [str(tiny_run.folder), "--rollouts", "0", "--out", str(tmp_path / "file" / "a.png")]
    assert main(["landscape", *arguments]) == 2
    assert "choose another file with --out" in capsys.readouterr().err
