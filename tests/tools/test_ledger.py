"""The ledger of results, with a real run: what may be added, and every forgery that must be caught."""

import csv
import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from dcp.errors import UserError
from dcp.files.run_folder import load_run
from dcp.lab.paper_values import checkpoint, settings_apart
from dcp.lab.run_collection import collect
from dcp.policies.policy_file import load_policy_and_about, save_policy
from dcp.runs.run_status import read_plan
from tests.support.fake_runs import write_run
from tools.ledger.commands import main
from tools.ledger.entries import _comparable, add, check_all, digest, entries, read_entry, rerun
from tools.ledger.rules import Repeated, differs, folder_faults, rows_of, run_faults
from tools.ledger.tables import _paper, _table, by_other_code, index, tables


@pytest.fixture(scope="module")
def filled(tiny_run, tmp_path_factory) -> Path:
    """A ledger with one entry, which tests only read."""
    folder = tmp_path_factory.mktemp("ledger") / "results"
    assert main(["add", str(tiny_run.folder), "--ledger", str(folder), "--by", "A. Tester"]) == 0
    return folder


@pytest.fixture
def copied(filled, tmp_path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "results"))


def only(folder: Path) -> Path:
    [entry] = entries(folder)
    return entry.folder


def rewritten(folder: Path, row: int, **changes: float) -> None:
    path = folder / "metrics.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows[row] |= {name: str(value) for name, value in changes.items()}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def entry_changed(folder: Path, **changes: object) -> None:
    path = folder / "entry.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def config_changed(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    stored = json.loads(path.read_text())
    stored["config"] |= changes
    path.write_text(json.dumps(stored))


def policy_saved(folder: Path, weights: float = 1.0, **about: object) -> None:
    """Write the entry's policy once more, with other weights or labels."""
    policy, labels = load_policy_and_about(folder)
    policy = replace(policy, actor=jax.tree.map(lambda leaf: weights * leaf, policy.actor))
    save_policy(folder / "policy.safetensors", policy, {**labels, **about})


def resealed(folder: Path) -> Path:
    """Forge what a forger can: the checksums, the folder's name, and the command."""
    sums = {name: digest(folder / name) for name in ("config.json", "metrics.csv", "policy.safetensors")}
    seed = json.loads((folder / "config.json").read_text())["config"]["seed"]
    name = f"seed_{seed}_{hashlib.sha256(''.join(sums.values()).encode()).hexdigest()[:8]}"
    place = "/".join(folder.parts[-3:-1])
    try:
        evaluations = len(rows_of(folder))
    except UserError:
        evaluations = 2
    command = f"python -m tools.ledger rerun ledger/{place}/{name} --evaluations {evaluations}"
    entry_changed(folder, sha256=sums, command=command)
    return folder.rename(folder.with_name(name))


def faults(folder: Path, evaluate: bool = False) -> str:
    return "; ".join(fault for entry in check_all(folder, evaluate) for fault in entry.faults)


def test_an_honest_entry_has_no_fault_and_its_policy_scores_what_was_logged(filled, capsys):
    assert main(["check", "--ledger", str(filled), "--evaluate"]) == 0
    assert "1 entry, 0 faults" in capsys.readouterr().out
    [entry] = entries(filled)
    assert entry.content is not None and entry.content.finished and entry.content.by == "A. Tester"
    assert entry.folder.name.startswith("seed_0_")
    assert "### point_u_maze" in (filled / "README.md").read_text()


def test_an_edited_row_is_caught_by_its_checksum(copied, capsys):
    rewritten(only(copied), 0, success_once=1.0)
    assert main(["check", "--ledger", str(copied)]) == 1
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
    policy_saved(folder, seed=3)
    assert "policy.safetensors is not the file that was added" in faults(copied)
    folder = resealed(folder)
    assert "policy.safetensors is of seed 3, but the run is of seed 0" in faults(copied)
    policy_saved(folder, seed=0, env_steps=99)
    resealed(folder)
    assert "policy.safetensors is of env_steps 99" in faults(copied)


def test_other_weights_under_the_right_labels_are_caught_when_they_are_evaluated(copied, monkeypatch):
    """A policy of zeros stands still: what it scores is not what the log says."""
    folder = only(copied)
    rewritten(folder, -1, success_once=1.0, time_near_goal=200.0)
    policy_saved(folder, weights=0.0)
    folder = resealed(folder)
    entry_changed(folder, repeated=asdict(Repeated(2, {"success_once": 1.0, "time_near_goal": 200.0}, dict(ALIKE))))
    assert faults(copied) == ""
    assert "metrics.csv says success_once 1, but the policy scores 0" in faults(copied, evaluate=True)


ALIKE = {"success_once": 0.0, "time_near_goal": 0.0}  # standard errors where all episodes are alike


@pytest.mark.parametrize(
    "repeated",
    [
        {"evaluation": 1},
        {"standard_errors": {"success_once": 0.3, "time_near_goal": 0.0}},
        {"standard_errors": {"success_once": 0.0, "time_near_goal": 1e6}},
        {"scores": {"success_once": 1.5, "time_near_goal": 0.0}, "standard_errors": ALIKE},  # no share of episodes
    ],
)
def test_a_repeated_evaluation_with_impossible_numbers_is_caught(copied, repeated):
    folder = only(copied)
    scores = {name: rows_of(folder)[-1][name] for name in ALIKE}
    p = scores["success_once"]
    honest = {"evaluation": 2, "scores": scores, "standard_errors": ALIKE | {"success_once": (p * (1 - p) / 15) ** 0.5}}
    entry_changed(folder, repeated=honest)
    assert faults(copied) == ""
    entry_changed(folder, repeated=honest | repeated)
    assert "numbers that no evaluation gives" in faults(copied)


def test_a_relabelled_seed_is_caught(copied):
    folder = only(copied)
    config_changed(folder, seed=4)
    assert "config.json is not the file that was added" in faults(copied)
    resealed(folder)
    assert "policy.safetensors is of seed 0, but the run is of seed 4" in faults(copied)


def test_a_copy_under_another_seed_is_caught_by_its_numbers_or_its_weights(copied):
    first = only(copied)
    copy = Path(shutil.copytree(first, first.with_name("copy")))
    config_changed(copy, seed=4)
    policy_saved(copy, seed=4)
    copy = resealed(copy)
    assert f"it has the numbers of {first}" in faults(copied)
    rewritten(copy, 0, critic_loss=1.25)
    copy = resealed(copy)
    assert f"it has the weights of {first}" in faults(copied)
    policy_saved(copy, weights=1.0001)
    copy = resealed(copy)
    assert faults(copied) == ""  # both changed: that needs a second run


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batch_size": 32}, "where its config has made"),
        ({"width": 16}, "another network than config.json says"),
        ({"repr_dim": 8}, "another critic than config.json says"),
        ({"condition": "raw_goal"}, "another condition than config.json says"),
        ({"eval_env": "point_u_maze_eval"}, "is of eval_env point_u_maze, but the run is of eval_env"),
        ({"env": "/tmp/elsewhere"}, "which is not part of dcp"),
        ({"method": "mine"}, "which is not part of dcp"),
        ({"eval_episodes": 1}, "a single episode"),
        ({"condition": "os:path"}, "names code of its own"),
        ({"env": "os:path:x"}, "config.json: env is 'os:path:x'"),
    ],
)
def test_an_edited_config_with_forged_checksums_is_caught(copied, changes, sentence):
    folder = only(copied)
    config_changed(folder, **changes)
    resealed(folder)
    assert sentence in faults(copied)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"env_steps": 10**8}, "says env_steps 100000000, but its files give"),
        ({"finished": False}, "says finished False, but its files give True"),
        ({"command": "rm -rf /"}, "but its files give python -m tools.ledger rerun ledger/point_u_maze/dcp/seed_0_"),
    ],
)
def test_an_entry_that_says_other_than_its_files_is_caught(copied, changes, sentence):
    entry_changed(only(copied), **changes)
    assert sentence in faults(copied)


def test_a_run_without_an_entry_is_reported_and_no_table_counts_it(copied):
    first = only(copied)
    before = tables(check_all(copied))
    hidden = Path(shutil.copytree(first, first.with_name("hidden")))
    (hidden / "entry.json").unlink()
    shutil.copytree(first, first.parent / "more" / "deep")
    assert tables(check_all(copied)) == before
    assert faults(copied).count("it holds files of a run, but is no entry") == 2


def test_links_are_refused(copied, tmp_path):
    policy = only(copied) / "policy.safetensors"
    policy.rename(tmp_path / "elsewhere")
    policy.symlink_to(tmp_path / "elsewhere")
    assert "policy.safetensors is a link to somewhere else" in faults(copied)


def test_an_entry_is_not_written_where_a_link_of_the_ledger_leads(tiny_run, tmp_path):
    (outside := tmp_path / "outside").mkdir()
    (ledger := tmp_path / "ledger").mkdir()
    (ledger / read_plan(tiny_run.folder)[0].env).symlink_to(outside)
    with pytest.raises(UserError, match="is a link that leads out"):
        add(tiny_run.folder, ledger, by="A. Tester")
    assert list(outside.iterdir()) == []


def test_a_large_file_is_refused_before_it_is_read(copied):
    with (only(copied) / "metrics.csv").open("a") as file:
        file.truncate(9_000_000)
    assert "metrics.csv has more than 8 MB" in faults(copied)


@pytest.mark.parametrize("content", ["", "evaluation,success_once\n1,0.5\n"])
def test_metrics_without_their_columns_get_a_sentence_and_the_page_leaves_them_out(copied, content):
    folder = only(copied)
    (folder / "metrics.csv").write_text(content)
    entry_changed(
        folder, sha256={name: digest(folder / name) for name in ("config.json", "metrics.csv", "policy.safetensors")}
    )
    assert "metrics.csv" in faults(copied)
    assert index(copied, check_all(copied)) == []


def test_an_entry_in_another_method_s_folder_is_caught(copied):
    folder = only(copied)
    (folder.parents[1] / "crl").mkdir()
    folder.rename(folder.parents[1] / "crl" / folder.name)
    assert "its folder is point_u_maze/crl" in faults(copied)


def test_tables_that_do_not_match_the_entries_are_reported_and_rewritten(copied, capsys):
    page = copied / "README.md"
    page.write_text(page.read_text().replace("| dcp |", "| dcp, really |"))
    assert main(["check", "--ledger", str(copied)]) == 1
    assert "has other tables than the entries give" in capsys.readouterr().err
    assert main(["check", "--ledger", str(copied), "--write"]) == 0
    assert "| dcp |" in page.read_text()


@pytest.mark.parametrize("content", ["", "[", "[]", "{}", '{"by": 3}', "[" * 100_000])
def test_a_damaged_entry_gets_a_sentence(copied, content):
    (only(copied) / "entry.json").write_text(content)
    assert "entry.json cannot be read" in faults(copied)


def test_a_run_is_added_once_and_by_somebody(tiny_run, filled):
    with pytest.raises(UserError, match="in the ledger already"):
        add(tiny_run.folder, filled, "A. Tester")
    with pytest.raises(UserError, match="say who ran it"):
        add(tiny_run.folder, filled, " ")


def test_a_run_whose_metrics_were_edited_is_refused_by_its_checkpoint(tiny_run, tmp_path):
    run = Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))
    rewritten(run, 0, final_distance=0.25)
    assert "row 1 of metrics.csv has final_distance 0.25, but the checkpoint has" in run_faults(run)[0]


def without_setting(folder: Path, name: str) -> None:
    stored = json.loads((folder / "config.json").read_text())
    del stored["config"][name]
    (folder / "config.json").write_text(json.dumps(stored))


def test_an_entry_may_lack_a_setting_that_is_newer_than_it_but_a_new_run_may_not(copied, tiny_run, tmp_path):
    folder = only(copied)
    without_setting(folder, "actor_goal")  # null in the run: the method decides, as by default
    resealed(folder)
    assert faults(copied) == ""
    run = Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))
    without_setting(run, "actor_goal")
    assert run_faults(run) == ["config.json lacks actor_goal: it was written by an older dcp; run it again"]


def test_a_run_that_ended_by_a_fault_is_refused(tiny_run, tmp_path):
    run = Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))
    (run / "fault.json").write_text("{}")
    assert "ended by a fault" in run_faults(run)[0]


def test_an_entry_trained_again_has_the_same_numbers(filled, capsys):
    assert rerun(only(filled), 1) == []
    assert "success_once" in capsys.readouterr().out
    with pytest.raises(UserError, match="use 1 to 2"):
        rerun(only(filled), 3)


def test_the_page_holds_every_run_and_escapes_what_people_write(copied, tmp_path, capsys):
    entry = only(copied) / "entry.json"
    entry.write_text(entry.read_text().replace("A. Tester", "</script><b>"))
    assert main(["page", "--ledger", str(copied), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "1 run" in capsys.readouterr().out and '"method":"dcp"' in page
    assert "</script><b>" not in page


def test_the_leaderboard_says_layout_updates_and_minutes_and_marks_what_nobody_evaluated_again(copied):
    [ours] = index(copied, check_all(copied))
    row = rows_of(only(copied))[-1]
    assert (ours["updates"], ours["minutes"]) == (row["updates"], row["wall_seconds"] / 60)
    assert ours["layout"] == "all goals" and ours["evaluated"].startswith("again")
    others = by_other_code()
    assert {other["evaluated"] for other in others} == {"not re-evaluated"} and ours.keys() == others[0].keys()
    [paper] = [o for o in others if (o["env"], o["method"]) == ("ant_u_maze", "dcp")]
    assert (paper["steps"], paper["layout"]) == (50_000_000, "all goals") and 0.0 < paper["success_once"] < 1.0
    near = {
        (o["layout"], o["time_near_goal"]) for o in others if (o["env"], o["method"]) == ("ant_u4_maze", "CRL, depth 4")
    }
    assert near == {("far goals", 11.4), ("all goals", 383.1)}  # docs/protocols.md


def test_wrong_words_get_a_sentence(tmp_path, capsys):
    for words, sentence in [
        ([], "choose one of add, check, rerun, page"),
        (["add"], "needs a run's folder"),
        (["check", "x"], "takes no 'x'"),
        (["check", "--ledger", str(tmp_path / "none")], "there is no ledger"),
        (["rerun"], "takes one entry's folder"),
        (["add", str(tmp_path), "--by", "me"], "not a run folder"),
    ]:
        assert main([*words]) == 2
        assert sentence in capsys.readouterr().err


def test_scores_may_differ_by_three_standard_errors_of_the_difference_and_no_more(copied):
    """1 step is the standard error of each of two evaluations, so sqrt(2) is that of their difference: 4.243."""
    folder = only(copied)
    config_changed(folder, eval_episodes=1000)  # so that half an episode is 0.1 steps
    then = rows_of(folder)[-1]
    differences = [
        differs(
            folder,
            Repeated(2, {"success_once": then["success_once"], "time_near_goal": then["time_near_goal"] + gap}, ERRORS),
        )
        for gap in (0.0, 4.24, 4.25)
    ]
    assert differences[:2] == [[], []] and "the log or the policy is not this run's" in differences[2][0]


ERRORS = {"success_once": 0.05, "time_near_goal": 1.0}


def test_a_policy_that_always_arrives_elsewhere_is_not_refused(copied):
    """Of 16 episodes 15 and 16: Agresti and Caffo's standard error of the difference is 0.100."""
    folder = only(copied)
    rewritten(folder, -1, success_once=15 / 16, time_near_goal=150.0)
    assert differs(folder, Repeated(2, {"success_once": 1.0, "time_near_goal": 160.0}, ALIKE)) == []
    assert differs(folder, Repeated(2, {"success_once": 0.5, "time_near_goal": 150.0}, ALIKE)) != []


def test_an_unfinished_run_has_a_row_of_its_own_until_the_finished_one_replaces_it(tiny_run, tmp_path, monkeypatch):
    run, ledger = Path(shutil.copytree(tiny_run.folder, tmp_path / "run")), tmp_path / "results"
    path = run / "metrics.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))  # one evaluation of two
    [early] = rows_of(run)
    policy_saved(run, env_steps=early["env_steps"])
    p = early["success_once"]
    same = Repeated(1, {name: early[name] for name in ALIKE}, ALIKE | {"success_once": (p * (1 - p) / 15) ** 0.5})
    with monkeypatch.context() as patched:  # the policy is the last evaluation's
        patched.setattr("tools.ledger.entries.repeat", lambda folder: same)
        add(run, ledger, "A. Tester")
    assert f"| {early['env_steps']:,.0f}, unfinished |" in tables(check_all(ledger))
    assert faults(ledger) == ""
    whole = add(tiny_run.folder, ledger, "A. Tester")
    assert [entry.folder for entry in entries(ledger)] == [whole]
    assert "unfinished" not in tables(check_all(ledger))


def test_other_settings_than_the_paper_s_do_not_stand_beside_its_values():
    config = load_run("ledger/ant_u_maze/dcp/seed_0_e49e008c").config
    assert settings_apart(config) == []
    assert settings_apart(config | {"seed": 7, "num_evals": 3}) == []
    assert settings_apart({name: value for name, value in config.items() if name != "residual_every"}) == []
    for other in (
        {"batch_size": 512}, {"discount": 0.9}, {"condition": "steps"}, {"eval_env": "ant_u_maze_eval"},
        {"episode_length": 100}, {"window": 50}, {"pool_refresh_steps": 7},
    ):  # fmt: skip
        assert settings_apart(config | other), other


@pytest.mark.parametrize("name", ["evil:make", "evil:make:x", "nowhere"])
def test_an_environment_that_is_not_ours_has_not_the_paper_s_settings_and_is_not_made(planted, name):
    config = load_run("ledger/ant_u_maze/dcp/seed_0_e49e008c").config
    assert settings_apart(config | {"env": name}) == [f"the paper has no {name}"]
    assert not planted.exists()


def gain_line(folder: Path) -> str:
    return _table(collect([folder]), "ant_u_maze").splitlines()[-1]


def test_a_seed_that_was_trained_longer_is_still_paired(tmp_path):
    """Gains of 10, 20 and 30 points at 10M: 20 on average, t(2) 10 / sqrt(3) = 24.8."""
    for seed, success in enumerate((0.3, 0.4, 0.5)):
        steps, scores = ([10e6, 50e6], [success, 0.9]) if seed == 0 else ([10e6], [success])
        write_run(tmp_path, "ant_u_maze", "dcp", seed, steps, scores)
        write_run(tmp_path, "ant_u_maze", "crl", seed, [10e6], [0.2])
    assert "paired by seed, at 10,000,000 steps: Success at least once +20.0 ± 24.8, p = 0.074" in gain_line(tmp_path)


def test_two_pairs_have_no_interval_in_the_ledger(tmp_path):
    for seed, success in enumerate((0.3, 0.4)):
        write_run(tmp_path, "ant_u_maze", "dcp", seed, [10e6], [success])
        write_run(tmp_path, "ant_u_maze", "crl", seed, [10e6], [0.2])
    assert "Success at least once +15.0 (seeds: 2, too few for an interval)" in gain_line(tmp_path)


def test_methods_with_different_settings_are_not_paired_in_the_ledger(tmp_path):
    for seed in range(3):
        write_run(tmp_path, "ant_u_maze", "dcp", seed, [10e6], [0.4])
        write_run(tmp_path, "ant_u_maze", "crl", seed, [10e6], [0.2], num_envs=64)
    assert "paired" not in gain_line(tmp_path)


def test_only_the_evaluations_of_a_run_s_first_budget_are_compared(copied):
    """Two evaluations were logged, one of them within the first budget: only that one can be compared."""
    folder = only(copied)
    path = folder / "config.json"
    stored = json.loads(path.read_text())
    assert _comparable(folder)[1] == 2
    stored["earlier_budgets"] = [{"steps": stored["config"]["steps"] // 2, "num_evals": 1}]
    path.write_text(json.dumps(stored))
    assert _comparable(folder)[1] == 1


def test_the_ledger_of_this_repository_has_no_fault(capsys):
    assert main(["check", "--ledger", "ledger"]) == 0, capsys.readouterr().err


def test_the_page_of_the_docs_shows_the_ledger_of_this_repository(tmp_path):
    assert main(["page", "--ledger", "ledger", "--out", str(tmp_path / "page.html")]) == 0
    current = Path("docs/ledger_runs.html").read_text()
    assert current == (tmp_path / "page.html").read_text(), (
        "run: python -m tools.ledger page --out docs/ledger_runs.html"
    )


def test_a_run_is_evaluated_again_on_as_many_cores_as_it_was_trained_on(tiny_run, tmp_path, monkeypatch):
    run = Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))
    path = run / "config.json"
    stored = json.loads(path.read_text())
    stored["machine"]["cores"] = "3"
    path.write_text(json.dumps(stored))
    taken = []
    monkeypatch.setattr("dcp.grid.worker.pin", taken.append)
    main(["add", str(run), "--ledger", str(tmp_path / "results"), "--by", "A. Tester"])
    assert taken == [3]


# Entries are strangers' files.


@pytest.fixture
def planted(tmp_path, monkeypatch) -> Path:
    """A module that a stranger put where Python looks, and the file that it writes when it is imported or called."""
    marker, where = tmp_path / "EVIL_RAN", tmp_path / "planted"
    where.mkdir()
    (where / "evil.py").write_text(
        f"open({str(marker)!r}, 'a').write('import ')\n"
        f"def make(*args, **kwargs):\n    open({str(marker)!r}, 'a').write('call ')\n    return 0\n"
        "globals()['make:x'] = make\n"
    )
    monkeypatch.syspath_prepend(where)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    return marker


@pytest.mark.parametrize("name", ["evil:make", "evil:make:x", "evil:", "evil:make x", "evil"])
@pytest.mark.parametrize("field", ["env", "eval_env", "method", "condition", "critic", "score"])
def test_no_command_of_the_ledger_imports_what_an_entry_names(copied, planted, tmp_path, field, name):
    folder = only(copied)
    config_changed(folder, **{field: name})
    if field in ("env", "eval_env"):
        policy_saved(folder, **{field: name})
    folder = resealed(folder)
    assert main(["check", "--ledger", str(copied)]) == 1
    assert main(["check", "--ledger", str(copied), "--evaluate", "--write"]) == 1
    assert main(["page", "--ledger", str(copied), "--out", str(tmp_path / "page.html")]) == 0
    assert main(["rerun", str(folder), "--evaluations", "1"]) == 2
    assert main(["add", str(folder), "--ledger", str(copied), "--by", "A. Tester"]) == 2
    assert not planted.exists()


def test_an_evaluation_environment_that_is_not_ours_is_refused(copied):
    folder = only(copied)
    config_changed(folder, eval_env="nowhere")
    policy_saved(folder, eval_env="nowhere")
    resealed(folder)
    assert "the run is of the environment 'nowhere', which is not part of dcp" in faults(copied)


def test_an_entry_with_a_fault_is_not_trained_again(copied, capsys):
    folder = only(copied)
    config_changed(folder, discount=0.5)
    assert main(["rerun", str(folder), "--evaluations", "1"]) == 2
    assert (
        "is not trained again, since it has faults: config.json is not the file that was added"
        in capsys.readouterr().err
    )


def test_what_a_config_names_is_refused_before_training_even_where_the_checks_miss_it(copied, planted, monkeypatch):
    folder = only(copied)
    config_changed(folder, score="evil:make")
    monkeypatch.setattr("tools.ledger.entries.check_entry", read_entry)
    with pytest.raises(UserError, match="names the code 'evil:make'"):
        rerun(folder, 1)
    monkeypatch.setattr("tools.ledger.entries.require_allowed", lambda names: None)
    assert main(["rerun", str(folder), "--evaluations", "1"]) == 2
    assert not planted.exists()


@pytest.fixture
def with_an_honest_one(copied) -> tuple[Path, Path]:
    """A ledger with two entries. -> the ledger, the folder of the entry that a test makes hostile"""
    copy = Path(shutil.copytree(only(copied), only(copied).with_name("copy")))
    config_changed(copy, seed=4)
    policy_saved(copy, weights=1.5, seed=4)
    rewritten(copy, 0, critic_loss=1.25)
    copy = resealed(copy)
    assert faults(copied) == "" and main(["check", "--ledger", str(copied), "--write"]) == 0
    assert "| dcp | 0, 4 |" in (copied / "README.md").read_text()
    return copied, copy


HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (lambda folder: rewritten(folder, 0, success_once=1e308), "not a whole number"),
        (lambda folder: rewritten(folder, 0, time_near_goal=-1e308), "not a whole number"),
        (lambda folder: rewritten(folder, -1, env_steps=1e308), "evaluates at no such point"),
        (lambda folder: config_changed(folder, env="nowhere"), "'nowhere', which is not part of dcp"),
        (lambda folder: config_changed(folder, method="mine"), "'mine', which is not part of dcp"),
        (lambda folder: entry_changed(folder, command="\x1b[2J"), "says command \\x1b[2J, but its files give"),
        (lambda folder: config_changed(folder, seed=10**400), "config.json"),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe"), "config.json"),
        (lambda folder: (folder / "metrics.csv").write_bytes(b"\xff\xfe"), "metrics.csv"),
        (lambda folder: (folder / "policy.safetensors").write_bytes(b"\xff" * 100), "policy.safetensors"),
    ],
)
def test_one_hostile_entry_is_reported_and_the_others_are_checked(with_an_honest_one, capsys, tmp_path, harm, sentence):
    ledger, hostile = with_an_honest_one
    harm(hostile)
    sums = {name: digest(hostile / name) for name in ("config.json", "metrics.csv", "policy.safetensors")}
    entry_changed(hostile, sha256=sums)
    honest = next(entry.folder for entry in entries(ledger) if entry.folder != hostile)
    rewritten(honest, 0, success_once=0.5)
    assert main(["check", "--ledger", str(ledger)]) == 1
    shown = capsys.readouterr()
    assert sentence in shown.err and "\x1b" not in shown.err
    assert f"{honest}: metrics.csv is not the file that was added" in shown.err
    assert "2 entries" in shown.out
    assert main(["page", "--ledger", str(ledger), "--out", str(tmp_path / "page.html")]) == 0
    assert "0 runs" in capsys.readouterr().out


def test_tables_count_only_entries_without_faults(with_an_honest_one):
    ledger, hostile = with_an_honest_one
    rewritten(hostile, 0, success_once=0.5)
    assert main(["check", "--ledger", str(ledger), "--write"]) == 1
    assert "| dcp | 0 |" in (ledger / "README.md").read_text()


def test_an_error_that_no_rule_foresees_is_a_fault_of_its_entry_alone(with_an_honest_one, monkeypatch):
    ledger, hostile = with_an_honest_one
    foreseen = folder_faults

    def breaks(folder: Path) -> list[str]:
        return foreseen(folder) if folder != hostile else [str(1 // 0)]

    monkeypatch.setattr("tools.ledger.entries.folder_faults", breaks)
    assert faults(ledger) == "it cannot be checked (ZeroDivisionError: integer division or modulo by zero): remove it"


@pytest.mark.parametrize("harm", ["bytes", "folder"])
@pytest.mark.parametrize("words", [["check"], ["check", "--write"]])
def test_a_page_of_tables_that_cannot_be_read_gets_a_sentence(copied, capsys, harm, words):
    page = copied / "README.md"
    page.unlink()
    page.mkdir() if harm == "folder" else page.write_bytes(b"\xff")
    assert main([*words, "--ledger", str(copied)]) == (2 if "--write" in words else 1)
    assert "README.md cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("cores", [HUGE, "0", "-1", "\u0663", "many"])
def test_a_number_of_cores_that_no_machine_has_is_left_aside(copied, monkeypatch, capsys, cores):
    folder = only(copied)
    stored = json.loads((folder / "config.json").read_text())
    stored["machine"]["cores"] = cores
    (folder / "config.json").write_text(json.dumps(stored))
    taken = []
    monkeypatch.setattr("dcp.grid.worker.pin", taken.append)
    assert main(["rerun", str(folder), "--evaluations", "1"]) == 2
    assert taken == [] and "config.json is not the file that was added" in capsys.readouterr().err


def test_a_path_that_no_system_takes_gets_a_sentence(capsys):
    for words in (["check", "--ledger", "a" * 5000], ["rerun", "a" * 5000], ["add", "a" * 5000, "--by", "me"]):
        assert main(words) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_the_command_of_the_ledger_starts_from_the_repository_s_root_and_finds_no_fault():
    ended = subprocess.run(
        [sys.executable, "-m", "tools.ledger", "check"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert "0 faults" in ended.stdout


ROOT = Path(__file__).parents[2]


def test_a_config_that_leaves_out_a_default_is_shown_with_it(copied):
    """Fuzzing found it: an entry without faults whose page could not be made."""
    folder = only(copied)
    stored = json.loads((folder / "config.json").read_text())
    assert stored["config"].pop("method") == "dcp"
    (folder / "config.json").write_text(json.dumps(stored))
    resealed(folder)
    [shown] = index(copied, check_all(copied))
    assert (shown["env"], shown["method"], shown["seed"]) == ("point_u_maze", "dcp", 0)


@pytest.mark.parametrize(("end", "stands"), [(10_031_104, True), (9_700_000, True), (9_200_000, False), (8e6, False)])
def test_the_paper_s_value_stands_at_the_checkpoint_that_a_report_would_quote_the_runs_at(end: float, stands: bool):
    """Evaluations every 500,000 steps: the last one may be that far from 10M, and a tenth of it, but no farther."""
    points = np.arange(end, 0, -500_000)[::-1]
    run: Any = SimpleNamespace(metrics={"env_steps": points}, num_evaluations=len(points))
    value = checkpoint("success_once", "ant_u_maze", "dcp", 10_000_000)
    assert value is not None
    shown = _paper("ant_u_maze", "dcp", end, [run, run])
    assert shown.startswith(f"{value.mean} ± {value.spread}; ") if stands else shown == "-"
