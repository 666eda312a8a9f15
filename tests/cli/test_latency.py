"""`dcp latency`: every form of a run, one form of a file; and the clock itself against a known sleep."""

import json
import sys
import time
from pathlib import Path

import pytest

from dcp.cli.export import Case, Latency, measure
from dcp.cli.main import main
from dcp.policies.exports import export_policy


def test_a_run_is_timed_in_every_form_and_gets_no_files(tiny_run, capsys):
    before = sorted(path.name for path in tiny_run.folder.iterdir())
    assert main(["latency", str(tiny_run.folder), "--steps", "20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["forms"].keys() == {"jax", "numpy", "onnxruntime", "stablehlo"}
    assert found["missing"] == {}
    for row in found["forms"].values():
        assert 0 < row["p50_microseconds"] <= row["p99_microseconds"]
        assert 0 < row["new_goal_p50_microseconds"] <= row["new_goal_p99_microseconds"]
    assert sorted(path.name for path in tiny_run.folder.iterdir()) == before


def test_an_exported_file_is_timed_in_its_form(tiny_run, tmp_path: Path, capsys):
    path = export_policy(tiny_run.folder, "numpy", tmp_path / "policy.npz")
    assert main(["latency", str(path), "--steps", "20"]) == 0
    shown = capsys.readouterr().out
    assert [line.split("│")[1].strip() for line in shown.splitlines() if "│" in line] == ["numpy"]


def test_what_is_not_installed_is_named_next_to_the_rest(tiny_run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    monkeypatch.delitem(sys.modules, "jax._src.export.serialization", raising=False)
    assert main(["latency", str(tiny_run.folder), "--steps", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "pip install '.[onnx]'" in found["missing"]["onnxruntime"]
    assert "flatbuffers" in found["missing"]["stablehlo"]
    assert found["forms"].keys() == {"jax", "numpy"}


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], "nothing to time: name a run's folder"),
        (["missing"], "no policy at missing"),
        (["missing.onnx"], "there is no file missing.onnx"),
        (["x", "--steps", "0"], "--steps 0 times nothing"),
    ],
)
def test_a_mistake_gives_one_sentence(args: list[str], sentence: str, capsys):
    assert main(["latency", *args]) == 2
    assert sentence in capsys.readouterr().err


def test_the_clock_tells_milliseconds_from_microseconds_and_each_step_gets_another_state():
    states, goals = [], {"same": set(), "new": set()}

    def slow(state, goal):
        states.append(state.tobytes())
        goals["same"].add(goal.tobytes())
        time.sleep(0.002)

    def quick(state, goal):
        goals["new"].add(goal.tobytes())

    found = measure({"slow": Case(slow, 3, 2), "quick": Case(quick, 3, 2, same_goal=False)}, steps=60)
    assert 2000 <= found["slow"].p50 <= found["slow"].p99
    assert len(found["slow"].turns) == 2
    assert found["slow"].over(found["quick"]) > 10
    assert found["quick"].p50 < 100
    assert len(set(states)) > 60
    assert (len(goals["same"]), len(goals["new"])) == (1, len(set(states)))


def test_a_ratio_is_taken_turn_by_turn():
    quiet_then_noisy = Latency(0.0, 0.0, (10.0, 10.0, 40.0)), Latency(0.0, 0.0, (5.0, 4.0, 20.0))
    assert quiet_then_noisy[0].over(quiet_then_noisy[1]) == 2.0  # of 2, 2.5 and 2
