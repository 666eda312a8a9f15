"""`dcp report` from the command line."""

from pathlib import Path

import pytest

from dcp.cli.main import main
from tests.support.report_runs import write_run


def test_a_folder_of_runs_becomes_a_page_with_its_files(tmp_path: Path, capsys):
    runs, out = tmp_path / "runs", tmp_path / "out"
    write_run(runs, seed=0)
    write_run(runs, seed=1, success=(0.1, 0.2))
    write_run(runs, seed=2, success=())
    assert main(["report", str(runs), "--out", str(out), "--checkpoints", "1000", "--x", "seconds"]) == 0
    shown = capsys.readouterr()
    assert f"{out / 'report.html'} (" in shown.out
    assert "3 runs" in shown.out
    assert '"axis":"seconds"' in (out / "report.html").read_text()
    assert {path.name for path in out.iterdir()} == {"report.html", "figures", "tables"}  # no draft is left
    assert "1k" in (out / "tables" / "checkpoints_success_once.csv").read_text()
    assert "report: figures: " in shown.err  # what it was doing
    assert "running or stopped at 2,000 of 3,000 steps" in shown.err
    assert "no evaluation" in shown.err


def test_a_report_is_written_over_the_last_one(tmp_path: Path, capsys):
    write_run(tmp_path / "runs", success=())
    for _ in range(2):
        assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 0
        said = capsys.readouterr().out
        assert ": 1 run\n" in said and "1 table in " in said


def test_a_report_on_only_damaged_runs_is_written_and_fails(tmp_path: Path, capsys):
    write_run(tmp_path / "runs", seed=0)
    damaged = write_run(tmp_path / "damaged", seed=1)
    (damaged / "config.json").write_text("{")
    assert main(["report", str(tmp_path / "damaged"), "--out", str(tmp_path / "out")]) == 1
    assert "damaged" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "damaged"), str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "nothing to report on: name run folders, or a folder above them such as runs/"),
        (["{there}"], "no run below {there}: a run folder has a config.json (dcp train)"),
        (["{there}/nowhere"], "there is no folder {there}/nowhere"),
        (["{there}", "--checkpoints", "0"], "--checkpoints takes environment steps above 0"),
        (
            ["{there}", "--checkpoints", "many"],
            "--checkpoints takes whole numbers, not 'many': see `dcp report --help`",
        ),
        (["{there}", "--x", "hours"], "unknown value 'hours' for --x: choose one of steps, seconds"),
        (["{there}", "--wide"], "unknown option --wide"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, capsys, monkeypatch, argv: list[str], sentence: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    code = main(["report", *(arg.format(there=tmp_path / "there") for arg in argv)])
    said = capsys.readouterr().err
    assert code == 2
    assert sentence.format(there=tmp_path / "there") in said
    assert len([line for line in said.splitlines() if line.startswith("dcp: ")]) == 1


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_an_out_that_is_not_a_folder_is_reported_before_the_work(tmp_path: Path, capsys, place: str):
    write_run(tmp_path / "runs")
    (tmp_path / "file").write_text("")
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / place)]) == 2
    said = capsys.readouterr().err
    assert f"cannot write to {tmp_path / place}" in said
    assert "choose another folder with --out" in said
    assert "reading runs" not in said


@pytest.mark.parametrize("name", ["report.html", "figures", "tables", "tables/runs.csv"])
def test_nothing_is_written_through_a_link_out_of_the_folder(tmp_path: Path, capsys, name: str):
    """A report's folder may come from a stranger, whose links would lead to the user's own files."""
    write_run(tmp_path / "runs")
    victim, out = tmp_path / "victim", tmp_path / "report"
    victim.write_text("mine")
    (out / name).parent.mkdir(parents=True)
    (out / name).symlink_to(victim)
    assert main(["report", str(tmp_path / "runs"), "--out", str(out)]) == 2
    assert f"{name} is a link that leads out" in capsys.readouterr().err
    assert victim.read_text() == "mine" and len(list(out.iterdir())) == 1
