"""`dcp doctor --gpu`: on a CPU, which is all there is here; and what it makes of numbers that a device could give."""

import json

import jax
import numpy as np
import pytest

from dcp.cli import doctor_checks, doctor_gpu
from dcp.cli.doctor import _gpu
from dcp.cli.doctor_gpu import CPU_NUMBERS, TOLERANCE
from dcp.cli.main import main
from dcp.errors import UserError
from dcp.lab.offscreen import ProbeError
from dcp.machine import compiling
from tests.support.toys import BrittleLine


@pytest.mark.slow
def test_on_a_cpu_it_measures_everything_and_agrees_with_itself(tmp_path, capsys):
    report = tmp_path / "report.json"
    argv = ["doctor", "--gpu", "--no-self-test", "--gpu-report", str(report), "--json"]
    argv += ["--gpu-envs", "point_u_maze", "pusher_hard"]
    main(argv)  # its code also speaks of what else this machine lacks
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    names = ("device", "point_u_maze", "pusher_hard", "xla", "short run", "agreement")
    assert [rows[name]["state"] for name in names] == ["ok"] * len(names), rows
    found = json.loads(report.read_text())
    assert found["platform"] == "cpu" and found["agreement"]["agrees"]
    assert found["environments"]["point_u_maze"]["steps_per_second"] > 1_000
    assert 0.1 < found["updates"]["xla"]["ms"] < 10_000
    assert set(found["agreement"]["gaps"]) == set(CPU_NUMBERS)
    assert max(found["agreement"]["gaps"].values()) < 1e-3  # the same processor family or not, this is float32


def test_numbers_off_a_cpus_are_named_and_a_nan_is_off():
    found: dict = {}
    (row,) = doctor_gpu._agreement(dict(CPU_NUMBERS), list(CPU_NUMBERS), found)
    assert row.state == "ok" and found["agreement"]["agrees"]
    changed = CPU_NUMBERS | {"crl/critic_loss": CPU_NUMBERS["crl/critic_loss"] * (1 + 2 * TOLERANCE)}
    (row,) = doctor_gpu._agreement(changed, [], found)
    assert row.state == "problem" and row.found.startswith("crl/critic_loss by 4.0%")
    (row,) = doctor_gpu._agreement({"dcp/entropy": float("nan")}, [], found)
    assert row.state == "problem" and not found["agreement"]["agrees"]


def test_a_number_that_should_have_been_measured_and_is_missing_does_not_agree():
    found: dict = {}
    expected = doctor_gpu._expected(("ant_u_maze", "pusher_hard"))
    assert expected == list(CPU_NUMBERS)
    assert "pusher_hard/mean_observation" not in doctor_gpu._expected(("ant_u_maze",))
    numbers = {name: value for name, value in CPU_NUMBERS.items() if not name.startswith("pusher")}
    (row,) = doctor_gpu._agreement(numbers, expected, found)
    assert row.state == "problem" and row.found == "not measured: pusher_hard/mean_observation"
    assert found["agreement"]["missing"] == ["pusher_hard/mean_observation"] and not found["agreement"]["agrees"]


@pytest.mark.parametrize(
    ("env", "wrong"),
    [
        (BrittleLine(limit=0.5), "episodes diverged within 20 steps"),
        (BrittleLine(spread=np.nan), "/mean_observation is nan"),
    ],
)
def test_physics_that_is_not_finite_is_a_problem(env: BrittleLine, wrong: str, monkeypatch):
    """Episodes that diverge begin again, so that the mean observation alone would not show them."""
    monkeypatch.setattr("dcp.envs.registry.make_env", lambda name: env)
    row = doctor_gpu._row("brittle", doctor_gpu.step_env("brittle"))
    assert row.state == "problem" and wrong in row.found


@pytest.mark.parametrize(("accepted", "used"), [(True, "loops"), (False, "xla")])
def test_the_options_that_a_program_has_are_those_that_xla_accepts(accepted: bool, used: str, monkeypatch):
    monkeypatch.delenv("DCP_GPU_GRAPHS", raising=False)
    monkeypatch.setattr(compiling, "_accepted", lambda options: accepted)
    assert compiling.graphs_in_use() == "xla"  # on a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert compiling.graphs_in_use() == used


def test_options_that_xla_refuses_are_reported_and_their_time_counts_for_nobody(monkeypatch):
    monkeypatch.delenv("DCP_GPU_GRAPHS", raising=False)
    answer = {"ms": 0.5, "found": "0.50 ms per update", "graphs": "xla"}
    monkeypatch.setattr(doctor_gpu, "in_a_process", lambda *args, **kwargs: answer)
    loops = doctor_gpu._update("loops")
    assert not doctor_gpu._update("xla")["refused"]
    row = doctor_gpu._row("loops", loops)
    assert row.state == "missing" and row.advice == "XLA refuses the options loops: its own choice is used."
    (advice,) = doctor_gpu._advice({"updates": {"loops": loops, "xla": {"ms": 1.0}, "off": {"ms": 1.01}}})
    assert advice.state == "ok" and "loops" not in advice.found and "xla is in force" in advice.found
    monkeypatch.setattr(doctor_gpu, "look", lambda: {"platform": "gpu"})
    monkeypatch.setattr(doctor_gpu, "_update", lambda row: {"loops": loops}.get(row, {"ms": 1.0}))
    assert [check.name for check in doctor_gpu.option_checks()] == ["options loops", "options"]


def test_options_that_are_faster_here_are_recommended(monkeypatch):
    monkeypatch.delenv("DCP_GPU_GRAPHS", raising=False)
    updates = {"loops": {"ms": 1.0}, "xla": {"ms": 0.5}, "off": {"error": "no answer within 900 s"}}
    (row,) = doctor_gpu._advice({"updates": updates})
    assert row.state == "missing" and row.advice == "Set DCP_GPU_GRAPHS=xla."
    updates["loops"] = {"ms": 0.51}
    (row,) = doctor_gpu._advice({"updates": updates})
    assert row.state == "ok" and "loops is in force" in row.found
    updates["loops"] = {"error": "the process was ended by SIGSEGV"}
    updates["off"] = {"ms": 0.9}
    (row,) = doctor_gpu._advice({"updates": updates})
    assert row.advice == "Set DCP_GPU_GRAPHS=xla."
    assert list(doctor_gpu._advice({"updates": {"xla": {"ms": 5.0}}})) == []


def test_without_gpu_a_gpu_that_jax_uses_has_its_options_tried(monkeypatch):
    """The device and its times are made up: what is shown is which rows are tried and what is said of them."""
    monkeypatch.delenv("DCP_GPU_GRAPHS", raising=False)
    times = {"loops": 2.0, "xla": 1.0}

    def update(row: str) -> dict[str, float]:
        if row not in times:
            raise ProbeError("the process was ended by SIGSEGV")
        return {"ms": times[row]}

    monkeypatch.setattr(doctor_gpu, "_update", update)
    for module in (doctor_gpu, doctor_checks):
        monkeypatch.setattr(module, "look", lambda: {"platform": "gpu"})
    _, off, advice = _gpu(with_options=True)
    assert (off.name, off.state) == ("options off", "missing") and off.advice.startswith(
        "Do not set DCP_GPU_GRAPHS=off"
    )
    assert advice.advice == "Set DCP_GPU_GRAPHS=xla."
    monkeypatch.setattr(doctor_gpu, "look", lambda: {"platform": "cpu"})
    assert list(doctor_gpu.option_checks()) == []


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    with pytest.raises(UserError, match="choose another --gpu-report"):
        next(doctor_gpu.checks(("point_u_maze",), tmp_path / "none" / "report.json"))
