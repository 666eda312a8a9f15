"""`dcp eval` from the command line, on a run that was trained for a moment."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from dcp.cli.eval import by_distance_text
from dcp.cli.main import main
from dcp.lab.burst_tables import eval_results
from dcp.lab.run_collection import collect
from dcp.lab.trial import Bin
from dcp.runs.training import TrainedRun


@pytest.fixture
def run(tiny_run: TrainedRun, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run.folder, tmp_path / "run", ignore=shutil.ignore_patterns("evals")))


def stored(folder: Path) -> tuple[dict, list[dict[str, str]]]:
    [json_path], [csv_path] = folder.glob("evals/*.json"), folder.glob("evals/*.csv")
    with csv_path.open(newline="") as file:
        return json.loads(json_path.read_text()), list(csv.DictReader(file))


def test_distances_have_the_digits_that_tell_them_apart():
    assert by_distance_text([Bin(0.061, 0.132, 9, 8), Bin(0.132, 0.204, 0, 0)]) == ["0.06-0.13: 8 of 9"]
    assert by_distance_text([Bin(1.0, 3.5, 4, 4)]) == ["1.0-3.5: 4 of 4"]
    assert by_distance_text([Bin(2.0, 2.0, 4, 1)]) == ["2.000-2.000: 1 of 4"]  # every episode is as far


def test_an_evaluation_shows_a_table_and_writes_json_and_csv(run: Path, capsys):
    assert main(["eval", str(run), "--seeds", "3", "4"]) == 0
    shown, err = capsys.readouterr()
    doing = [line.rpartition(" episodes")[2] for line in err.splitlines()]
    assert doing[0] == "" and doing[-2:] == [": running, seed 1 of 2", ": running, seed 2 of 2"]
    assert all(": compiling" in line for line in doing[1:-2])  # unless another test has compiled it
    assert "success once" in shown
    assert "reached by step" in shown
    content, episodes = stored(run)
    assert (content["episodes"], len(episodes)) == (32, 32)
    assert [part["seed"] for part in content["seeds"]] == [3, 4]
    success = sum(int(row["success"]) for row in episodes) / 32
    assert content["summary"]["success_once"]["mean"] == pytest.approx(success)
    assert content["cumulative_reach"][-1] == pytest.approx(success, abs=1e-6)
    assert sum(part["episodes"] for part in content["by_distance"]) == 32
    assert content["about"]["method"] == "dcp"


def test_a_burst_is_paired_with_none_on_the_same_episodes(run: Path, capsys):
    assert main(["eval", str(run), "--burst", "--json"]) == 0
    [printed] = json.loads(capsys.readouterr().out)
    alone, with_burst = sorted((run / "evals").glob("*.json"), key=lambda path: len(path.name))
    content = json.loads(with_burst.read_text())
    assert json.loads(alone.read_text()) == content["without_burst"]
    assert alone.with_suffix(".csv").read_text() != with_burst.with_suffix(".csv").read_text()
    assert printed["burst"] == content["burst"] == [100, 10]  # the paper's, unless told otherwise
    assert content["without_burst"]["burst"] is None
    sets = [part["seeds"][0]["goal_set_sha256"] for part in (content, content["without_burst"])]
    assert sets[0] == sets[1]
    gain = content["summary"]["time_near_goal"]["mean"] - content["without_burst"]["summary"]["time_near_goal"]["mean"]
    assert content["paired"]["time_near_goal"]["mean"] == pytest.approx(gain)
    assert content["paired"]["wins"] + content["paired"]["ties"] + content["paired"]["losses"] == 16


def test_a_burst_in_the_first_steps_has_a_file_of_its_own_that_the_papers_tables_leave_out(run: Path, capsys):
    assert main(["eval", str(run), "--burst", "10", "5", "--burst-first", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["burst_first"] is True
    [path] = (run / "evals").glob("*_burst_10_5_first.json")
    unfit = eval_results(collect([run]))[1]
    assert unfit == [f"{path}: a burst in the first steps of each period, where the others are in the last."]
    assert main(["eval", str(run), "--burst-first"]) == 2
    assert "add --burst" in capsys.readouterr().err


def test_interventions_stand_beside_the_burst_on_the_same_episodes(run: Path, capsys):
    assert main(["eval", str(run), "--burst", "--intervention", "stalled_burst", "reaim", "--json"]) == 0
    contents = json.loads(capsys.readouterr().out)
    names = [content["intervention"]["name"] for content in contents[1:]]
    assert names == ["stalled_burst", "reaim"] and contents[0]["burst"] == [100, 10]
    assert contents[1]["without_intervention"] == contents[0]["without_burst"] and contents[1]["burst"] is None
    for content in contents:
        assert content["paired"]["wins"] + content["paired"]["ties"] + content["paired"]["losses"] == 16
    files = [path.name for path in (run / "evals").glob("*.json")]
    assert len(files) == 4 and any(name.endswith("_reaim_90_100.json") for name in files)  # the checkpoint has a pool
    main(["eval", str(run), "--intervention", "untried", "--stall", "40", "5"])
    assert "with untried 40 5" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_a_run_without_a_pool_aims_at_the_states_of_a_file(run: Path, tmp_path: Path, capsys):
    shutil.rmtree(run / "checkpoints")
    assert main(["eval", str(run), "--intervention", "reaim"]) == 2
    assert "has no stored pool to aim at: give --pool-seed FILE" in capsys.readouterr().err
    (tmp_path / "pool.csv").write_text("1.0,1.0\n3.0,1.0\n")
    assert main(["eval", str(run), "--intervention", "reaim", "--pool-seed", str(tmp_path / "pool.csv")]) == 0


def test_two_policies_are_compared_on_the_same_episodes(run: Path, capsys):
    copy = shutil.copytree(run, run.parent / "copy")
    assert main(["eval", str(run), str(copy)]) == 0
    shown = capsys.readouterr().out
    assert f"{copy} minus {run}, on the same episodes: success 0.0 (" in shown
    assert "0 won, 16 tied, 0 lost" in shown


def test_an_exported_policy_is_evaluated_like_the_run_itself(run: Path, tmp_path: Path, capsys):
    assert main(["export", str(run), "--format", "numpy", "--out", str(tmp_path / "policy.npz")]) == 0
    capsys.readouterr()
    arguments = ["--episodes", "16", "--json", "--out", str(tmp_path)]
    assert main(["eval", str(run), str(tmp_path / "policy.npz"), *arguments]) == 0
    ours, exported = json.loads(capsys.readouterr().out)
    assert ours["seeds"][0]["goal_set_sha256"] == exported["seeds"][0]["goal_set_sha256"]
    assert exported["summary"]["final_distance"]["mean"] == pytest.approx(
        ours["summary"]["final_distance"]["mean"], abs=1e-3
    )


def test_a_burst_may_stand_before_the_run(run: Path, capsys):
    for words in (["--burst"], ["--burst", "100", "10"], ["--burst=100", "10"]):
        assert main(["eval", *words, str(run), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["burst"] == [100, 10]


def test_a_narrow_terminal_cuts_nothing_off(run: Path, capsys, monkeypatch):
    monkeypatch.setattr("dcp.cli.working.PIPE_WIDTH", 80)
    assert main(["eval", str(run)]) == 0
    assert "…" not in capsys.readouterr().out


def test_json_of_one_episode_has_no_nan(run: Path, capsys):
    """One episode has no interval, and JSON no NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    assert main(["eval", str(run), "--episodes", "1", "--json"]) == 0
    [printed] = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert printed["summary"]["time_near_goal"]["low"] is None


def test_policies_in_one_folder_do_not_write_over_each_other(run: Path, tmp_path: Path, capsys):
    main(["export", str(run), "--format", "numpy"])
    copy = shutil.copytree(run, tmp_path / "copy")
    policies = [str(run), str(copy), str(run / "policy.npz")]
    assert main(["eval", *policies, "--episodes", "16", "--out", str(tmp_path / "all")]) == 0
    contents = [json.loads(path.read_text()) for path in (tmp_path / "all" / "evals").glob("*.json")]
    assert sorted(content["policy"] for content in contents) == sorted(policies)


def test_an_exports_results_are_next_to_its_runs(run: Path, capsys):
    main(["export", str(run), "--format", "numpy"])
    assert main(["eval", str(run)]) == 0
    assert main(["eval", str(run / "policy.npz")]) == 0
    names = {json.loads(path.read_text())["policy"]: path.name for path in run.glob("evals/*.json")}
    assert names[str(run / "policy.npz")] == names[str(run)].replace(".json", "_policy.npz.json")


def test_many_seeds_have_a_file_name_that_fits(run: Path):
    seeds = [str(100_000 + i) for i in range(40)]
    assert main(["eval", str(run), "--episodes", "1", "--seeds", *seeds]) == 0
    assert main(["eval", str(run), "--episodes", "1", "--seeds", *seeds[:-1], "7"]) == 0
    assert len(list(run.glob("evals/*.json"))) == 2


BAD = [
    ([], "nothing to evaluate"),
    (["{run}", "--env", "point_u_maze_inertia"], "(4, 2, 2)"),
    (["{run}", "--env", "nowhere"], "dcp envs"),
    (["{run}/nothing"], "no policy at"),
    (["{run}/metrics.csv"], "not a readable safetensors file"),
    (["zoo/nothing/dcp"], "the zoo has no"),
    (["{run}", "--burst", "10", "20"], "0 <= L <= P"),
    (["{run}", "--burst", "10"], "two whole numbers"),
    (["--burst", "50.5", "10", "{run}"], "two whole numbers"),
    (["{run}", "--seeds", "-1"], "2**32"),
    (["{run}", "--seeds", "0", "4294967296"], "2**32"),
    (["{run}/nothing.onnx"], "there is no file"),
    (["zoo/point_u_maze"], "zoo/point_u_maze/dcp"),
    (["{run}", "--stall", "5", "5"], "add --intervention"),
    (["{run}", "--intervention", "untried", "--stall", "0", "5"], "W >= 1"),
    (["{run}", "--intervention", "dance"], "choose one of stalled_burst, untried, reaim"),
    (["{run}", "--episodes", "0"], "episodes is 0"),
    (["{run}", "--episodes", "1000000000"], "or fewer, and several seeds for more"),
    (["{run}", "--seeds", "1", "1"], "twice"),
    (["{run}", "--episode", "3"], "--episodes"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=[" ".join(arguments) or "nothing" for arguments, _ in BAD])
def test_a_mistake_is_one_sentence(tiny_run: TrainedRun, arguments: list[str], words: str, capsys):
    """Nothing is written: the run's folder is the one that every test reads."""
    assert main(["eval", *(argument.format(run=tiny_run.folder) for argument in arguments)]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert "\n" not in error
    assert not (tiny_run.folder / "evals").exists()


def test_a_damaged_policy_is_one_sentence(run: Path, capsys):
    policy = run / "policy.safetensors"
    policy.write_bytes(policy.read_bytes()[:-100])
    assert main(["eval", str(run)]) == 2
    assert "train or copy it again" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_sentence(run: Path, capsys):
    (run / "file").write_text("in the way")
    assert main(["eval", str(run), "--out", str(run / "file")]) == 2
    error = capsys.readouterr().err
    assert "choose another folder with --out" in error
    assert "episodes" not in error  # said before the work begins
