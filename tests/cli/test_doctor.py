"""`dcp doctor` on this machine as it is, and on one that is really broken in many ways at once."""

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from dcp.cli import doctor as command
from dcp.cli.doctor import Check, guarded
from dcp.cli.main import main
from dcp.config import Settings
from dcp.lab.offscreen import ProbeError, in_a_process

LEFT_ALONE = {"JAX_PLATFORMS", "JAX_COMPILATION_CACHE_DIR"}  # set by conftest; a user's machine has neither


def doctor(*flags: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dcp.cli.main", "doctor", *flags]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=900)


@pytest.fixture(scope="module")
def well(tiny_run, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """This machine. The self-test finds what tiny_run has compiled, so it must be compiled alike: optimized."""
    cwd, temporary = tmp_path_factory.mktemp("well"), tmp_path_factory.mktemp("temporary")
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "TMPDIR": str(temporary)}
    result = doctor(cwd=cwd, env={**os.environ, **quick})
    result.left_behind = [*cwd.iterdir(), *temporary.glob("dcp-doctor-*")]
    return result


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], dict[str, dict]]:
    """A file where the runs go, a GPU that JAX cannot use, an old package, one that does
    not import, an extra that is not installed, no EGL vendor: and the rows by name."""
    cwd = tmp_path_factory.mktemp("sick")
    (cwd / "runs").write_text("in the way")
    tool = cwd / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho NVIDIA Test 9000\n")
    tool.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name not in LEFT_ALONE}
    env |= {
        "DCP_CACHE_DIR": str(cwd / "cache"),
        "PATH": f"{tool.parent}{os.pathsep}{env['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(site(cwd)), *filter(None, [env.get("PYTHONPATH")])]),
        "__EGL_VENDOR_LIBRARY_FILENAMES": str(cwd / "no_vendor.json"),
        "PYOPENGL_PLATFORM": "egl",  # MuJoCo then refuses OSMesa, where there is one
    }
    result = doctor("--json", "--no-self-test", cwd=cwd, env=env)
    return result, {row["name"]: row for row in json.loads(result.stdout)["checks"]}


def site(cwd: Path) -> Path:
    """Packages that are found before the installed ones."""
    folder = cwd / "site"
    (folder / "flatbuffers").mkdir(parents=True)
    (folder / "flatbuffers" / "__init__.py").write_text("raise ImportError('half of flatbuffers is gone')")
    old = folder / "safetensors-0.1.0.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: safetensors\nVersion: 0.1.0\n")
    own = folder / "dcp_rl-0.1.0.dist-info"
    own.mkdir()
    extra = "Provides-Extra: telepathy\nRequires-Dist: no-such-package>=1; extra == 'telepathy'\n"
    text = distribution("dcp-rl").read_text("METADATA") or distribution("dcp-rl").read_text("PKG-INFO")
    assert text is not None and "Provides-Extra: dev\n" in text
    (own / "METADATA").write_text(text.replace("Provides-Extra: dev\n", f"{extra}Provides-Extra: dev\n"))
    return folder


def cells(table: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines()]
    return {row[0]: row[1:] for row in rows if row and row[0]}


def test_all_that_is_needed_works_here(well):
    assert well.returncode == 0, well.stdout + well.stderr
    rows = cells(well.stdout)
    needed = ("Python", "packages", "JAX", "disk for runs", "training")
    assert {name: rows[name][0] for name in needed} == dict.fromkeys(needed, "ok")
    assert "Everything" in well.stdout.splitlines()[-1]


def test_the_self_test_has_trained_to_the_end_of_its_budget(well):
    """10 unrolls of 16 x 25 steps, 2 of which fill the replay; each of the other 8 makes 16 x 32 / 64 updates."""
    found = cells(well.stdout)["training"][1]
    assert found.startswith("4,000 steps and 64 updates in ")
    assert "acts as the trained one" in found


def test_nothing_is_left_behind(well):
    assert well.left_behind == []


def test_what_is_under_way_goes_to_stderr(well):
    lines = well.stderr.splitlines()
    assert lines[0] == "1 of 9: Python"
    assert lines[-1] == "9 of 9: training"
    assert "of 9:" not in well.stdout


def test_rendering_was_tried_and_is_not_needed(well):
    state, found = cells(well.stdout)["rendering"]
    assert state in ("ok", "missing")
    assert "MUJOCO_GL=" in found if state == "ok" else "fails" in found


def test_a_runs_folder_that_cannot_be_made_is_a_problem(sick):
    result, rows = sick
    assert result.returncode == 1
    assert json.loads(result.stdout)["ok"] is False
    assert "Traceback" not in result.stderr
    assert rows["disk for runs"]["state"] == "problem"
    assert "--runs-dir" in rows["disk for runs"]["advice"]


def test_a_gpu_that_jax_does_not_use_is_reported_with_its_extra(sick):
    row = sick[1]["GPU"]
    assert row["state"] == "missing"
    assert "NVIDIA Test 9000" in row["found"]
    assert row["advice"] == "pip install '.[cuda]' in a clone of dcp"


def test_a_package_that_is_too_old_is_a_problem(sick):
    row = sick[1]["safetensors"]
    assert row["state"] == "problem"
    assert "0.1.0 is installed, where >=0.5 is needed" in row["found"]
    assert row["advice"] == "pip install 'safetensors>=0.5'"
    assert "safetensors" not in sick[1]["packages"]["found"]


def test_a_package_that_does_not_import_is_a_problem(sick):
    row = sick[1]["flatbuffers"]
    assert row["state"] == "problem"
    assert "half of flatbuffers is gone" in row["found"]
    assert "--force-reinstall 'flatbuffers" in row["advice"]


def test_an_extra_of_tomorrow_shows_up_by_itself(sick):
    row = sick[1]["extra telepathy"]
    assert row["state"] == "missing"
    assert row["found"] == "no-such-package is not installed"
    assert row["advice"].endswith("pip install '.[telepathy]' in a clone of dcp")
    assert "extra dev" not in sick[1]


@pytest.mark.skipif(sys.platform != "linux", reason="EGL and OSMesa are Linux's")
def test_without_a_render_backend_the_row_says_what_to_install(sick):
    row = sick[1]["rendering"]
    assert row["state"] == "missing"
    assert "egl fails" in row["found"] and "osmesa fails" in row["found"]
    assert "libegl1" in row["advice"] and "libosmesa6" in row["advice"]


def test_json_is_the_whole_of_stdout_and_names_every_check(sick):
    result, rows = sick
    assert len(result.stdout.splitlines()) == 1
    assert all(set(row) == {"name", "state", "found", "advice"} for row in rows.values())
    assert all(bool(row["advice"]) == (row["state"] != "ok") for row in rows.values())
    assert "training" not in rows


def test_without_jax_the_other_rows_still_come(monkeypatch, tmp_path: Path):
    """JAX is really asked for a platform that it does not have."""
    monkeypatch.setenv("JAX_PLATFORMS", "abacus")
    command.look.cache_clear()
    try:
        (jax,) = command.jax_starts()
        (memory,), (runs,) = command.memory(), command.runs_disk(tmp_path)
    finally:
        command.look.cache_clear()
    assert jax.state == "problem"
    assert "abacus" in jax.found and "unset it" in jax.advice
    assert (memory.state, runs.state) == ("missing", "ok")


def test_too_little_memory_for_the_paper_is_reported(monkeypatch, tmp_path: Path):
    """2.6 x 4 GB do not fit into 8 GB of memory."""
    monkeypatch.setattr(command, "look", lambda: {"available": 8e9, "memory": 4e9})
    (memory,), (runs,) = command.memory(), command.runs_disk(tmp_path / "not" / "yet")
    assert (memory.state, runs.state) == ("missing", "ok")
    assert "8.0 GB available" in memory.found and "10.4 GB" in memory.found
    assert not (tmp_path / "not").exists()


def test_a_check_that_fails_itself_is_a_row():
    def check():
        raise KeyError("spleen")

    assert guarded("spleen", check)[0].state == "problem"
    assert "KeyError: 'spleen'" in guarded("spleen", check)[0].found
    assert guarded("heart", lambda: [Check("heart", "ok", "beats")]) == [Check("heart", "ok", "beats")]


def test_a_child_that_crashes_or_hangs_is_one_sentence():
    with pytest.raises(ProbeError, match="SIGABRT"):
        in_a_process(os.abort, timeout=60)
    with pytest.raises(ProbeError, match=r"no answer within 1 s"):
        in_a_process(sleep, timeout=1, env={"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[2])])})


def sleep() -> None:
    import time

    time.sleep(60)


def test_flags_are_checked_before_anything_runs(capsys):
    assert main(["doctor", "--jason"]) == 2
    assert capsys.readouterr().err == "dcp: unknown option --jason: did you mean --json?\n"


def test_help_documents_the_exit_code(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "--help"])
    assert stop.value.code == 0
    assert "exit code: 0, or 1 if there is a problem" in capsys.readouterr().out


def test_the_runs_folder_checked_is_the_one_that_train_uses():
    from dcp.cli.train import TrainOptions

    assert command.DoctorOptions().runs_dir == TrainOptions(Settings()).runs_dir
