"""Damaged run folders give one sentence."""

import shutil
from pathlib import Path

import pytest

from dcp.errors import UserError
from dcp.files.run_folder import load_run


@pytest.fixture
def folder(tiny_run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))


def test_a_folder_that_is_no_run_gives_one_sentence(tmp_path: Path):
    with pytest.raises(UserError, match="not a run folder"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("content", "fix"),
    [
        (None, "no evaluation yet"),
        ("", "is empty"),
        ("env_steps,success_once\n1\n", "damaged"),
        ("env_steps,success_once\n1,high\n", "damaged"),
        ("env_steps,success_once\n1,0.5\n2\n", "damaged"),
    ],
)
def test_damaged_metrics_give_one_sentence(content: str | None, fix: str, folder: Path):
    (folder / "metrics.csv").unlink()
    if content is not None:
        (folder / "metrics.csv").write_text(content)
    with pytest.raises(UserError, match=fix):
        load_run(folder)


def test_a_file_with_only_a_header_is_a_run_without_evaluations(folder: Path):
    (folder / "metrics.csv").write_text("env_steps,success_once\n")
    assert load_run(folder).metrics["env_steps"].shape == (0,)
