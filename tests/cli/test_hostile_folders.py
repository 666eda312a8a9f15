"""A stranger's run folder: links that lead out of it, pipes for files, names that are markup. One sentence each."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dcp.cli.main import main
from dcp.files.run_folder import ZOO_FOLDER
from dcp.lab.render.video import page
from dcp.policies.policy_file import load_policy, save_policy


@pytest.fixture
def run(tiny_run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run.folder, tmp_path / "runs" / "run"))


@contextmanager
def within(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_linked_checkpoints_folder_is_refused_and_what_it_points_to_stays(run: Path, tmp_path: Path, capsys):
    """It would have lost its drafts and its old checkpoints."""
    outside = Path(shutil.move(run / "checkpoints", tmp_path / "outside"))
    (outside / "precious.draft").mkdir()
    (outside / "000000001_00001").mkdir()
    before = sorted(path.name for path in outside.iterdir())
    (run / "checkpoints").symlink_to(outside)
    for argv in (["--resume", str(run), "--steps", "20000"], ["--resume", str(run), "--overwrite"]):
        line = refused(["train", *argv, "--display", "none"], capsys)
        if "--overwrite" not in argv:
            assert "checkpoints is a link that leads out of the run folder" in line
    assert sorted(path.name for path in outside.iterdir()) == before


@pytest.mark.parametrize("name", ["plots", ".replaced", ".replaced.gone", "policies", "tensorboard", "checkpoints/x"])
def test_every_other_link_that_leaves_the_run_is_refused(name: str, run: Path, tmp_path: Path, capsys):
    outside = tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    if (run / name).is_dir():
        shutil.rmtree(run / name)
    (run / name).symlink_to(outside)
    assert f"{name} is a link" in refused(["train", "--resume", str(run), "--steps", "20000"], capsys)
    assert (outside / "kept").is_dir()


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("evals", ["eval", "RUN", "--episodes", "2"]),
        ("videos", ["render", "RUN", "--format", "html"]),
        ("diagnosis", ["diagnose", "RUN", "--episodes", "2", "--states", "8", "--no-figures"]),
    ],
)
def test_results_are_not_written_where_a_link_leads(name: str, argv: list[str], run: Path, tmp_path: Path, capsys):
    outside = tmp_path / "outside"
    outside.mkdir()
    (run / name).symlink_to(outside)
    line = refused([str(run) if word == "RUN" else word for word in argv], capsys)
    assert f"{name} is a link that leads out of the run folder" in line
    assert list(outside.iterdir()) == []


def test_a_run_behind_a_link_may_be_resumed(run: Path, tmp_path: Path):
    """The folder is where its owner put it; only what leads out of it is refused."""
    (tmp_path / "alias").symlink_to(run)
    (run / "notes").symlink_to("config.json")
    assert main(["train", "--resume", str(tmp_path / "alias"), "--display", "none", "--no-plots"]) == 0


@pytest.mark.parametrize("name", ["metrics.csv", "config.json", "policy.safetensors"])
@pytest.mark.parametrize("command", ["report", "compare", "eval", "resume"])
def test_a_pipe_in_place_of_a_file_hangs_nobody(command: str, name: str, run: Path, tmp_path: Path, capsys):
    """It hung `report` and `compare`, which waited for someone to write."""
    other = Path(shutil.copytree(run, tmp_path / "runs" / "other"))
    (run / name).unlink()
    os.mkfifo(run / name)
    argv = {
        "report": ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page")],
        "compare": ["compare", str(run), str(other), "--out", str(tmp_path / "both.png")],
        "eval": ["eval", str(run), "--episodes", "2"],
        "resume": ["train", "--resume", str(run), "--display", "none", "--no-plots"],
    }[command]
    with within(100):
        code = main(argv)
    assert code in (0, 1, 2)
    assert "Traceback" not in capsys.readouterr().err


SHOWN = {
    "explore": ["explore", "run", "--no-open"],
    "render": ["render", "run", "--subgoal", "--format", "html", "--steps", "5", "--episodes", "2"],
    "diagnose": ["diagnose", "run", "--episodes", "2", "--states", "8", "--no-figures"],
}


@pytest.fixture
def beside_evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a zoo run in the current folder, next to a module that leaves a file when it is imported."""
    shutil.copytree(ZOO_FOLDER / "point_u_maze" / "dcp", tmp_path / "run")
    (tmp_path / "evil.py").write_text("open('evil_was_here', 'w').close()\ndef part(*_): return 0.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    return tmp_path


@pytest.mark.parametrize("field", ["command", "score", "network.activation"])
@pytest.mark.parametrize("command", SHOWN)
def test_a_config_that_names_code_as_a_part_runs_none_of_it(command: str, field: str, beside_evil: Path, capsys):
    file = beside_evil / "run" / "config.json"
    stored = json.loads(file.read_text())
    changed = {"component_settings": {field: "evil:part"}} if "." in field else {field: "evil:part"}
    file.write_text(json.dumps({**stored, "config": {**stored["config"], **changed}}))
    assert main(SHOWN[command]) == 2
    *_, line = capsys.readouterr().err.splitlines()  # render says first whose episodes it is about to play
    assert "run needs evil:part, which is code outside dcp" in line and "--import evil" in line
    assert not (beside_evil / "evil_was_here").exists()


def test_a_policy_file_that_names_code_as_its_method_runs_none_of_it(beside_evil: Path, capsys):
    run = beside_evil / "run"
    (run / "config.json").unlink()
    save_policy(run / "policy.safetensors", load_policy(run), {"env": "point_u_maze", "method": "evil:part"})
    assert "run needs evil:part, which is code outside dcp" in refused(SHOWN["diagnose"], capsys)
    assert not (beside_evil / "evil_was_here").exists()


def test_brackets_in_a_name_are_no_markup_of_rich(run: Path, tmp_path: Path, capsys):
    """A tag that closes what was never opened was a traceback."""
    folder = tmp_path / "[b]" / "[/c]"
    shutil.copytree(run, folder)
    assert main(["eval", str(folder), str(run), "--episodes", "2", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    assert "[/c]" in shown.out
    assert main(["compare", str(folder), "zoo/point_u_maze/dcp", "--out", str(tmp_path / "both.png")]) == 0


def test_a_title_of_markup_stays_text_in_the_page_of_render():
    title = "</script><script>alert(1)</script><!-- & \u2028\u2029 {{script}} {{data}}"
    html = page({"title": title, "kind": "maze"})
    data = html.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert "alert(1)" in data
    for sign in "<>&\u2028\u2029":
        assert sign not in data
    head = html.split("<title>")[1].split("</title>")[0]
    assert "<" not in head and "{{data}}" in head and "alert(1)" in head
