"""`dcp paper`: its list, and what it makes of a few runs."""

from pathlib import Path

import pytest

from dcp.cli.main import main
from tests.support.fake_runs import write_run

M = 1_000_000


def command(folder: Path, *what: str) -> list[str]:
    return ["paper", *what, "--runs-dir", str(folder / "runs"), "--ledger", str(folder / "ledger")]


def test_without_a_run_the_list_says_what_to_train(tmp_path: Path, capsys):
    assert main(command(tmp_path)) == 0
    shown = capsys.readouterr().out
    assert "dcp grid --preset paper" in shown
    assert sorted(path.name for path in (tmp_path / "runs/paper").iterdir()) == ["paper.csv", "paper.md", "paper.tex"]


def test_a_table_and_a_figure_of_the_runs_of_both_folders(tmp_path: Path, capsys):
    write_run(tmp_path / "runs", "ant_u_maze", "dcp", 0, [10 * M], [0.4])
    write_run(tmp_path / "ledger", "ant_big_maze", "dcp", 0, [10 * M], [0.4])
    assert main(command(tmp_path, "table4", "figure2", "figure3b", "figure1")) == 0
    shown = capsys.readouterr().out
    assert "40.4 ± 9.5" in shown and "18.4 ± 5.4" in shown
    assert "python -m tools.docs.conditioning_figure" in shown
    for name in ("table4.csv", "figure2.png", "figure2.pdf", "pusher_goals.png"):
        assert (tmp_path / "runs/paper" / name).stat().st_size > 100


@pytest.mark.parametrize("name", ["table1", "table2", "table3", "figure3a", "figure4", "videos"])
def test_what_the_runs_do_not_allow_says_what_to_run(name: str, tmp_path: Path, capsys):
    assert main(command(tmp_path, name)) == 0
    shown = capsys.readouterr().out
    assert "that are not here: `dcp grid --preset paper --where env=" in shown
    assert ("dcp eval" in shown) == (name in ("table2", "table3"))


def test_an_unknown_name_gets_a_sentence(tmp_path: Path, capsys):
    assert main(command(tmp_path, "tabel2")) == 2
    assert "the paper has no 'tabel2': did you mean table2?" in capsys.readouterr().err


def test_a_link_that_leads_out_of_the_runs_is_refused(tmp_path: Path, capsys):
    (tmp_path / "runs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs/paper").symlink_to(tmp_path / "elsewhere")
    assert main(command(tmp_path)) == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_videos_are_one_episode_of_each_method_with_the_papers_seed(tmp_path: Path, monkeypatch):
    rendered: list[list[str]] = []
    monkeypatch.setattr("dcp.cli.paper.render", rendered.append)
    for method, seed in (("dcp", 0), ("dcp", 3), ("crl", 3)):
        folder = write_run(tmp_path / "runs", "pusher_hard", method, seed, [25 * M], [0.4])
        (folder / "policy.safetensors").touch()
    assert main(command(tmp_path, "videos")) == 0
    folders = [str(tmp_path / f"runs/pusher_hard/{method}/seed_3") for method in ("dcp", "crl")]
    assert [argv[0] for argv in rendered] == folders  # the first seed that both have
    assert rendered[0][1:5] == ["--seed", "123", "--episode", "0"]
