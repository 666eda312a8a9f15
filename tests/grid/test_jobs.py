"""How runs stand by their folders, and what jobs are made of those that are unfinished."""

import json
import os
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from dcp.cli.main import main
from dcp.config import Settings
from dcp.errors import UserError
from dcp.grid.grid_file import check_runs, expand, parse_grid
from dcp.grid.jobs import Job, Run, last_row, make_jobs, read_json, run_status, survey, write_json
from dcp.grid.resources import Resources
from dcp.runs.folder import FolderLock
from dcp.runs.run_status import budget_to_resume_with, owner
from dcp.runs.training import TrainedRun
from tests.support.small_grids import EACH, content, planned


@pytest.fixture
def there(tmp_path: Path, tiny_run: TrainedRun) -> tuple[Path, Settings]:
    """A runs-dir with the tiny run, and the settings that a grid would ask for it with."""
    folder = tmp_path / tiny_run.folder.relative_to(tiny_run.folder.parents[2])
    shutil.copytree(tiny_run.folder, folder)
    stored = json.loads((folder / "config.json").read_text())["config"]
    return folder, replace(Settings(**stored), devices=None)


def test_a_finished_run_is_finished_and_one_that_is_not_there_is_new(there: tuple[Path, Settings], tmp_path: Path):
    folder, asked = there
    found = run_status(folder, asked)
    assert (found.kind, found.done, found.total) == ("finished", 4_000, 4_000)
    assert run_status(tmp_path / "nowhere", asked).kind == "new"


def test_a_run_of_which_more_steps_are_asked_goes_on(there: tuple[Path, Settings]):
    folder, asked = there
    found = run_status(folder, replace(asked, steps=8_000))
    assert (found.kind, found.done, found.total) == ("interrupted", 4_000, 8_000)


@pytest.mark.parametrize("lost", ["metrics.csv", "policy.safetensors"])
def test_a_run_without_all_its_results_is_not_finished(there: tuple[Path, Settings], lost: str):
    folder, asked = there
    (folder / lost).unlink()
    assert run_status(folder, asked).kind == "interrupted"


def test_a_run_whose_last_checkpoint_was_not_written_goes_on_from_the_one_before(there: tuple[Path, Settings]):
    folder, asked = there
    shutil.rmtree(sorted((folder / "checkpoints").iterdir())[-1])
    found = run_status(folder, asked)
    assert found.kind == "interrupted" and 0 < found.done < 4_000


@pytest.mark.parametrize(("name", "value"), [("width", 33), ("steps", 2_000), ("actor_goal", "future")])
def test_a_folder_with_other_settings_holds_another_run(there: tuple[Path, Settings], name: str, value: object):
    folder, asked = there
    found = run_status(folder, replace(asked, **{name: value}))
    assert found.kind == "other" and f"({name} " in found.why and "choose another --runs-dir" in found.why


def test_an_actor_goal_that_is_left_to_the_method_is_not_one_that_was_chosen(there: tuple[Path, Settings]):
    folder, asked = there
    content = json.loads((folder / "config.json").read_text())
    content["config"]["actor_goal"] = "future"
    (folder / "config.json").write_text(json.dumps(content))
    assert run_status(folder, asked).kind == "other"


def test_a_damaged_config_is_a_broken_run_and_the_others_are_planned(there: tuple[Path, Settings]):
    folder, _ = there
    (folder / "config.json").write_text("{")
    runs_dir = folder.parents[2]
    entries, jobs = planned(runs_dir, seed=[0, 1])
    assert [entry.status.kind for entry in entries] == ["broken", "new"]
    assert "is not JSON" in entries[0].status.why
    assert [job.name for job in jobs] == ["point_u_maze/dcp/seed_1"]


def test_a_grid_over_another_run_is_refused_before_anything_starts(there: tuple[Path, Settings], capsys):
    runs_dir = there[0].parents[2]
    assert main(["grid", "--preset", "smoke", "--where", "seed=0", "--runs-dir", str(runs_dir)]) == 2
    said = capsys.readouterr().err
    assert "seed_0 holds another run (depth 1 where 2 is asked for)" in said and said.count("\n") == 1
    assert not (runs_dir / "grid").exists()


def test_processes_are_a_job_each_and_vmapped_seeds_a_job_for_a_cell(tmp_path: Path):
    entries, alone = planned(tmp_path, method=["crl", "dcp"], seed=[0, 1])
    together = make_jobs(entries, tmp_path, EACH, "vmapped", tmp_path)
    assert [job.name for job in alone] == [f"point_u_maze/{m}/seed_{s}" for m in ("crl", "dcp") for s in (0, 1)]
    assert [(job.name, job.seeds) for job in together] == [
        ("point_u_maze/crl/seeds_0-1", (0, 1)),
        ("point_u_maze/dcp/seeds_0-1", (0, 1)),
    ]
    assert together[1].folders == (tmp_path / "point_u_maze/dcp/seed_0", tmp_path / "point_u_maze/dcp/seed_1")


def test_a_folder_by_seed_makes_each_seed_a_separate_job(tmp_path: Path):
    """As one program they would all be written below the first one's folder, and the grid would look elsewhere."""
    runs = check_runs(expand(parse_grid({**content(seed=[0, 1]), "folder": "s{seed}"}, "test")))
    entries = survey(runs, tmp_path)
    jobs = make_jobs(entries, tmp_path, EACH, "vmapped", tmp_path)
    assert [folder for job in jobs for folder in job.folders] == [entry.folder for entry in entries]


def test_a_run_with_a_file_of_seeds_is_found_again_and_is_another_once_the_file_changes(
    there: tuple[Path, Settings], tmp_path: Path
):
    folder, asked = there
    seeds = tmp_path / "seeds.csv"
    seeds.write_text("0.5,0.5\n")
    stored = json.loads((folder / "config.json").read_text())
    (named,) = check_runs([Run(replace(asked, pool_seed=str(seeds)))])
    stored["config"] |= {name: getattr(named.settings, name) for name in ("pool_seed", "pool_seed_fraction")}
    stored["config"]["pool_seed_sha256"] = sha256(seeds.read_bytes()).hexdigest()
    (folder / "config.json").write_text(json.dumps(stored))
    assert run_status(folder, named.settings).kind == "finished"
    assert budget_to_resume_with(folder, replace(asked, pool_seed=str(seeds))) is None  # as `dcp train --resume auto`
    seeds.write_text("0.5,1.5\n")
    (changed,) = check_runs([Run(replace(asked, pool_seed=str(seeds)))])
    assert run_status(folder, changed.settings).kind == "other"


def test_a_job_is_itself_after_a_file_and_its_file_is_a_config(tmp_path: Path):
    settings = Settings(env="mine:maze", method="crl", seed=3, pool_seed="a.npz", split_batches="off", discount=0.1)
    job = Job(settings, (3, 4), tmp_path, "w64", Resources(2, 5, 1), tmp_path / "code", ("mine", "yours"))
    assert Job.from_json(job.to_json()) == job
    job.save()
    assert Job.read(job.file) == job
    assert json.loads(job.file.read_text())["config"]["env"] == "mine:maze"
    assert job.file == tmp_path / "grid/jobs/w64/mine.maze/crl/seeds_3-4.json" and job.root == tmp_path / "w64"


def test_a_job_that_is_no_text_or_missing_is_one_sentence(tmp_path: Path):
    file = tmp_path / "job.json"
    with pytest.raises(UserError, match=r"cannot read the job .*job\.json \(.*No such file.*\): start the grid again"):
        Job.read(file)
    file.write_bytes(b'{"seeds": [0\xff]}')  # found by a fuzzer
    with pytest.raises(
        UserError, match=r"cannot read the job .* \(no UTF-8 text: .* at byte 12\): start the grid again"
    ):
        Job.read(file)


def test_the_file_of_a_job_is_a_config_that_dcp_train_accepts(tmp_path: Path, capsys):
    (job,) = planned(tmp_path, seed=[0])[1]
    job.save()
    assert main(["train", "--config", str(job.file), "--runs-dir", str(job.root), "--resume", "auto", "--dry-run"]) == 0
    assert f"Results would go to {tmp_path}/point_u_maze/dcp/seed_0" in capsys.readouterr().out


def test_a_small_file_is_not_written_through_a_link_at_its_draft(tmp_path: Path):
    victim, file = tmp_path / "bashrc", tmp_path / "beat.json"
    victim.write_text("mine")
    (tmp_path / f".beat.json.{os.getpid()}.tmp").symlink_to(victim)
    write_json(file, {"env_steps": 1})
    assert victim.read_text() == "mine" and read_json(file) == {"env_steps": 1} and not file.is_symlink()


def test_the_last_row_is_the_last_evaluation(there: tuple[Path, Settings]):
    row = last_row(there[0])
    assert row and (row["evaluation"], row["env_steps"]) == (2, 4_000)


def test_a_folder_tells_who_writes_to_it(tmp_path: Path):
    assert owner(tmp_path) is None
    lock = FolderLock(tmp_path)
    assert (owner(tmp_path) or "").startswith("process ")
    lock.release()
    assert owner(tmp_path) is None


def test_a_survey_names_one_folder_and_counts_the_others(there: tuple[Path, Settings]):
    folder, asked = there
    shutil.copytree(folder, folder.with_name("seed_1"))
    runs = [Run(replace(asked, width=33, seed=seed)) for seed in (0, 1)]
    with pytest.raises(UserError, match=r"seed_0 holds another run .* \(1 more folders"):
        survey(runs, folder.parents[2])
