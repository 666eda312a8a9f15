"""A checkpoint is whole or not there, and no byte of it can change unseen."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dcp.runs import checkpoint as files
from dcp.runs import run_status
from dcp.runs.training import TrainedRun


@pytest.fixture(scope="session")
def checkpoint(tiny_run: TrainedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real one, to be damaged and mended again."""
    newest = files.checkpoints(tiny_run.folder / "checkpoints")[0]
    return Path(shutil.copytree(newest, tmp_path_factory.mktemp("checkpoint") / newest.name))


def all_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_byte_anywhere_is_seen(checkpoint: Path, data: st.DataObject):
    run_status.verify(checkpoint)
    victim = data.draw(st.sampled_from(all_files(checkpoint)))
    content = victim.read_bytes()
    position = data.draw(st.integers(0, len(content) - 1))
    flipped = content[position] ^ data.draw(st.integers(1, 255))
    try:
        victim.write_bytes(content[:position] + bytes([flipped]) + content[position + 1 :])
        with pytest.raises(files.DamagedError):
            run_status.verify(checkpoint)
    finally:
        victim.write_bytes(content)


@pytest.mark.parametrize("size", [0, 1, -1])
def test_a_file_cut_short_is_seen(checkpoint: Path, size: int):
    for victim in all_files(checkpoint):
        content = victim.read_bytes()
        try:
            victim.write_bytes(content[:size])
            with pytest.raises(files.DamagedError, match=r"checksum of .*|SHA256SUMS is damaged"):
                run_status.verify(checkpoint)
        finally:
            victim.write_bytes(content)


def test_a_missing_file_and_one_too_many_are_seen(checkpoint: Path):
    for victim in all_files(checkpoint):
        hidden = victim.rename(checkpoint.parent / "hidden")
        with pytest.raises(files.DamagedError):
            run_status.verify(checkpoint)
        hidden.rename(victim)
    extra = checkpoint / "extra"
    extra.write_text("")
    with pytest.raises(files.DamagedError, match="extra"):
        run_status.verify(checkpoint)
    extra.unlink()
    extra.symlink_to("/dev/zero")
    with pytest.raises(files.DamagedError, match="extra is neither a file nor a folder"):
        run_status.verify(checkpoint)
    extra.unlink()
    run_status.verify(checkpoint)


def test_the_system_s_own_tool_can_judge_it(checkpoint: Path):
    done = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=checkpoint)
    assert done.returncode == 0


def written(folder: Path, unrolls: int, evaluations: int) -> Path:
    draft = files.new_draft(folder, unrolls, evaluations)
    (draft / "state.npz").write_text(str(unrolls))
    return files.publish(draft, {"unrolls": unrolls})


def test_the_last_two_are_kept(tmp_path: Path):
    for unrolls, evaluations in [(99, 1), (100, 1), (100, 2), (1_000, 3)]:
        written(tmp_path, unrolls, evaluations)
    assert [path.name for path in files.checkpoints(tmp_path)] == ["000001000_00003", "000000100_00002"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_moment_can_be_saved_twice(tmp_path: Path):
    written(tmp_path, 5, 1)
    run_status.verify(written(tmp_path, 5, 1))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_draft_is_no_checkpoint_and_can_be_cleared_away(tmp_path: Path):
    whole = written(tmp_path, 5, 1)
    files.new_draft(tmp_path, 6, 1)
    assert files.checkpoints(tmp_path) == [whole]
    files.remove_drafts(tmp_path)
    assert list(tmp_path.iterdir()) == [whole]
