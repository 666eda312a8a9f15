"""The ledger of results, with a real run: what may be added, and every forgery that must be caught."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from dcp import ledger
from dcp.cli.main import main
from dcp.errors import UserError
from dcp.policies.policy_file import load_policy_and_about, save_policy


@pytest.fixture(scope="module")
def filled(tiny_run, tmp_path_factory) -> Path:
    """A ledger with one entry, which tests only read."""
    folder = tmp_path_factory.mktemp("ledger") / "results"
    assert main(["results", "add", str(tiny_run.folder), "--ledger", str(folder), "--by", "A. Tester"]) == 0
    return folder


@pytest.fixture
def copied(filled, tmp_path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "results"))


def only(folder: Path) -> Path:
    [found] = ledger.entries(folder)
    return found.folder


def rewritten(folder: Path, row: int, **changes: float) -> None:
    path = folder / "metrics.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows[row] |= {name: str(value) for name, value in changes.items()}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def resealed(folder: Path) -> None:
    """Forge the checksums too."""
    path = folder / "entry.json"
    entry = json.loads(path.read_text())
    entry["sha256"] = {name: ledger.digest(folder / name) for name in entry["sha256"]}
    path.write_text(json.dumps(entry))


def faults(folder: Path, evaluate: bool = False) -> str:
    return "; ".join(fault for found in ledger.entries(folder) for fault in ledger.checked(found, evaluate).faults)


def test_an_honest_entry_has_no_fault_and_its_policy_scores_what_was_logged(filled, capsys):
    assert main(["results", "check", "--ledger", str(filled), "--evaluate"]) == 0
    assert "1 entry, 0 faults" in capsys.readouterr().out
    [found] = ledger.entries(filled)
    assert found.entry is not None and found.entry.finished and found.entry.by == "A. Tester"
    assert found.folder.name.startswith("seed_0_")
    assert "### point_u_maze" in (filled / "README.md").read_text()


def test_an_edited_row_is_caught_by_its_checksum(copied, capsys):
    rewritten(only(copied), 0, success_once=1.0)
    assert main(["results", "check", "--ledger", str(copied)]) == 1
    assert "metrics.csv is not the file that was added (its SHA-256 differs)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"success_once": 0.123}, "not a whole number"),
        ({"success_once": 1.5, "time_near_goal": 2.0}, "cannot both be"),
        ({"success_once": 0.5, "time_near_goal": 0.0}, "cannot both be"),
        ({"env_steps": 1234}, "evaluates at no such point"),
        ({"evaluation": 7}, "calls itself evaluation 7"),
        ({"critic_loss": float("nan")}, "not finite"),
        ({"wall_seconds": 1e9}, "clock that does not advance"),
    ],
)
def test_an_edited_row_with_forged_checksums_is_caught_where_no_run_can_have_logged_it(copied, changes, sentence):
    folder = only(copied)
    rewritten(folder, 0, **changes)
    resealed(folder)
    assert sentence in faults(copied)


def test_a_better_last_row_with_forged_checksums_is_caught_by_the_evaluation_that_was_repeated(copied):
    folder = only(copied)
    episodes = json.loads((folder / "config.json").read_text())["config"]["eval_episodes"]
    assert episodes == 16
    rewritten(folder, -1, success_once=1.0, time_near_goal=200.0)
    resealed(folder)
    assert "metrics.csv says success_once 1, but the policy scores" in faults(copied)


def test_a_swapped_policy_is_caught(copied):
    folder = only(copied)
    policy, about = load_policy_and_about(folder)
    save_policy(folder / "policy.safetensors", policy, {**about, "seed": 3})
    assert "policy.safetensors is not the file that was added" in faults(copied)
    resealed(folder)
    assert "policy.safetensors is of seed 3, but config.json says 0" in faults(copied)
    save_policy(folder / "policy.safetensors", policy, {**about, "env_steps": 99})
    resealed(folder)
    assert "policy.safetensors is of 99 steps" in faults(copied)


def test_a_relabelled_seed_is_caught(copied):
    folder = only(copied)
    config = json.loads((folder / "config.json").read_text())
    config["config"]["seed"] = 4
    (folder / "config.json").write_text(json.dumps(config))
    assert "config.json is not the file that was added" in faults(copied)
    resealed(folder)
    assert "policy.safetensors is of seed 0, but config.json says 4" in faults(copied)


def test_an_entry_in_another_method_s_folder_is_caught(copied):
    folder = only(copied)
    (folder.parents[1] / "crl").mkdir()
    folder.rename(folder.parents[1] / "crl" / folder.name)
    assert "its folder says point_u_maze/crl" in faults(copied)


def test_tables_that_do_not_match_the_entries_are_reported_and_rewritten(copied, capsys):
    page = copied / "README.md"
    page.write_text(page.read_text().replace("| dcp |", "| dcp, really |"))
    assert main(["results", "check", "--ledger", str(copied)]) == 1
    assert "has other tables than the entries give" in capsys.readouterr().err
    assert main(["results", "check", "--ledger", str(copied), "--write"]) == 0
    assert "| dcp |" in page.read_text()


@pytest.mark.parametrize("content", ["", "[", "[]", "{}", '{"by": 3}', "[" * 100_000])
def test_a_damaged_entry_gets_a_sentence(copied, content):
    (only(copied) / "entry.json").write_text(content)
    assert "entry.json cannot be read" in faults(copied)


def test_a_run_is_added_once_and_by_somebody(tiny_run, filled):
    with pytest.raises(UserError, match="in the ledger already"):
        ledger.add(tiny_run.folder, filled, "A. Tester")
    with pytest.raises(UserError, match="say who ran it"):
        ledger.add(tiny_run.folder, filled, " ")


def test_a_run_whose_metrics_were_edited_is_refused_by_its_checkpoint(tiny_run, tmp_path):
    run = Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))
    rewritten(run, 0, final_distance=0.25)
    assert "row 1 of metrics.csv has final_distance 0.25, but the checkpoint has" in ledger.run_faults(run)[0]


def test_a_run_that_ended_by_a_fault_is_refused(tiny_run, tmp_path):
    run = Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))
    (run / "fault.json").write_text("{}")
    assert "ended by a fault" in ledger.run_faults(run)[0]


def test_an_entry_trained_again_has_the_same_numbers(filled, capsys):
    told = ledger.rerun(only(filled), 1)
    assert told == []
    assert "success_once" in capsys.readouterr().out
    with pytest.raises(UserError, match="use 1 to 2"):
        ledger.rerun(only(filled), 3)


def test_the_page_holds_every_run_and_escapes_what_people_write(copied, tmp_path, capsys):
    entry = only(copied) / "entry.json"
    entry.write_text(entry.read_text().replace("A. Tester", "</script><b>"))
    assert main(["results", "page", "--ledger", str(copied), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "1 run" in capsys.readouterr().out and '"method":"dcp"' in page
    assert "</script><b>" not in page


def test_wrong_words_get_a_sentence(tmp_path, capsys):
    for words, sentence in [
        ([], "choose one of add, check, rerun, page"),
        (["add"], "needs a run's folder"),
        (["check", "x"], "takes no 'x'"),
        (["check", "--ledger", str(tmp_path / "none")], "there is no ledger"),
        (["rerun"], "takes one entry's folder"),
        (["add", str(tmp_path), "--by", "me"], "not a run folder"),
    ]:
        assert main(["results", *words]) == 2
        assert sentence in capsys.readouterr().err


def test_scores_may_differ_by_two_standard_errors_of_the_difference_and_no_more(copied):
    """0.05 is the standard error of each of two evaluations, so 0.0707 is that of their difference."""
    folder = only(copied)
    then = ledger._rows(folder)[-1]["success_once"]
    errors = {"success_once": 0.05, "time_near_goal": 1e9}
    told = [
        ledger.differs(folder, ledger.Repeated(1, {"success_once": then + gap}, errors)) for gap in (0.0, 0.141, 0.142)
    ]
    assert told[:2] == [[], []] and "the log or the policy is not this run's" in told[2][0]


def test_a_run_is_evaluated_again_on_as_many_cores_as_it_was_trained_on(tiny_run, tmp_path, monkeypatch):
    run = Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))
    path = run / "config.json"
    stored = json.loads(path.read_text())
    stored["machine"]["cores"] = "3"
    path.write_text(json.dumps(stored))
    taken = []
    monkeypatch.setattr("dcp.grid.worker.pin", taken.append)
    main(["results", "add", str(run), "--ledger", str(tmp_path / "results"), "--by", "A. Tester"])
    assert taken == [3]
