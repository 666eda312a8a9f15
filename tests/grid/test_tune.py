"""The search by the real Optuna. A launcher stands for processes here and writes metrics.csv by hand.

Real processes are in tests/cli/test_tune.py.
"""

import csv
import json
import sqlite3
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcp.config import SCHEMA_VERSION
from dcp.errors import RunError, UserError
from dcp.files import CONFIG_FILE, FAULT_FILE, METRICS_FILE
from dcp.grid.jobs import Job, JobStatus
from dcp.grid.resources import FreeResources, Resources
from dcp.grid.tune import Search, open_study, prepare, score
from dcp.grid.tune_file import parse_tune_file

EVALS = 8
CONTENT = {
    "preset": "smoke",
    "set": {"depth": 1, "steps": 12_000, "num_evals": EVALS},
    "product": {"seed": [100, 101]},
    "search": {"width": [16, 32], "discount": {"low": 0.9, "high": 0.99}},
}
Curve = Callable[[int, int, int], float]  # trial, seed, evaluation -> success


class ByHand:
    """With every poll each running job has one more evaluation. `ends`: how jobs end otherwise, at an evaluation."""

    def __init__(self, free: FreeResources, curve: Curve, ends: dict[str, list[tuple[int, JobStatus]]] | None = None):
        self.free, self.curve, self.ends = free, curve, ends or {}
        self.done: dict[str, int] = {}
        self.statuses: dict[str, JobStatus] = {}
        self.jobs: dict[str, Job] = {}
        self.ended: list[str] = []
        self.polls, self.interrupt_at = 0, -1

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.jobs[job.name], self.statuses[job.name] = job, JobStatus("waiting")
            self.done[job.name] = len(rows(job.folders[0]))

    def poll(self) -> dict[str, JobStatus]:
        self.polls += 1
        if self.polls == self.interrupt_at:
            raise KeyboardInterrupt
        for name, job in self.jobs.items():
            if self.statuses[name].state == "waiting" and self.free.take(job.resources) is not None:
                self.statuses[name] = JobStatus("running")
            elif self.statuses[name].state == "running":
                self._advance(name, job)
        return dict(self.statuses)

    def _advance(self, name: str, job: Job) -> None:
        ends = self.ends.get(name, [])
        if self.done[name] < EVALS:
            self.done[name] += 1
            trial = int(job.subfolder.removeprefix("trial_"))
            write(job, [self.curve(trial, job.settings.seed, at) for at in range(1, self.done[name] + 1)])
        if ends and ends[0][0] == self.done[name]:
            self._ended(name, ends.pop(0)[1])
        elif self.done[name] == EVALS:
            self._ended(name, JobStatus("finished", code=0))

    def _ended(self, name: str, status: JobStatus) -> None:
        self.free.give_back(self.jobs[name].resources, ())
        self.statuses[name] = status

    def end(self, names: Collection[str]) -> None:
        for name in sorted(names):
            self.ended.append(name)
            if self.statuses[name].state == "running":
                self._ended(name, JobStatus("stopped", code=75))

    def stop(self) -> None:
        self.ended.append("stop")

    def close(self) -> None:
        self.ended.append("close")


class Notes:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def update(self, lines: Sequence[Any]) -> None: ...

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


def rows(folder: Path) -> list[str]:
    return (folder / METRICS_FILE).read_text().splitlines()[1:] if (folder / METRICS_FILE).exists() else []


def write(job: Job, success: Sequence[float]) -> None:
    folder = job.folders[0]
    folder.mkdir(parents=True, exist_ok=True)
    content = {"schema_version": SCHEMA_VERSION, "config": asdict(job.settings), "earlier_budgets": [], "versions": {}}
    (folder / CONFIG_FILE).write_text(json.dumps(content))
    with (folder / METRICS_FILE).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["evaluation", "env_steps", "steps_per_second", "success_once", "time_near_goal", "wall_seconds"]
        )
        writer.writerows([at, 1000 * at, 10, value, 0, 30 * at] for at, value in enumerate(success, 1))


def search(runs_dir: Path, curve: Curve, at_once: int = 2, trials: int = 3, **more: Any) -> tuple[Search, ByHand]:
    """A search with `at_once` runs at a time; `more` goes into the file's tables."""
    ends = more.pop("ends", None)
    tune = {"last": 2, **more}
    file = parse_tune_file({**CONTENT, "tune": tune}, "f.toml")
    runs_dir.mkdir(exist_ok=True)
    study = open_study(runs_dir)
    prepare(study, file.fingerprint(()), seed=0, warmup=EVALS // 4)
    free = FreeResources(at_once)
    launcher: Any = ByHand(free, curve, ends)
    each = Resources(1, memory_bytes=1)
    return Search(file, study, launcher, free, each, "processes", runs_dir, Notes(), trials, poll=0.0), launcher


def states(one: Search) -> list[str]:
    return [trial.state.name for trial in one.study.trials]


def test_a_score_is_the_mean_over_runs_of_the_mean_of_their_last_evaluations():
    assert score([np.array([0.0, 1.0, 2.0, 3.0]), np.array([9.0, 1.0, 4.0])], last=2) == 2.5
    assert score([np.array([0.5])], last=3) == 0.5
    assert np.isnan(score([np.array([0.5]), np.empty(0)], last=3))


def test_every_trial_is_scored_by_all_of_its_runs_and_reported_at_each_evaluation_that_all_have_reached(tmp_path: Path):
    one, launcher = search(tmp_path, lambda trial, seed, at: 0.01 * at + (seed - 100) * 0.1 + trial, prune=False)
    one.run()
    assert states(one) == ["COMPLETE"] * 3 and not one.stopped and launcher.ended[-1] == "close"
    # evaluations 7 and 8 of both seeds: (0.07 + 0.08 + 0.17 + 0.18) / 4
    assert [trial.value for trial in one.study.trials] == pytest.approx([0.125, 1.125, 2.125])
    first = one.study.trials[0].intermediate_values
    assert list(first) == list(range(1, EVALS + 1))
    assert [first[1], first[2], first[8]] == pytest.approx([0.06, 0.065, 0.125])
    assert one.study.trials[0].user_attrs["minutes"] == pytest.approx(2 * 240 / 60)
    assert {str(Path(name).parent) for name in launcher.jobs} == {f"trial_{n}/point_u_maze/dcp" for n in range(3)}


def test_trials_are_asked_for_only_when_there_is_room(tmp_path: Path):
    one, launcher = search(tmp_path, lambda *_: 0.5, at_once=5, prune=False)
    most = 0
    poll = launcher.poll

    def counted() -> dict[str, JobStatus]:
        nonlocal most
        statuses = poll()
        most = max(most, sum(trial.state.name == "RUNNING" for trial in one.study.trials))
        assert sum(status.state == "waiting" for status in statuses.values()) <= 1
        return statuses

    launcher.poll = counted
    one.run()
    assert most == 3  # two fit, and one run of the third


def test_a_trial_below_the_median_is_pruned_after_a_quarter_of_its_evaluations_and_its_runs_are_ended(tmp_path: Path):
    """Five finish with 0.5; the sixth has 0.6 in one seed and 0.2 in the other: 0.4 is below their median."""

    def curve(trial: int, seed: int, at: int) -> float:
        return 0.5 if trial != 5 else (0.6 if seed == 100 else 0.2)

    one, launcher = search(tmp_path, curve, trials=7)
    one.run()
    assert states(one) == ["COMPLETE"] * 5 + ["PRUNED", "COMPLETE"]
    pruned = one.study.trials[5]
    assert list(pruned.intermediate_values) == [1, 2] and pruned.value == pytest.approx(0.4)
    assert launcher.statuses["trial_5/point_u_maze/dcp/seed_100"].state == "stopped"
    assert pruned.user_attrs["why"] == "below the median at evaluation 2"


def test_nothing_is_pruned_if_the_file_says_so_nor_at_its_last_evaluation(tmp_path: Path):
    one, _ = search(tmp_path / "a", lambda trial, *_: 0.5 if trial < 5 else 0.1, trials=6, prune=False)
    one.run()
    late, _ = search(tmp_path / "b", lambda trial, _, at: 0.1 if trial == 5 and at == EVALS else 0.5, trials=6)
    late.run()
    assert states(one) == states(late) == ["COMPLETE"] * 6


def test_runs_that_crash_are_tried_again_and_those_that_diverge_are_not(tmp_path: Path):
    name = "trial_{}/point_u_maze/dcp/seed_100"
    crash = JobStatus("failed", "ended by SIGKILL", code=137)
    ends = {name.format(0): [(3, crash)], name.format(1): [(3, crash), (4, crash)], name.format(2): [(3, crash)]}
    ends[name.format(3)] = [(1, JobStatus("failed", "a mistake", code=2))]
    one, launcher = search(tmp_path, lambda *_: 0.5, trials=5, ends=ends)
    fault = tmp_path / name.format(2) / FAULT_FILE
    fault.parent.mkdir(parents=True)
    launcher_poll = launcher.poll

    def poll() -> dict[str, JobStatus]:
        if len(rows(fault.parent)) == 2:
            fault.write_text(json.dumps({"metrics": {"loss": "nan"}, "env_steps": 3000}))
        return launcher_poll()

    launcher.poll = poll
    one.run()
    assert states(one) == ["COMPLETE", "FAIL", "PRUNED", "FAIL", "COMPLETE"]
    assert [trial.user_attrs.get("why") for trial in one.study.trials][1:4] == ["ended by SIGKILL"] * 2 + ["a mistake"]


def test_a_choice_that_does_not_fit_together_fails_alone(tmp_path: Path):
    one, _ = search(tmp_path, lambda *_: 0.5)
    file = parse_tune_file({**CONTENT, "search": {"pool_size": [4, 32]}, "tune": {"prune": False}}, "f.toml")
    one.file, one.trials = file, 6
    one.run()
    assert set(states(one)) == {"COMPLETE", "FAIL"} and len(states(one)) == 6
    for trial in one.study.trials:
        assert (trial.state.name == "FAIL") == (trial.params["pool_size"] == 4)
        assert trial.state.name != "FAIL" or "num_candidates 8 exceeds pool_size 4" in trial.user_attrs["why"]


def test_code_that_a_trial_chooses_is_loaded_only_if_the_user_named_it(tmp_path: Path):
    one, _ = search(tmp_path, lambda *_: 0.5)
    one.file = parse_tune_file({**CONTENT, "search": {"condition": ["evil:make", "evil:other"]}}, "f.toml")
    one.trials = 1
    one.run()
    assert "also give --own-code evil:" in one.study.trials[0].user_attrs["why"]


def test_a_search_of_which_every_trial_fails_ends_instead_of_using_them_up(tmp_path: Path):
    one, _ = search(tmp_path, lambda *_: 0.5, trials=50)
    one.file = parse_tune_file({**CONTENT, "search": {"pool_size": [4, 5]}}, "f.toml")
    with pytest.raises(RunError, match=r"the last 10 trials have failed \(.*num_candidates 8 exceeds pool_size"):
        one.run()
    assert states(one) == ["FAIL"] * 10


def test_an_interrupted_search_continues_with_the_choices_and_evaluations_that_it_had(tmp_path: Path):
    one, launcher = search(tmp_path, lambda trial, seed, at: at / 10, prune=False)
    launcher.interrupt_at = 6
    one.run()
    assert one.stopped and launcher.ended == ["stop", "close"] and states(one) == ["RUNNING"]
    (before,) = one.study.trials
    assert 1 <= len(before.intermediate_values) < EVALS
    again, _ = search(tmp_path, lambda trial, seed, at: at / 10, prune=False)
    again.run()
    assert states(again) == ["COMPLETE"] * 3 and not again.stopped
    after = again.study.trials[0]
    assert after.params == before.params and after.value == pytest.approx(0.75)
    assert list(after.intermediate_values) == list(range(1, EVALS + 1))
    assert again.study.trials[1].params != before.params  # the sampler does not begin anew
    more, _ = search(tmp_path, lambda trial, seed, at: at / 10, trials=4, prune=False)
    more.run()
    assert states(more) == ["COMPLETE"] * 4


def test_a_trial_that_was_killed_before_it_had_all_its_values_gets_the_rest(tmp_path: Path):
    one, _ = search(tmp_path, lambda *_: 0.5, trials=1)
    one.study.ask().suggest_categorical("width", (16, 32))
    one.run()
    assert states(one) == ["COMPLETE"] and set(one.study.trials[0].params) == {"width", "discount"}


def test_trials_of_another_file_are_not_continued(tmp_path: Path):
    one, _ = search(tmp_path, lambda *_: 0.5, trials=1)
    one.run()
    with pytest.raises(UserError, match=r"1 trials are of other settings.*choose another --runs-dir"):
        search(tmp_path, lambda *_: 0.5, last=1)


def test_a_metric_that_is_no_column_ends_the_search_in_a_sentence(tmp_path: Path):
    one, launcher = search(tmp_path, lambda *_: 0.5, metric="sucess")
    with pytest.raises(UserError, match="no column 'sucess': choose one of steps_per_second, success_once"):
        one.run()
    assert launcher.ended == ["close"]


def test_a_folder_that_holds_other_runs_ends_the_search_and_is_not_changed(tmp_path: Path):
    one, launcher = search(tmp_path, lambda *_: 0.5)
    folder = tmp_path / "trial_0/point_u_maze/dcp/seed_100"
    folder.mkdir(parents=True)
    (folder / CONFIG_FILE).write_text(json.dumps({"schema_version": SCHEMA_VERSION, "config": {"width": 5}}))
    with pytest.raises(UserError, match="holds another run"):
        one.run()
    assert not launcher.jobs


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\x00" + bytes(100)])
def test_a_file_that_is_no_study_is_one_sentence(tmp_path: Path, content: bytes):
    (tmp_path / "study.db").write_bytes(content)
    if content:
        with pytest.raises(UserError, match=r"is no study that can be read .*choose another --runs-dir"):
            open_study(tmp_path)
    else:  # what a kill at the first moment leaves
        assert open_study(tmp_path).trials == []


def test_a_strangers_study_names_no_code_and_runs_none(tmp_path: Path):
    """Its open trial chose `evil:make`, and its values are not those of the file."""
    ran = tmp_path / "ran"
    Path(tmp_path / "evil.py").write_text(f"open({str(ran)!r}, 'w')\n")
    one, _ = search(tmp_path / "runs", lambda *_: 0.5, trials=2)
    one.study.ask().suggest_categorical("width", ("evil:make", "evil:other"))
    one.run()
    assert states(one) == ["FAIL", "FAIL"] and not ran.exists()  # the second: a study has one set of choices
    with sqlite3.connect(tmp_path / "runs/study.db") as database:
        database.execute('update trial_params set distribution_json = \'{"name": "evil:make"}\'')
    with pytest.raises(UserError, match="is no study that can be read"):
        open_study(tmp_path / "runs")


def test_a_study_is_not_written_through_a_link(tmp_path: Path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/study.db").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match="is a link that leads out"):
        open_study(tmp_path / "runs")
    assert not (tmp_path / "mine").exists()


def test_a_missing_optuna_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(UserError, match=r"dcp tune needs Optuna: pip install '\.\[tune\]'"):
        open_study(tmp_path)
