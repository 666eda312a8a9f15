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

from dcp.cli import several_seeds
from dcp.cli.main import main
from dcp.cli.several_seeds import SeedJob, SeedLines, joint_code, single
from dcp.grid.grid_display import Line
from dcp.grid.local_launcher import last_line
from dcp.grid.resources import Gpu, run_memory
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
        ("--seeds 0 1 --seeds-as vmapped --wandb", "W&B logs one run per process: use --seeds-as processes"),
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
    assert several_seeds.default_form() == "processes"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert several_seeds.default_form() == "vmapped"


def test_seeds_as_processes_have_a_gpu_each_and_their_parent_has_none(tmp_path: Path, monkeypatch, capsys):
    """Three seeds, eight cores and two GPUs: two at once, on different GPUs, the third on one that is free again."""
    code = (
        "import os, time; a = time.time(); time.sleep(0.3); print(os.environ['CUDA_VISIBLE_DEVICES'], a, time.time())"
    )
    platforms: list[str] = []
    monkeypatch.setattr(SeedJob, "command", lambda job: [sys.executable, "-c", code])
    monkeypatch.setattr(several_seeds, "seed_gpus", lambda: (Gpu("3", 2**34), Gpu("5", 2**34)))
    monkeypatch.setattr(several_seeds, "cores", lambda: 8)
    monkeypatch.setattr(jax.config, "update", lambda name, value: platforms.append(value))
    assert several_seeds.default_form() == "vmapped"
    flags = ["--seeds", "0", "1", "2", "--seeds-as", "processes", "--runs-dir", str(tmp_path)]
    assert main(["train", *FLAGS, *flags]) == 0
    assert platforms == ["cpu"]
    told = [line.split()[2:] for line in capsys.readouterr().out.splitlines() if "starting" not in line]
    runs = sorted((float(begun), float(ended), gpu) for gpu, begun, ended in told)
    assert len(runs) == 3 and {gpu for _, _, gpu in runs[:2]} == {"3", "5"}
    assert runs[2][0] >= min(ended for _, ended, _ in runs[:2])


def test_a_process_is_given_what_concerns_its_own_seed():
    argv = "--preset smoke --seeds 0 1 2 --steps 9 --seeds_as=processes --display live --resume auto"
    assert single(argv.split()) == ["--preset", "smoke", "--steps", "9", "--resume", "auto"]


def test_no_more_processes_at_once_than_memory_holds(monkeypatch):
    settings = tiny_config().resolve(250)
    one = run_memory(settings)
    for there, count in ((one - 1, 1), (3 * one, 3), (4 * one - 1, 3)):
        monkeypatch.setattr("dcp.cli.several_seeds.machine_memory", lambda there=there: there)
        assert several_seeds.runs_in_memory(settings) == count


@pytest.mark.parametrize(
    ("codes", "stopped", "code"),
    [
        ([0, 0], False, 0),
        ([0, 75], True, 75),
        ([1, 75], True, 75),  # it will be run again, and then tell of the fault
        ([0, 1], False, 1),
        ([0, -9], False, 1),  # killed
        ([0, 137], False, 1),  # the same, as a shell reports it
        ([0, 143], False, 143),  # by two signals of somebody else's
        ([1, 2], False, 1),
        ([2, 2], False, 2),
        ([130, 130], True, 130),
        ([0, None], True, 130),
        ([75, None], True, 75),
        ([0, 0], True, 0),  # the signal came too late
    ],
)
def test_the_codes_of_all_processes_make_one(codes, stopped: bool, code: int):
    assert joint_code(codes, stopped) == code


def dcp(*flags: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "dcp.cli.main", "train", *flags]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ
    )


def stopped(process: "subprocess.Popen[str]", folders: list[Path]) -> tuple[str, str]:
    """By SIGTERM, once every folder has a row. -> what it said"""
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
    assert "Stopped with checkpoints: continue with the same command and --resume auto." in out
    process = dcp(*flags, "--resume", "auto")
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    # On a busy machine one of the two may have ended before the other had its first row.
    assert any(f"seed {seed}: Trained for 12,000 environment steps" in out for seed in (0, 1))
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
    assert "1 of 2 seeds failed: seed 1: " in capsys.readouterr().err
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


def test_each_line_of_a_seed_is_shown_once_with_the_seed_before_it(tmp_path: Path, capsys):
    jobs = [SeedJob(tiny_config(seed=seed), (seed,), tmp_path / "runs", files=tmp_path / "files") for seed in (0, 1)]
    shown, name, log = SeedLines(jobs), jobs[1].name, jobs[1].log
    log.parent.mkdir(parents=True)
    for written, state, said in [
        ("first\nhalf a", "running", ["starting", "first"]),
        (" line\n\n", "running", ["half a line", ""]),
        ("dcp: a fault", "failed", ["dcp: a fault"]),
        ("", "failed", []),
    ]:
        with log.open("a") as file:
            file.write(written)
        shown.update([Line(jobs[0].name, "waiting", 0, 1), Line(name, state, 0, 1)])
        assert capsys.readouterr().out.splitlines() == [f"seed 1: {line}" for line in said]
    assert last_line(log) == "dcp: a fault" and not (tmp_path / "runs").exists()
