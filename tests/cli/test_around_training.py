"""`dcp train --seeds`: what it takes, what it refuses, and how its processes end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest
from numpy.testing import assert_allclose

from dcp.cli import around_training
from dcp.cli.main import main
from dcp.grid.jobs import Job
from dcp.grid.resources import Gpu
from tests.support.same_run import metrics
from tests.support.tiny import FLAGS, LONGER_FLAGS, tiny_config

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--seeds 0 1 --seed 0", "--seed and --seeds both say which seeds: give only one of them"),
        ("--seeds 0 1 0", "--seeds has 0 twice: name each seed once"),
        ("--seeds 1 -1", "--seeds has -1: use numbers from 0, below 2**32"),
        ("--seeds 4294967296", "--seeds has 4294967296: use numbers from 0, below 2**32"),
        ("--seeds one", "--seeds takes whole numbers, not 'one'"),
        ("--seeds", "--seeds needs at least one seed, such as --seeds 0 1 2"),
        ("--seeds-as vmapped", "--seeds needs at least one seed, such as --seeds 0 1 2"),
        ("--seeds 0 1 --seeds-as threads", "unknown value 'threads' for --seeds-as"),
        ("--seeds 0 1 --seeds-as vmapped --devices 2", "in one program a seed is kept whole: leave --devices out"),
        ("--seeds 0 1 --seeds-as vmapped --env nowhere", "unknown environment 'nowhere'"),
        ("--seeds 0 1 --width 0", "width is 0: use at least 1"),
        ("--seeds 0 1 --resume auto --overwrite", "--resume resumes what --overwrite would replace"),
    ],
)
def test_a_mistake_gives_one_sentence(flags: str, sentence: str, tmp_path: Path, capsys):
    assert main(["train", *FLAGS, "--runs-dir", str(tmp_path), *flags.split()]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_one_folder_cannot_go_on_as_several_seeds(tiny_run, capsys):
    assert main(["train", "--seeds", "0", "1", "--resume", str(tiny_run.folder)]) == 2
    assert "--seeds several runs: use --resume auto with --seeds" in capsys.readouterr().err


def test_more_memory_than_there_is_gives_one_sentence(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr("dcp.runs.seeds.available_memory", lambda: 1_000_000)
    flags = ["--seeds", "0", "1", "2", "--seeds-as", "vmapped", "--runs-dir", str(tmp_path)]
    assert main(["train", *FLAGS, *flags]) == 2
    assert "3 seeds as one program need about 0.0 GB but 0.0 GB are available: give fewer" in capsys.readouterr().err


def test_a_folder_that_is_taken_stops_all_before_any_begins(tiny_run, capsys):
    runs = tiny_run.folder.parents[2]
    for seeds_as in ("processes", "vmapped"):
        flags = [*FLAGS, "--seeds", "7", "0", "--seeds-as", seeds_as, "--runs-dir", str(runs)]
        assert main(["train", *flags]) == 2
        assert "seed_0 holds a finished run" in capsys.readouterr().err
    assert not (runs / tiny_config(seed=7).run_path).exists()


def test_a_dry_run_speaks_of_all_seeds(tmp_path: Path, capsys):
    flags = [*FLAGS, "--seeds", "5", "6", "--runs-dir", str(tmp_path), "--dry-run"]
    assert main(["train", *flags, "--seeds-as", "vmapped"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("2 seeds, as one program") and "seed_5" in said
    assert not any(tmp_path.iterdir())


def test_seeds_are_one_program_where_there_is_an_accelerator_and_processes_on_a_cpu(monkeypatch):
    assert around_training.default_form() == "processes"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert around_training.default_form() == "vmapped"


def test_seeds_as_processes_have_a_gpu_each_and_their_parent_has_none(tmp_path: Path, monkeypatch, capsys):
    """Three seeds, eight cores and two GPUs: two at once, on different GPUs, the third on one that is free again."""
    code = (
        "import os, time; a = time.time(); time.sleep(0.3); print(os.environ['CUDA_VISIBLE_DEVICES'], a, time.time())"
    )
    platforms: list[str] = []
    monkeypatch.setattr(Job, "command", lambda job: [sys.executable, "-c", code])
    monkeypatch.setattr(around_training, "seed_gpus", lambda: (Gpu("3", 2**34), Gpu("5", 2**34)))
    monkeypatch.setattr(around_training, "cores", lambda: 8)
    monkeypatch.setattr(jax.config, "update", lambda name, value: platforms.append(value))
    assert around_training.default_form() == "vmapped"
    flags = ["--seeds", "0", "1", "2", "--seeds-as", "processes", "--runs-dir", str(tmp_path)]
    assert main(["train", *FLAGS, *flags]) == 0
    assert platforms == ["cpu"]
    logs = [(tmp_path / f"grid/logs/point_u_maze/dcp/seed_{seed}.log").read_text().split() for seed in (0, 1, 2)]
    runs = sorted((float(begun), float(ended), gpu) for gpu, begun, ended in logs)
    assert len(runs) == 3 and {gpu for _, _, gpu in runs[:2]} == {"3", "5"}
    assert runs[2][0] >= min(ended for _, ended, _ in runs[:2])


def test_seeds_that_do_not_fit_into_memory_together_run_one_after_another(tmp_path: Path, monkeypatch):
    """One always runs: its own check has found room for it."""
    code = "import time; a = time.time(); time.sleep(0.2); print(a, time.time())"
    monkeypatch.setattr(Job, "command", lambda job: [sys.executable, "-c", code])
    monkeypatch.setattr(around_training, "cores", lambda: 8)
    monkeypatch.setattr(around_training, "machine_memory", lambda: 1)
    flags = ["--seeds", "0", "1", "--seeds-as", "processes", "--runs-dir", str(tmp_path)]
    assert main(["train", *FLAGS, *flags]) == 0
    logs = [(tmp_path / f"grid/logs/point_u_maze/dcp/seed_{seed}.log").read_text().split() for seed in (0, 1)]
    (_, first_end), (second_begin, _) = sorted(tuple(map(float, log)) for log in logs)
    assert first_end <= second_begin


@pytest.mark.parametrize(
    ("ends", "code", "sentence"),
    [
        ({}, 0, ""),
        ({1: "sys.exit(1)"}, 1, "seed_1 failed: dcp: no room\nlogs are in"),
        ({0: "sys.exit(2)", 1: "sys.exit(1)"}, 1, "seed_0 failed: dcp: no room\n"),
        ({1: "os.kill(os.getpid(), 9)"}, 1, "seed_1 failed: ended by SIGKILL"),
    ],
)
def test_how_the_processes_end_decides_the_code_and_the_sentence(
    ends: dict[int, str], code: int, sentence: str, tmp_path: Path, monkeypatch, capsys
):
    def command(job: Job) -> list[str]:
        return [
            sys.executable,
            "-c",
            f"import os, sys; print('dcp: no room', flush=True); {ends.get(job.seeds[0], '')}",
        ]

    monkeypatch.setattr(Job, "command", command)
    flags = ["--seeds", "0", "1", "--seeds-as", "processes", "--runs-dir", str(tmp_path)]
    assert main(["train", *FLAGS, *flags]) == code
    assert sentence in capsys.readouterr().err


def test_the_options_of_the_command_reach_every_seed(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(Job, "command", lambda job: [sys.executable, "-c", ""])
    flags = ["--seeds", "0", "1", "--seeds-as", "processes", "--runs-dir", str(tmp_path), "--display", "none"]
    more = ["--keep-policies", "--overwrite", "--checkpoint-minutes", "2", "--cache", "off", "--wandb-project", "mine"]
    assert main(["train", *FLAGS, *flags, *more]) == 0
    options = Job.read(tmp_path / "grid/jobs/point_u_maze/dcp/seed_1.json").options
    assert options.keep_policies and options.overwrite and options.tracking.wandb_project == "mine"
    assert (options.checkpoint_minutes, options.cache) == (2.0, "off")


def dcp(*flags: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "dcp.cli.main", "train", *flags]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ
    )


def stopped(process: "subprocess.Popen[str]", folders: list[Path]) -> tuple[str, str]:
    """Stop it by SIGTERM once every folder has a row. -> what it printed"""
    deadline = time.monotonic() + 500
    while not all((folder / "metrics.csv").exists() and metrics(folder) for folder in folders):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=300)


@pytest.mark.slow
def test_seeds_as_processes_stop_together_and_end_as_single_runs(longer_run, tmp_path: Path):
    """As near as a process on one core comes to one on two: XLA multiplies matrices by another library there."""
    flags = [*LONGER_FLAGS, "--seeds", "0", "1", "--seeds-as", "processes", "--runs-dir", str(tmp_path)]
    folders = [tmp_path / tiny_config(seed=seed).run_path for seed in (0, 1)]
    process = dcp(*flags, "--resume", "auto")
    out, err = stopped(process, folders)
    assert process.returncode == 75, err
    assert "Stopped. The same command with --resume auto resumes the runs." in out
    process = dcp(*flags, "--resume", "auto")
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    # On a busy machine one of the two may have ended before the other had its first row.
    assert any(f"Seed {seed} trained for 12,000 environment steps" in out for seed in (0, 1))
    assert len(metrics(folders[1])) == 14
    ours, theirs = metrics(folders[0]), metrics(longer_run.folder)
    assert len(ours) == 14
    for name, value in theirs[0].items():
        assert_allclose(float(ours[0][name]), float(value), atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_a_process_that_fails_is_reported_and_the_others_end_well(tmp_path: Path, capsys):
    folder = tmp_path / tiny_config(seed=1).run_path
    folder.mkdir(parents=True)
    (folder / "metrics.csv").mkdir()  # nothing can be written there
    flags = ["--seeds", "0", "1", "--seeds-as", "processes", "--runs-dir", str(tmp_path)]
    assert main(["train", *FLAGS, *flags]) != 0
    assert "point_u_maze/dcp/seed_1 failed: " in capsys.readouterr().err
    assert len(metrics(tmp_path / tiny_config(seed=0).run_path)) == 2


@pytest.mark.slow
def test_from_the_command_line_seeds_as_one_program_stop_and_go_on(tmp_path: Path):
    flags = [*LONGER_FLAGS, "--seeds", "0", "1", "--seeds-as", "vmapped", "--runs-dir", str(tmp_path)]
    folders = [tmp_path / tiny_config(seed=seed).run_path for seed in (0, 1)]
    process = dcp(*flags)
    out, err = stopped(process, folders)
    assert (process.returncode, err) == (75, "")
    assert "SIGTERM: stopping after this iteration, with a checkpoint" in out
    assert "continue with the same command and --resume auto" in out
    assert main(["train", *flags, "--resume", "auto"]) == 0
    assert main(["train", *flags, "--resume", "auto"]) == 0  # finished: nothing to do
    assert [len(metrics(folder)) for folder in folders] == [14, 14]
