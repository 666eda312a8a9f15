"""The example that is to be copied for a robot of one's own must run."""

import pytest

from dcp.training.run import TrainedRun
from examples.controller_realtime import main


def test_a_simulated_robot_is_driven_in_real_time(tiny_run: TrainedRun, capsys: pytest.CaptureFixture[str]):
    assert main([str(tiny_run.folder), "--seconds", "0.5", "--stale-after", "20"]) == 0
    said = capsys.readouterr().out
    assert "point_u_maze: the simulator at 20 Hz, the controller at 20 Hz" in said
    assert "ended: ran its course" in said and "the safe action was sent" in said
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
