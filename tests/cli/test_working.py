"""Where commands put their results: beside what they show."""

import os
import shutil
from pathlib import Path

import pytest

from dcp.cli.main import main
from dcp.cli.working import beside
from dcp.errors import UserError
from dcp.runs.training import TrainedRun


def test_results_lie_beside_what_they_show(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs/line/dcp/seed_0"
    run.mkdir(parents=True)
    for file in (run / "config.json", run / "policy.safetensors", tmp_path / "mine.safetensors"):
        file.write_text("{}")
    assert beside(run, "explore.html") == beside(run / "policy.safetensors", "explore.html") == run / "explore.html"
    assert beside("runs", "report") == Path("runs/report")
    assert beside("mine.safetensors", "explore.html") == Path("runs/mine/explore.html")
    assert beside("zoo/point_u_maze/dcp", "a.png") == Path("runs/zoo/point_u_maze/dcp/a.png")


def test_a_picture_is_not_written_where_a_link_leads(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "compare.pdf").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match=r"compare\.pdf is a link that leads out"):
        beside(tmp_path, "compare.png")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named_before_the_work(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="choose another place with --out"):
        beside(tmp_path, "explore.html")


def test_no_command_writes_into_the_current_folder(tiny_run: TrainedRun, tmp_path: Path, monkeypatch):
    for name in ("a", "b"):
        shutil.copytree(tiny_run.folder, tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "runs/a", "runs/b"]) == 0
    assert main(["landscape", "runs/a", "--rollouts", "0", "--no-directions"]) == 0
    assert main(["explore", "runs/b", "--no-open"]) == 0
    assert main(["report", "runs"]) == 0
    made = ("a/compare.png", "a/compare.pdf", "a/landscape.png", "b/explore.html", "report/report.html")
    assert [name for name in made if not (tmp_path / "runs" / name).is_file()] == []
    assert os.listdir(tmp_path) == ["runs"]
