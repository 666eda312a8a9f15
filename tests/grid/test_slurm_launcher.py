"""Jobs through submitit: run by its own local executor, and handed to an sbatch that only takes notes."""

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dcp.cli.main import main
from dcp.errors import UserError
from dcp.grid.grid_display import Line
from dcp.grid.jobs import Job
from dcp.grid.launcher import Driver
from dcp.grid.resources import Resources
from dcp.grid.slurm_launcher import SlurmLauncher, SlurmOptions
from dcp.grid.worker import Report, read_report
from dcp.runs.run_status import how_far
from dcp.runs.training import TrainedRun
from tests.support.same_run import assert_same_run, metrics
from tests.support.small_grids import Killer, as_toml, files, planned

SEED_0 = "point_u_maze/dcp/seed_0"


class Preemptor(Killer):
    """Sends every process of a job what SLURM sends them before it takes the node away."""

    def __init__(self, job: Job):
        super().__init__(job.name)
        self.job = job

    def update(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.name == self.name and line.row and line.row["evaluation"] >= self.after:
                self.name = None
                parent = read_report(self.job).process
                (child,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
                for process in (int(child), parent, parent):  # again: it must not end the run at once
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGUSR2)
                    time.sleep(0.03)


def test_two_runs_finish_and_the_one_that_is_preempted_is_requeued_and_ends_bit_identical(
    tmp_path: Path, longer_run: TrainedRun
):
    entries, jobs = planned(tmp_path, seed=[0, 1])
    launcher = SlurmLauncher(SlurmOptions(), cluster="local")
    launcher.require()
    shown = Preemptor(jobs[0])
    lines = Driver(launcher, entries, jobs, shown, retries=0, poll=0.05).run()
    assert [(line.state, line.attempt) for line in lines] == [("finished", 1), ("finished", 1)]
    assert shown.name is None and not shown.notes
    number = read_report(jobs[0]).attempt
    log = (tmp_path / f"grid/slurm/submitit/{number}_0_log.out").read_text()
    assert "Calling checkpoint method" in log and f"Requeued job {number}" in log
    assert "stopped with a checkpoint at" in jobs[0].log.read_text()
    assert_same_run(tmp_path / SEED_0, longer_run.folder)
    assert metrics(tmp_path / "point_u_maze/dcp/seed_1") != metrics(longer_run.folder)  # it is another seed


@pytest.mark.slow
def test_a_stopped_grid_leaves_checkpoints(tmp_path: Path, longer_run: TrainedRun):
    entries, jobs = planned(tmp_path, seed=[0])
    launcher = SlurmLauncher(SlurmOptions(), cluster="local")
    launcher.submit(jobs)
    limit = time.monotonic() + 300
    while not (tmp_path / SEED_0 / "metrics.csv").exists() or len(metrics(tmp_path / SEED_0)) < 2:
        assert time.monotonic() < limit
        time.sleep(0.05)
    launcher.stop()
    assert launcher.poll()[jobs[0].name].state == "stopped"
    assert 0 < how_far(tmp_path / SEED_0)[0] < 12_000
    again = SlurmLauncher(SlurmOptions(), cluster="local")
    (line,) = Driver(again, entries, jobs, Killer(), poll=0.05).run()
    assert line.state == "finished"
    assert_same_run(tmp_path / SEED_0, longer_run.folder)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """SLURM's commands as far as submitit asks them. They note what they are told; what sacct says is in a file."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    calls, accounts = folder / "calls.txt", folder / "sacct.txt"
    accounts.write_text("JobID|State|NodeList\n")
    say = {
        "sbatch": f"echo Submitted batch job $((16 + $(grep -c sbatch {calls})))",
        "sacct": f"cat {accounts}",
        "srun": "",
        "scancel": "",
        "scontrol": "",
    }
    for name, answer in say.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >> {calls}\n{answer}\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def called(slurm: Path, name: str) -> list[str]:
    return [line for line in (slurm / "calls.txt").read_text().splitlines() if line.startswith(name)]


def account(slurm: Path, *rows: str) -> None:
    """What sacct will say; asked at once, where submitit would wait for some seconds."""
    import submitit

    (slurm / "sacct.txt").write_text("\n".join(["JobID|State|NodeList", *rows]))
    submitit.SlurmJob.watcher.clear()


def test_all_jobs_are_one_array_with_what_was_asked_for(tmp_path: Path, slurm: Path):
    jobs = [replace(job, resources=Resources(4, 3 * 2**30, 1.0)) for job in planned(tmp_path, seed=[0, 1, 2])[1]]
    options = SlurmOptions("gpu", 720, "a100", "lab")
    launcher = SlurmLauncher(options, most=2)
    launcher.require()
    launcher.submit(jobs)
    assert len(called(slurm, "sbatch")) == 1
    text = (tmp_path / "grid/slurm/submitit/17_submission.sh").read_text()
    for flag in ("array=0-2%2", "partition=gpu", "time=720", "constraint=a100", "account=lab", "cpus-per-task=4"):
        assert f"#SBATCH --{flag}\n" in text
    for flag in ("gpus-per-node=1", "mem=3GB", "signal=USR2@300", "requeue", "job-name=dcp"):
        assert f"#SBATCH --{flag}\n" in text
    assert "srun --unbuffered" in text and "--cpus-per-task=4" in text.split("srun")[1]
    names = [f"point_u_maze/dcp/seed_{seed}" for seed in (0, 1, 2)]
    record = json.loads((tmp_path / "grid/slurm/jobs.json").read_text())
    assert {name: record[name]["id"] for name in names} == dict(zip(names, ["17_0", "17_1", "17_2"], strict=True))


def test_a_grid_that_is_started_again_submits_only_what_slurm_no_longer_has(tmp_path: Path, slurm: Path):
    jobs = planned(tmp_path, seed=[0, 1, 2, 3])[1]
    SlurmLauncher(SlurmOptions()).submit(jobs)
    account(slurm, "17_0|RUNNING|a", "17_1|FAILED|a", "17_[2-3]|PENDING|None assigned")
    again = SlurmLauncher(SlurmOptions())
    again.submit(jobs)
    assert len(called(slurm, "sbatch")) == 2
    record = json.loads((tmp_path / "grid/slurm/jobs.json").read_text())
    assert [record[job.name]["id"] for job in jobs] == ["17_0", "18", "17_2", "17_3"]
    told = again.poll()
    assert [told[job.name].state for job in jobs] == ["running", "waiting", "waiting", "waiting"]
    assert told[jobs[0].name].where == "SLURM job 17_0"


def test_a_job_that_accounting_does_not_know_yet_is_not_submitted_twice(tmp_path: Path, slurm: Path):
    (job,) = planned(tmp_path, seed=[0])[1]
    SlurmLauncher(SlurmOptions()).submit([job])
    SlurmLauncher(SlurmOptions()).submit([job])
    assert len(called(slurm, "sbatch")) == 1
    record = tmp_path / "grid/slurm/jobs.json"
    record.write_text(json.dumps({job.name: {"id": "17", "at": time.time() - 3600}}))  # by now it should
    SlurmLauncher(SlurmOptions()).submit([job])
    assert len(called(slurm, "sbatch")) == 2


def test_a_jobs_own_word_counts_and_slurms_where_it_has_none(
    tmp_path: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch
):
    jobs = planned(tmp_path, seed=[0, 1, 2, 3, 4])[1]
    launcher = SlurmLauncher(SlurmOptions())
    launcher.submit(jobs)
    for job, (number, code, why) in zip(
        jobs, [("17_0", 0, ""), ("17_1", 1, "a full disk"), ("9_2", 0, "")], strict=False
    ):
        job.report.parent.mkdir(parents=True, exist_ok=True)
        job.report.write_text(json.dumps(vars(Report(number, "a", 5, code, why))))
    account(slurm, "17_3|CANCELLED by 1000|a", "17_4|OUT_OF_MEMORY|a")
    launcher.poll()
    monkeypatch.setattr("dcp.grid.slurm_launcher.GRACE", 0.0)
    told = [launcher.poll()[job.name] for job in jobs]
    assert [(status.state, status.code) for status in told] == [
        ("finished", 0),
        ("failed", 1),
        ("waiting", None),  # what an earlier attempt said is not this one's word
        ("stopped", 2),  # nobody's mistake, but not to be tried again
        ("failed", None),
    ]
    assert told[1].why == "a full disk" and told[4].why.startswith("SLURM ended it (OUT_OF_MEMORY)")


def test_a_stop_takes_waiting_jobs_out_of_the_queue_and_asks_running_ones(tmp_path: Path, slurm: Path):
    jobs = planned(tmp_path, seed=[0, 1])[1]
    launcher = SlurmLauncher(SlurmOptions())
    launcher.submit(jobs)
    account(slurm, "17_0|FAILED|a", "17_1|CANCELLED by 1000|a")  # as it will be when they have stopped
    launcher.stop()
    assert called(slurm, "scancel") == [
        "scancel --state=PENDING 17_0 17_1",
        "scancel --state=RUNNING --signal=TERM 17_0 17_1",
    ]
    assert {status.state for status in launcher.poll().values()} == {"stopped"}


def test_mistakes_get_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    grid = as_toml(tmp_path / "grid.toml", seed=[0])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["grid", str(grid), "--runs-dir", str(tmp_path / "runs"), "--launcher", "slurm"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "there is no SLURM here (sbatch is not found): run it on a login node" in said
    assert not (tmp_path / "runs").exists()

    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match=r"needs submitit .*: pip install '\.\[slurm\]'"):
        SlurmLauncher(SlurmOptions()).require()


def test_what_sbatch_refuses_is_passed_on(tmp_path: Path, slurm: Path):
    (slurm / "sbatch").write_text("#!/bin/sh\necho sbatch: error: invalid partition specified: gqu >&2\nexit 1\n")
    jobs = planned(tmp_path, seed=[0, 1])[1]
    with pytest.raises(UserError, match=r"did not accept the jobs .*invalid partition specified: gqu"):
        SlurmLauncher(SlurmOptions("gqu")).submit(jobs)
    assert not (tmp_path / "grid/slurm/jobs.json").exists() and files(tmp_path / "point_u_maze") == {}
