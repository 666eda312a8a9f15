"""`dcp doctor --gpu`: on a CPU, which is all there is here; and what it makes of numbers that a device could give."""

import json

import pytest

from dcp.cli import doctor_checks, doctor_gpu
from dcp.cli.doctor import _gpu
from dcp.cli.doctor_gpu import CPU_NUMBERS, TOLERANCE
from dcp.cli.main import main
from dcp.errors import UserError
from dcp.render.offscreen import ProbeError


@pytest.mark.slow
def test_on_a_cpu_it_measures_everything_and_agrees_with_itself(tmp_path, capsys):
    report = tmp_path / "report.json"
    argv = ["doctor", "--gpu", "--no-self-test", "--gpu-envs", "point_u_maze", "--gpu-report", str(report), "--json"]
    main(argv)  # its code also speaks of what else this machine lacks
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    assert all(rows[name]["state"] == "ok" for name in ("device", "point_u_maze", "xla", "short run", "agreement"))
    found = json.loads(report.read_text())
    assert found["platform"] == "cpu" and found["agreement"]["agrees"]
    assert found["environments"]["point_u_maze"]["steps_per_second"] > 1_000
    assert 0.1 < found["updates"]["xla"]["ms"] < 10_000
    assert max(found["agreement"]["gaps"].values()) < 1e-3  # the same processor family or not, this is float32


def test_numbers_off_a_cpus_are_named_and_a_nan_is_off():
    found: dict = {}
    (row,) = doctor_gpu._agreement(dict(CPU_NUMBERS), found)
    assert row.state == "ok" and found["agreement"]["agrees"]
    changed = CPU_NUMBERS | {"crl/critic_loss": CPU_NUMBERS["crl/critic_loss"] * (1 + 2 * TOLERANCE)}
    (row,) = doctor_gpu._agreement(changed, found)
    assert row.state == "problem" and row.found.startswith("crl/critic_loss by 4.0%")
    (row,) = doctor_gpu._agreement({"dcp/entropy": float("nan")}, found)
    assert row.state == "problem" and not found["agreement"]["agrees"]
    (row,) = doctor_gpu._agreement({}, found)
    assert row.state == "problem"


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
