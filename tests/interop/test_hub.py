"""`dcp push` and `dcp pull` against a stand-in of the Hub, through `huggingface_hub`'s own client."""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from dcp.cli.main import main
from dcp.lab.trial import estimates, evaluate
from dcp.policies.policy_file import load_policy
from tests.support.hub_server import TOKEN, Hub, serving

hf = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")
EIGHT = ["--episodes", "8"]


@pytest.fixture
def hub(monkeypatch, tmp_path: Path) -> Iterator[Hub]:
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # read when the client is imported
        yield hub


def test_a_policy_is_pushed_with_its_card_and_pulled_again(hub: Hub, tiny_run, tmp_path: Path, capsys):
    assert main(["push", str(tiny_run.folder), "me/maze", *EIGHT, "--no-video", "--message", "first"]) == 0
    stored = hub.files["me/maze"]
    assert set(stored) == {"README.md", "config.json", "evaluation.json", "metrics.csv", "policy.safetensors"}
    assert hub.messages == ["first"] and not hub.private
    assert f"{hub.url}/me/maze: README.md, " in capsys.readouterr().out

    out = tmp_path / "pulled"
    assert main(["pull", "me/maze", "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: dcp on point_u_maze, 4,000 steps\n")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == stored  # and no cache of the client
    state, goal = np.array([4.0, 4.0]), np.array([4.0, 8.0])
    np.testing.assert_array_equal(load_policy(out)(state, goal), tiny_run.policy(state, goal))
    assert main(["pull", "me/maze", "--out", str(out)]) == 2
    assert "already exists: name another folder" in capsys.readouterr().err


@pytest.mark.slow
def test_a_video_of_an_arriving_and_a_failing_episode_comes_along(hub: Hub, tiny_run):
    pytest.importorskip("av")
    assert main(["push", str(tiny_run.folder), "me/maze", *EIGHT, "--license", "apache-2.0"]) == 0
    stored = hub.files["me/maze"]
    assert stored["replay.gif"][:4] == b"GIF8" and b"ftyp" in stored["replay.mp4"][:12]
    assert "![Episodes of this policy](replay.gif)" in (text := stored["README.md"].decode())
    assert hf.ModelCard(text).data.license == "apache-2.0"


def test_the_cards_scores_are_those_of_dcp_eval_with_intervals_and_the_hub_reads_them(hub: Hub, tiny_run):
    assert main(["push", str(tiny_run.folder), "me/maze", *EIGHT, "--seeds", "0", "3", "--no-video", "--private"]) == 0
    text = hub.files["me/maze"]["README.md"].decode()
    found = estimates(evaluate(tiny_run.folder, episodes=8, seeds=(0, 3)).all)
    once = found["success_once"]
    assert f"| {100 * once.mean:.1f}% ({100 * once.low:.1f} to {100 * once.high:.1f}) |" in text
    assert "16 fresh episodes of 250 steps" in text and "replay.gif" not in text and hub.private == {"me/maze"}
    card = hf.ModelCard(text)
    (by_name,) = [one for one in card.data.eval_results if one.metric_type == "success_once"]
    assert by_name.metric_value == round(once.mean, 4)
    assert card.data.library_name == "dcp" and "point_u_maze" in card.data.tags
    stored = json.loads(hub.files["me/maze"]["evaluation.json"])
    assert stored["summary"]["time_near_goal"]["mean"] == pytest.approx(found["time_near_goal"].mean)


def test_pulling_fetches_only_known_files_and_loading_imports_nothing(hub: Hub, tiny_run, tmp_path: Path, capsys):
    """A stranger's repository: a policy whose condition is code, and the code beside it."""
    evil = "import pathlib; pathlib.Path(__file__).with_name('ran').touch()"
    content = (tiny_run.folder / "policy.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    text = json.dumps(header).replace('\\"direction\\"', '\\"evil:Evil\\"')
    assert "evil:Evil" in text
    forged = len(text.encode()).to_bytes(8, "little") + text.encode() + content[8 + length :]
    hub.files["you/trap"] = {"policy.safetensors": forged, "evil.py": evil.encode(), "config.json": b"{}"}
    out = tmp_path / "out"
    assert main(["pull", "you/trap", "--out", str(out)]) == 2
    assert "dcp: " in capsys.readouterr().err and not out.exists()
    assert not [asked for asked in hub.asked if "evil" in asked] and "evil" not in sys.modules


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["pull"], "name what to pull: `dcp pull owner/name`"),
        (["pull", "me/nothing"], "the Hub has no me/nothing that you may read"),
        (["pull", "a/b/c"], "'a/b/c' is not the name of a repository: write it as owner/name"),
        (["pull", "me/other"], "me/other has no policy.safetensors: `dcp push` did not make it"),
        (["pull", "me/other", "--revision", "v9"], "check the name and the revision"),
        (["push", "{run}"], "name what to push, and the repository"),
        (["push", "{run}", "me/maze", "--dry-run"], "--dry-run writes what would be pushed into a folder"),
        (["push", "x.npz", "me/maze"], "x.npz is an exported policy: push the run's folder"),
        (["push", "zoo/point_u_maze/dpc", "me/maze"], "did you mean zoo/point_u_maze/dcp?"),
    ],
)
def test_a_mistake_is_one_sentence(
    argv: list[str], sentence: str, hub: Hub, tiny_run, tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    hub.files["me/other"] = {"README.md": b"---\n---\n"}
    assert main([arg.format(run=tiny_run.folder) for arg in argv]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.splitlines()[-1].startswith("dcp: ")  # the client may have shown its progress


SHA = "0" * 40
ONE = f'{{"sha": "{SHA}", "siblings": [{{"rfilename": "README.md", "size": %s}}]}}'


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "null", '{"sha": null, "siblings": []}', ONE % -1, ONE % "1e400", ONE.replace(SHA, "../x") % 1]
    + [f'{{"sha": "{SHA}", "siblings": {siblings}}}' for siblings in ("[1]", "7", "null", '[{"rfilename": 3}]')]
    + ["[" * 10_000, ONE % ("9" * 5_000), "\udcff"],
)
def test_an_answer_that_makes_no_sense_is_one_sentence(text: str, hub: Hub, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hub.broken["/revision/main"] = lambda answers: answers._send(200, text.encode(errors="surrogateescape"))
    assert main(["pull", "me/maze"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("dcp: the Hub's answer for me/maze makes no sense (") and err.count("\n") == 1
    assert not any(tmp_path.iterdir())


def endless(answers, pause: float) -> None:
    """Send a body in chunks until the reader leaves."""
    answers.send_response(200)
    answers.send_header("Transfer-Encoding", "chunked")
    answers.end_headers()
    with suppress(OSError):
        while True:
            answers.wfile.write(b"1\r\nx\r\n" if pause else b"10000\r\n" + b"x" * 65536 + b"\r\n")
            answers.wfile.flush()
            time.sleep(pause)


def short(answers) -> None:
    answers.send_response(200)
    answers.send_header("Content-Length", "1000000000000000")
    answers.end_headers()
    answers.wfile.write(b"x")
    answers.close_connection = True


@pytest.mark.parametrize(
    ("end", "answer", "sentence"),
    [
        ("README.md", lambda answers: endless(answers, 0.0), "README.md has more than 1,000,000 bytes"),
        ("/revision/main", lambda answers: endless(answers, 0.0), "main has more than 1,000,000 bytes"),
        ("README.md", lambda answers: endless(answers, 0.05), "the Hub has taken more than 1 seconds"),
        ("/revision/main", lambda answers: endless(answers, 0.05), "the Hub has taken more than 1 seconds"),
        ("README.md", short, "cannot reach the Hub"),
        (
            "/revision/main",
            lambda answers: answers._send(200, (ONE % 1_000_001).encode()),
            "README.md has more",
        ),
    ],
)
def test_a_hub_that_sends_too_much_too_slowly_or_too_little_is_left(
    end: str, answer, sentence: str, hub: Hub, tmp_path: Path, capsys, monkeypatch
):
    from dcp.interop import hub as ours

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ours, "MOST_BYTES", dict.fromkeys(ours.FILES, 1_000_000))
    monkeypatch.setattr(ours, "PULL_SECONDS", 1)
    hub.files["me/maze"] = {"README.md": b"a", "policy.safetensors": b"b"}
    hub.broken[end] = answer
    assert main(["pull", "me/maze", "--out", "pulled"]) == 2
    assert sentence in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_without_a_token_or_a_hub_the_sentence_says_so(hub: Hub, tiny_run, capsys, monkeypatch):
    command = ["push", str(tiny_run.folder), "me/maze", *EIGHT, "--no-video"]
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert main(command) == 2
    assert "the Hub refuses me/maze: log in with `hf auth login`, or set HF_TOKEN" in capsys.readouterr().err
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    assert main(["pull", "me/maze"]) == 2
    assert "cannot reach the Hub" in capsys.readouterr().err


def test_without_the_client_the_sentence_names_the_extra(tiny_run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for command in (["push", str(tiny_run.folder), "me/maze"], ["pull", "me/maze"]):
        assert main(command) == 2
        assert "pip install '.[hub]'" in capsys.readouterr().err


def test_a_dry_run_writes_what_would_be_pushed(tiny_run, tmp_path: Path, capsys):
    """Of a policy file alone, which has no config next to it."""
    file = Path(shutil.copy(tiny_run.folder / "policy.safetensors", tmp_path))
    assert main(["push", str(file), "me/maze", *EIGHT, "--no-video", "--dry-run", "--out", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "README.md",
        "evaluation.json",
        "policy.safetensors",
    }


def test_a_package_is_not_written_through_links_and_pipes_and_may_replace_the_last(tiny_run, tmp_path: Path):
    (out := tmp_path / "out").mkdir()
    (victim := tmp_path / "victim").write_text("mine")
    for name in ("README.md", "evaluation.json", "config.json"):
        (out / name).symlink_to(victim)
    os.mkfifo(out / "policy.safetensors")
    argv = ["push", str(tiny_run.folder), "me/maze", *EIGHT, "--no-video", "--dry-run", "--out", str(out)]
    assert main(argv) == 0
    assert victim.read_text() == "mine" and not any(path.is_symlink() for path in out.iterdir())
    assert (out / "policy.safetensors").read_bytes() == (tiny_run.folder / "policy.safetensors").read_bytes()
    assert main([*argv[:1], str(out), *argv[2:]]) == 0  # a package of its own folder
    assert (out / "policy.safetensors").read_bytes() == (tiny_run.folder / "policy.safetensors").read_bytes()
