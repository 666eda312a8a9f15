import json

import pytest

from dcp.cli.main import main
from tests.lab.test_compare_runs import write_eval, write_run


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


def test_the_same_as_json(tmp_path, capsys):
    a, b = write_run(tmp_path / "a", "1000,nan,7\n"), write_run(tmp_path / "b", "1000,0.25,7\n", method="crl")
    assert main(["compare", str(a), str(b), "--json", "--out", str(tmp_path / "c.png")]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["settings"] == {"method": ["dcp", "crl"]}
    assert shown["common"]["success_once"] == {"env_steps": [1000.0], "a": [None], "b": [25.0]}
    one = {"last": [1000.0, 25.0], "best": [1000.0, 25.0], "env_steps": [1000.0], "values": [25.0]}
    nothing = {"last": [1000.0, None], "best": [None, None], "env_steps": [1000.0], "values": [None]}
    assert shown["results"]["success_once"] == [nothing, one]
    assert shown["evals"] == []


def test_results_on_the_same_episodes_are_in_the_json(tmp_path, capsys):
    a, b = write_run(tmp_path / "a", "1000,inf,7\n"), write_run(tmp_path / "b", "1000,0.25,7\n", method="crl")
    write_eval(a, "f00d", [(1, 10), (1, 20), (0, 0), (0, 0)])
    write_eval(b, "f00d", [(1, 4), (0, 0), (0, 0), (0, 2)])
    assert main(["compare", str(a), str(b), "--json", "--out", str(tmp_path / "c.png")]) == 0
    text = capsys.readouterr().out
    assert "Infinity" not in text
    [found] = json.loads(text)["evals"]
    assert (found["success"], found["success_gain"][0], found["time_near_goal_gain"][0]) == ([50.0, 25.0], 25.0, 6.0)
    assert (found["wins"], found["ties"], found["losses"]) == (1, 3, 0)


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
