import pytest

from dcp.cli.main import main
from tests.lab.test_compare_runs import write_run


def test_two_runs_on_the_terminal_and_as_a_picture(tmp_path, capsys):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", "1000,0.25,7\n", method="crl")
    assert main(["compare", str(a), str(b), "--out", str(tmp_path / "c.png")]) == 0
    shown = capsys.readouterr().out
    for words in ("running or stopped at 1,000 of 2,000 steps", "method", "Results", "75.0 at 2,000"):
        assert words in shown
    assert (tmp_path / "c.png").stat().st_size > 10_000
    document = (tmp_path / "c.pdf").read_bytes()
    assert document.startswith(b"%PDF")
    assert b"/Type3" not in document and b"CreationDate" not in document  # for journals; the same bytes twice


def test_runs_that_have_not_begun_are_compared_without_a_picture(tmp_path, capsys):
    a, b = write_run(tmp_path / "a", None), write_run(tmp_path / "b", None, method="crl")
    assert main(["compare", str(a), str(b), "--out", str(tmp_path / "c.png")]) == 0
    assert "has no evaluation yet" in capsys.readouterr().out
    assert not (tmp_path / "c.png").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "takes two run folders, not 0"),
        (["{a}"], "takes two run folders, not 1"),
        (["{a}", "{a}/nowhere"], "there is no folder"),
        (["{a}", "{a}"], "are the same run"),
        (["{a}", "{a}", "--out", "c.gif"], ".png or .pdf"),
        (["{a}", "{a}", "--outt", "c"], "--out"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, arguments, words, capsys):
    a = write_run(tmp_path / "a")
    assert main(["compare", *(argument.format(a=a) for argument in arguments)]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert "\n" not in error
