"""`--overwrite` ended at any line: the run that was there, or the new one, is whole."""

import fcntl
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dcp.errors import RunError, UserError
from dcp.machine.signals import Interrupted
from dcp.runs import replaced_run
from dcp.runs.folder import FolderLock, RunFolder, claim
from dcp.runs.replaced_run import discard, drop_replaced, finish_replacing, keep_replaced, restore_replaced
from dcp.runs.resuming import reopen
from dcp.runs.training import train
from tests.support.tiny import tiny_config

CONFIG = tiny_config().resolve(250)
OLD = ("metrics.csv", "policy.safetensors", "checkpoints/000000010_00002/state/x", "plots/landscape.png")


class KilledError(BaseException):
    """Nothing cleans up after it."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An old run, and a file of its user's."""
    folder = claim(tmp_path, CONFIG)
    folder.lock.release()
    for name in OLD:
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_text("old")
    (folder.path / "notes.txt").write_text("mine")
    return folder.path


def killed_after(operations: int, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> bool:
    """Whether `work` was ended by its change to the file system after so many."""
    left = operations

    def counted(change: Callable) -> Callable:
        def call(*args, **kwargs):
            nonlocal left
            if left == 0:
                raise KilledError
            left -= 1
            return change(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in ("replace", "rename"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        patch.setattr("dcp.runs.replaced_run._remove", counted(replaced_run._remove))
        try:
            work()
        except KilledError:
            return True
    return False


def is_old(path: Path) -> bool:
    return all((path / name).exists() and (path / name).read_text() == "old" for name in OLD)


@pytest.mark.parametrize("operations", range(12))
def test_ended_while_the_old_run_is_set_aside_it_is_still_there(operations: int, path: Path, monkeypatch):
    killed = killed_after(operations, monkeypatch, lambda: keep_replaced(path))
    assert killed == (operations < 10)  # four things and config.json: each target cleared, each moved
    with pytest.raises(UserError, match="use --overwrite"):
        claim(path.parents[2], CONFIG)
    assert is_old(path)
    assert not (path / ".replaced").exists()


@pytest.mark.parametrize("operations", range(14))
def test_ended_while_a_run_without_result_is_discarded_the_old_one_comes_back(operations: int, path: Path, monkeypatch):
    claim(path.parents[2], CONFIG, overwrite=True).lock.release()
    (path / "checkpoints").mkdir()
    killed = killed_after(operations, monkeypatch, lambda: restore_replaced(path))
    assert killed == (operations < 13)  # two things of the new run go, then the old one's five come back
    discard(claim(path.parents[2], CONFIG, overwrite=True))
    assert is_old(path)
    assert (path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("operations", range(3))
def test_ended_while_the_old_run_is_let_go_the_new_one_is_whole(operations: int, path: Path, monkeypatch):
    claim(path.parents[2], CONFIG, overwrite=True).lock.release()
    (path / "metrics.csv").write_text("new")
    killed_after(operations, monkeypatch, lambda: drop_replaced(path))
    finish_replacing(path)
    assert (path / "config.json").exists()
    assert (path / "metrics.csv").read_text() == "new"


def test_overwriting_twice_without_a_result_brings_back_the_first(path: Path):
    claim(path.parents[2], CONFIG, overwrite=True).lock.release()  # as after kill -9
    discard(claim(path.parents[2], CONFIG, overwrite=True))
    assert is_old(path)


def test_a_disk_that_is_full_at_the_start_leaves_the_old_run(path: Path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("dcp.runs.folder.write_whole", full)
    with pytest.raises(UserError, match="No space left"):
        claim(path.parents[2], CONFIG, overwrite=True)
    assert is_old(path)


def test_checkpoints_that_are_a_link_are_refused_not_emptied(path: Path, tmp_path: Path):
    elsewhere = (path / "checkpoints").rename(tmp_path / "scratch")
    (path / "checkpoints").symlink_to(elsewhere)
    with pytest.raises(UserError, match="checkpoints is a link that leads out of the run folder"):
        claim(path.parents[2], CONFIG, overwrite=True)
    assert (elsewhere / "000000010_00002/state/x").read_text() == "old"


def test_drafts_of_a_process_that_was_killed_are_cleared_away(path: Path):
    (path / ".policy.safetensors.123.tmp").write_text("half")
    (path / ".config.json.123.tmp").write_text("half")
    reopen(path).lock.release()
    assert not list(path.glob(".*.tmp"))
    assert is_old(path)


def test_a_run_whose_folder_was_removed_leaves_the_new_run_there_alone(tmp_path: Path):
    old = claim(tmp_path, CONFIG)
    shutil.rmtree(old.path)
    new = claim(tmp_path, CONFIG)
    with pytest.raises(RunError, match="was moved or removed"):
        old.save_fault({})
    old.leave()
    assert (new.path / "config.json").exists() and not new.fault.exists()
    assert new.lock.lost() is None


def test_a_run_that_ends_after_its_folder_was_replaced_removes_nothing_of_the_new_run(tmp_path: Path, monkeypatch):
    new: list[RunFolder] = []

    def replaced_and_stopped(*_):
        shutil.rmtree(tmp_path / CONFIG.run_path)
        new.append(claim(tmp_path, CONFIG))
        (new[0].saver.folder / "000000001_00000.draft").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("dcp.runs.training.train_loop", replaced_and_stopped)
    with pytest.raises(Interrupted):
        train(CONFIG, runs_dir=tmp_path, display="none")
    assert (new[0].path / "config.json").exists() and new[0].lock.is_held()
    assert (new[0].saver.folder / "000000001_00000.draft").exists()


def test_a_process_that_only_looks_does_not_keep_a_writer_out(tmp_path: Path):
    looking = os.open(tmp_path / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.05, os.close, [looking]).start()
    lock = FolderLock(tmp_path)
    with pytest.raises(UserError, match=f"is in use by process {os.getpid()}"):
        FolderLock(tmp_path)
    lock.release()
