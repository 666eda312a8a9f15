"""`dcp render` on the tiny run: its files, and one sentence for each mistake."""

import re
import shutil
import sys

import pytest

from dcp.cli.main import main

MANY = "1,000,000,000 episodes of 250 steps need 6,"  # GB: 6 numbers of 4 bytes for each step
QUICK = ["--steps", "12", "--width", "96", "--height", "96"]


def test_a_run_is_shown_in_every_format_in_its_own_folder(tiny_run, tmp_path, capsys):
    pytest.importorskip("av")
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.folder, folder)
    assert main(["render", str(folder), *QUICK, "--subgoal"]) == 0
    names = {f"point_u_maze_dcp_seed_0.{kind}" for kind in ("mp4", "gif", "html")}
    assert {path.name for path in (folder / "videos").iterdir()} == names
    shown = capsys.readouterr()
    assert all(name in shown.out for name in names)
    lines = shown.out.splitlines()
    assert re.fullmatch(r"dcp, 4k steps, episode \d+: (not reached|reached at step \d+)", lines[0])
    assert re.fullmatch(r"dcp: reached in \d+ of 32 episodes", lines[-4])
    said = [line.split(" (")[0] for line in shown.err.splitlines()]
    what = "playing dcp on point_u_maze"
    assert said == [what, f"{what}: compiling if it must", "drawing"]


def test_two_runs_with_a_burst_from_a_later_episode(tiny_run, tmp_path):
    runs = [str(tiny_run.folder), str(tiny_run.folder / "policy.safetensors")]
    flags = [*QUICK, "--format", "html", "--episode", "2", "--burst", "4", "2", "--out", str(tmp_path)]
    assert main(["render", *runs, *flags]) == 0
    (page,) = tmp_path.iterdir()
    assert page.name.endswith("_seed_0_episode_2_burst_4_2.html") and "_vs_" in page.name


@pytest.mark.parametrize(
    "flags, sentence",
    [
        ([], "nothing to show: name a run's folder, a policy file or one of the zoo"),
        (["a"] * 5, "5 policies do not fit side by side: name 4 at most"),
        (["a", "--episodes", "0"], "--episodes is 0: use 1 or more"),
        (["a", "--seed", "-1"], "--seed is -1: use 0 or more"),
        (["zoo/point_u_maze/dcp", "--episodes", "1000000000"], MANY),
        (["a", "--camara", "top"], "unknown option --camara: did you mean --camera?"),
        (["a", "--camera", "side"], "unknown value 'side' for --camera: choose one of fixed, tracking, top"),
    ],
)
def test_a_mistake_in_the_command_is_one_sentence(flags, sentence, capsys):
    assert main(["render", *flags]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"dcp: {sentence}")


def test_a_run_without_a_policy_is_reported(tiny_run, tmp_path, capsys):
    shutil.copy(tiny_run.folder / "config.json", tmp_path)
    assert main(["render", str(tmp_path)]) == 2
    assert "has no policy yet" in capsys.readouterr().err


def test_an_environment_of_other_sizes_is_refused_with_the_numbers(tiny_run, capsys):
    assert main(["render", str(tiny_run.folder), "--env", "ant_u_maze"]) == 2
    said = capsys.readouterr().err
    assert "(2, 2, 2)" in said and "(29, 2, 8)" in said and said.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_reported_before_anything_is_played(tiny_run, tmp_path, capsys):
    (tmp_path / "taken").write_text("a file")
    assert main(["render", str(tiny_run.folder), "--out", str(tmp_path / "taken" / "videos")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("dcp: cannot write to ") and said.endswith("choose another folder with --out\n")


def test_a_picture_of_an_absurd_size_is_refused_at_once(tiny_run, tmp_path, capsys):
    assert main(["render", str(tiny_run.folder), "--width", "9", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "width 9: use 64 to 4096 pixels per side" in said and "playing" not in said


def test_only_the_named_episode_is_shown(tiny_run, tmp_path, capsys):
    assert (
        main(["render", str(tiny_run.folder), *QUICK, "--episode", "0", "--format", "html", "--out", str(tmp_path)])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("dcp, 4k steps: ") and len(lines) == 3


@pytest.mark.parametrize("asked, code", [([], 0), (["--format", "mp4", "gif", "html"], 2)])
def test_without_pyav_the_rest_is_written_and_only_an_mp4_that_was_asked_for_is_missed(
    asked, code, tiny_run, tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "av", None)
    assert main(["render", str(tiny_run.folder), *QUICK, "--out", str(tmp_path), *asked]) == code
    assert {path.suffix for path in tmp_path.iterdir()} == {".gif", ".html"}
    assert "pip install '.[video]'" in capsys.readouterr().err
