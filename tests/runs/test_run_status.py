"""What a run folder says of itself, and what is said of one that does not fit this machine or version."""

import json
import os
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dcp.errors import RunError, UserError
from dcp.loop import Evaluation
from dcp.runs import checkpoint, run_status
from dcp.runs.checkpoint import DamagedError, machine
from dcp.runs.resuming import resume
from dcp.runs.training import TrainedRun, train
from tests.support.same_run import final_arrays
from tests.support.tiny import tiny_config


@pytest.fixture
def folder(tiny_run: TrainedRun, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))


def rewritten(path: Path, **changes: object) -> None:
    """Write a checkpoint again with a changed record and checksums that fit."""
    record = {**run_status.read_record(path), **changes}
    checkpoint.publish(path.rename(path.with_name(f"{path.name}.draft")), record)


def test_a_policy_of_the_zoo_has_nothing_to_resume_from():
    with pytest.raises(UserError, match="is a policy of the package, without a checkpoint"):
        run_status.read_plan(Path("zoo/point_u_maze/dcp"))


def test_a_default_that_is_not_the_runs_asks_for_the_runs_preset(folder: Path):
    with pytest.raises(UserError, match=r"--pool-size 512, the default, is not the run's \d+: give the run's --preset"):
        run_status.budget_to_resume_with(folder, replace(tiny_config(), pool_size=512))


def test_checksums_that_are_a_pipe_make_nobody_wait(folder: Path):
    newest = checkpoint.checkpoints(folder / "checkpoints")[0]
    (newest / "SHA256SUMS").unlink()
    os.mkfifo(newest / "SHA256SUMS")
    with pytest.raises(DamagedError, match="SHA256SUMS is neither a file nor a folder"):
        run_status.verify(newest)
    assert not run_status.is_finished(folder) or len(checkpoint.checkpoints(folder / "checkpoints")) > 1


def test_a_checkpoint_with_far_more_bytes_than_its_arrays_is_not_even_hashed(folder: Path, monkeypatch):
    for path in checkpoint.checkpoints(folder / "checkpoints"):
        os.truncate(path / "state.npz", 10**12)  # sparse: no disk is used
    monkeypatch.setattr(run_status, "verify", None)
    with pytest.raises(UserError, match="every checkpoint of"):
        resume(folder, steps=tiny_config().steps * 2, display="none")


def test_checksums_are_read_within_bounds(folder: Path):
    newest = checkpoint.checkpoints(folder / "checkpoints")[0]
    os.truncate(newest / "SHA256SUMS", 10**12)  # sparse: no disk is used
    with pytest.raises(DamagedError, match="SHA256SUMS is damaged"):
        run_status.verify(newest)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("XLA_FLAGS", "--xla_cpu_enable_fast_math=true"),
        ("LIBTPU_INIT_ARGS", "--xla_tpu_some_flag=true"),
    ],
)
def test_flags_that_change_bits_are_stored_and_a_change_is_said_at_resume(
    name: str, value: str, folder: Path, capsys, monkeypatch
):
    monkeypatch.setenv(name, f"{os.environ.get(name, '')} {value}")  # too late for JAX to read
    resume(folder, steps=4_400, display="none")
    assert f"Not what this run was trained with ({name.lower()} none -> {value}): it resumes" in capsys.readouterr().err


def test_a_change_of_jaxs_numerics_is_said_at_resume(folder: Path, capsys):
    newest = checkpoint.checkpoints(folder / "checkpoints")[0]
    stored = run_status.read_record(newest)["machine"]
    assert stored["jax_threefry_partitionable"] == "True"
    rewritten(newest, machine={**stored, "jax_threefry_partitionable": "False"})
    resume(folder, steps=4_400, display="none")
    assert "(jax_threefry_partitionable False -> True)" in capsys.readouterr().err


def test_the_devices_that_a_config_asks_for_are_no_change_of_xlas_flags(monkeypatch):
    ours = "--xla_force_host_platform_device_count=2 --xla_cpu_collective_call_terminate_timeout_seconds=86400"
    monkeypatch.setenv("XLA_FLAGS", f"--b=1 {ours} --a=2")
    assert machine()["xla_flags"] == "--a=2 --b=1"


def test_the_command_to_resume_can_be_pasted_whatever_the_folder_is_called(tiny_run: TrainedRun, tmp_path: Path):
    folder = Path(shutil.copytree(tiny_run.folder, tmp_path / "q" / "$(touch PWNQ) x"))
    command = run_status.resume_command(folder)
    assert shlex.split(command) == ["dcp", "train", "--resume", str(folder)]
    assert f"'{folder}'" in command


def test_a_run_of_another_version_resumes_with_the_columns_of_both(tiny_run: TrainedRun, folder: Path, capsys):
    """Its checkpoint lacks a column of today's rows and has one that nobody writes any more."""
    for path in checkpoint.checkpoints(folder / "checkpoints"):
        rows = run_status.read_record(path)["rows"]
        old = [{"old_column": 1.0, **{name: row[name] for name in row if name != "entropy"}} for row in rows]
        rewritten(path, rows=old)
    run = resume(folder, steps=5_600, display="none")
    assert [np.isnan(row["entropy"]) for row in run.rows] == [True, True, False]
    assert [np.isnan(row["old_column"]) for row in run.rows] == [False, False, True]
    assert capsys.readouterr().err.count("has other columns from here (entropy, old_column)") == 1
    saved = json.loads((checkpoint.checkpoints(folder / "checkpoints")[0] / "checkpoint.json").read_text())
    assert set(saved["rows"][0]) == set(saved["rows"][2])
    longer = resume(folder, steps=6_400, display="none")  # the checkpoint with nan is read again
    assert len(longer.rows) == 4 and len(final_arrays(folder)) > 20


def test_a_disk_that_fills_before_anything_is_kept_gets_no_command_to_resume(tmp_path: Path):
    def full(evaluation: Evaluation) -> None:
        raise AssertionError("no evaluation is reached")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcp.runs.folder._as_csv", lambda lines: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(RunError, match=r"No space left on device\): nothing was kept; repair that"):
            train(tiny_config(), full, runs_dir=tmp_path, display="none")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["acting/command/pool", "acting/command/pooled/pool"])
def test_the_pool_is_found_wherever_a_commands_state_holds_it(name: str, tmp_path: Path):
    """`Frontier` keeps the paper's state inside its own."""
    (tmp_path / "checkpoints").mkdir()
    draft = checkpoint.new_draft(tmp_path / "checkpoints", 3, 1)
    arrays = {name: np.array([[1.0, 2.0]], np.float32), "acting/command/seeded": np.zeros(())}
    checkpoint.write_arrays(draft, arrays)
    checkpoint.publish(draft, {"arrays": {name: checkpoint.type_and_shape(array) for name, array in arrays.items()}})
    pool = run_status.read_pool(tmp_path)
    assert pool is not None and np.array_equal(pool, [[1.0, 2.0]])
