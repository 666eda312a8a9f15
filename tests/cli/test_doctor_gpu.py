"""`dcp doctor --gpu`: on a CPU, which is all there is here; and what it makes of numbers that a device could give."""

import json

import jax
import numpy as np
import pytest

from dcp.cli import doctor_gpu
from dcp.cli.doctor_gpu import CPU_NUMBERS, TOLERANCE
from dcp.cli.main import main
from dcp.errors import UserError
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


def test_numbers_off_a_cpus_are_named_and_one_that_is_missing_or_nan_is_off():
    entry, row = doctor_gpu._agreement(dict(CPU_NUMBERS), ("pusher_hard",))
    assert row.state == "ok" and entry["agrees"] and set(entry["gaps"]) == set(CPU_NUMBERS)
    assert "pusher_hard/mean_observation" not in doctor_gpu._agreement({}, ("ant_u_maze",))[0]["gaps"]
    changed = CPU_NUMBERS | {"crl/critic_loss": CPU_NUMBERS["crl/critic_loss"] * (1 + 2 * TOLERANCE)}
    entry, row = doctor_gpu._agreement(changed, ())
    assert row.state == "problem" and row.found.startswith("crl/critic_loss by 4.0% off") and not entry["agrees"]
    entry, row = doctor_gpu._agreement(CPU_NUMBERS | {"dcp/entropy": float("nan")}, ())
    assert row.state == "problem" and row.found.startswith("dcp/entropy by nan%") and not entry["agrees"]
    missing = {name: value for name, value in CPU_NUMBERS.items() if not name.startswith("pusher")}
    entry, row = doctor_gpu._agreement(missing, ("pusher_hard",))
    assert row.state == "problem" and row.found.startswith("pusher_hard/mean_observation by nan%")


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
def test_the_options_that_a_program_has_are_those_that_xla_accepts(accepted: bool, used: str, precision, monkeypatch):
    monkeypatch.delenv("DCP_GPU_GRAPHS", raising=False)
    monkeypatch.setattr(compiling, "_accepted", lambda options: accepted)
    assert doctor_gpu.graphs_in_use() == "xla"  # on a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert doctor_gpu.graphs_in_use() == used


def test_options_that_xla_refuses_are_reported_and_their_time_counts_for_nobody(monkeypatch):
    monkeypatch.delenv("DCP_GPU_GRAPHS", raising=False)
    answer = {"ms": 0.5, "found": "0.50 ms per update", "graphs": "xla"}
    monkeypatch.setattr(doctor_gpu, "in_a_process", lambda *args, **kwargs: answer)
    loops = doctor_gpu._update("loops")
    assert not doctor_gpu._update("xla")["refused"]
    row = doctor_gpu._row("loops", loops)
    assert row.state == "missing" and row.advice == "XLA refuses the options loops: its own choice is used."
    (advice,) = doctor_gpu._advice({"loops": loops, "xla": {"ms": 1.0}, "off": {"ms": 1.01}})
    assert advice.state == "ok" and "loops" not in advice.found and "xla is in force" in advice.found


def test_options_that_are_faster_here_are_recommended(monkeypatch):
    monkeypatch.delenv("DCP_GPU_GRAPHS", raising=False)
    updates = {"loops": {"ms": 1.0}, "xla": {"ms": 0.5}, "off": {"error": "no answer within 900 s"}}
    (row,) = doctor_gpu._advice(updates)
    assert row.state == "missing" and row.advice == "Set DCP_GPU_GRAPHS=xla."
    updates["loops"] = {"ms": 0.51}
    (row,) = doctor_gpu._advice(updates)
    assert row.state == "ok" and "loops is in force" in row.found
    updates["loops"] = {"error": "the process was ended by SIGSEGV"}
    updates["off"] = {"ms": 0.9}
    (row,) = doctor_gpu._advice(updates)
    assert row.advice == "Set DCP_GPU_GRAPHS=xla."
    assert list(doctor_gpu._advice({"xla": {"ms": 5.0}})) == []


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    with pytest.raises(UserError, match="choose another --gpu-report"):
        next(doctor_gpu.checks(("point_u_maze",), tmp_path / "none" / "report.json"))


def test_a_report_replaces_a_link_of_its_name(tmp_path, monkeypatch):
    (victim := tmp_path / "victim").write_text("mine")
    (report := tmp_path / "report.json").symlink_to(victim)

    def answer(what: object, *args: object, **kwargs: object) -> dict[str, object]:
        if what is not doctor_gpu.describe:
            raise doctor_gpu.ProbeError("no answer")
        return {"platform": "cpu", "kind": "cpu", "count": 1, "jax": "0"}

    monkeypatch.setattr(doctor_gpu, "in_a_process", answer)
    assert [row.state for row in doctor_gpu.checks((), report)][-1] == "ok"
    assert victim.read_text() == "mine" and "no answer" in report.read_text()
