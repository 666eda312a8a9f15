"""A run folder has one writer, takes no other run's place unasked, and keeps what its user put there."""

import csv
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from dcp.errors import UserError
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import policy_about
from dcp.runs.folder import FolderLock, RunFolder, claim
from dcp.runs.replaced_run import discard
from dcp.runs.run_status import owner
from dcp.runs.training import TrainedRun
from tests.support.tiny import tiny_config


def test_a_taken_folder_is_refused_and_overwriting_spares_what_no_run_writes(tmp_path: Path):
    config = tiny_config().resolve(250)
    folder = claim(tmp_path, config)
    folder.lock.release()
    (folder.path / "notes.txt").write_text("mine")
    (folder.path / "plots" / "mine.png").write_text("mine")
    (folder.path / "metrics.csv").write_text("old")
    with pytest.raises(UserError, match="--overwrite"):
        claim(tmp_path, config)
    assert (folder.path / "metrics.csv").read_text() == "old"
    claim(tmp_path, config, overwrite=True).lock.release()
    assert not (folder.path / "metrics.csv").exists()
    assert (folder.path / "notes.txt").read_text() == (folder.path / "plots" / "mine.png").read_text() == "mine"


def test_the_run_that_is_overwritten_stays_until_the_new_one_has_a_result(tmp_path: Path, tiny_run: TrainedRun):
    config = tiny_config().resolve(250)
    old = claim(tmp_path, config)
    old.lock.release()
    (old.path / "metrics.csv").write_text("old")
    (old.path / "plots" / "landscape.png").write_text("old")
    discard(claim(tmp_path, config, overwrite=True))
    assert (old.path / "metrics.csv").read_text() == (old.path / "plots" / "landscape.png").read_text() == "old"
    new = claim(tmp_path, config, overwrite=True)
    new.add(tiny_run.policy, {"env_steps": 400})
    new.lock.release()
    assert {path.name for path in old.path.iterdir()} == {"config.json", "metrics.csv", "plots", "policy.safetensors"}
    assert not any((old.path / "plots").iterdir())


def test_a_lock_that_is_a_pipe_is_refused_and_makes_nobody_wait(tmp_path: Path):
    os.mkfifo(tmp_path / ".lock")
    assert owner(tmp_path) is None
    with pytest.raises(OSError, match=r"\.lock is not a regular file"):
        FolderLock(tmp_path)


class TestColumns:
    """A run that is resumed by a version of dcp with other metrics."""

    @pytest.fixture
    def notes(self) -> list[str]:
        return []

    @pytest.fixture
    def results(self, tmp_path: Path, notes: list[str]):
        results = replace(claim(tmp_path, tiny_config().resolve(250)), resumed=True)
        results.begin([{"env_steps": 400, "gone": 0.25}], notes.append)
        yield results
        results.lock.release()

    @pytest.fixture
    def policy(self, tiny_run: TrainedRun) -> DeployedPolicy:
        return tiny_run.policy

    def rows(self, results: RunFolder) -> list[list[str]]:
        with results.metrics.open(newline="") as file:
            return list(csv.reader(file))

    def test_every_row_gets_every_column_and_one_note_says_so(self, results: RunFolder, policy, notes: list[str]):
        for steps in (800, 1_200):
            results.add(policy, {"env_steps": steps, "added": 1.5})
        assert self.rows(results) == [
            ["env_steps", "gone", "added"],
            ["400", "0.25", "nan"],
            ["800", "nan", "1.5"],
            ["1200", "nan", "1.5"],
        ]
        assert notes == ["metrics.csv has other columns from here (added, gone): rows without one have nan there."]
        assert math.isnan(results.rows[0]["added"]) and results.rows[1]["added"] == 1.5

    def test_the_policy_stays_until_its_row_is_written(self, results: RunFolder, policy, monkeypatch):
        results.add(policy, {"env_steps": 800, "gone": 0.5})

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("dcp.runs.folder._as_csv", full)
        with pytest.raises(OSError):
            results.add(policy, {"env_steps": 1_200, "gone": 0.5})
        assert policy_about(results.path)["env_steps"] == 800
        assert len(results.rows) == 2

    def test_rows_are_on_disk_at_once_and_in_the_order_of_the_columns(self, results: RunFolder, policy):
        results.add(policy, {"gone": 0.5, "env_steps": 800})
        assert self.rows(results)[1:] == [["400", "0.25"], ["800", "0.5"]]
