"""`dcp grid`: bad inputs end with one sentence and code 2, and start nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from dcp.cli import grid
from dcp.cli.main import main
from dcp.errors import RunError

WRONG = [
    ([], "name a grid file or a --preset"),
    (["--preset", "smoke", "grid.toml"], "only one of them"),
    (["a.toml", "b.toml"], "one grid file at a time"),
    (["nowhere.toml"], "cannot read nowhere.toml"),
    (["--preset", "papre"], "unknown grid 'papre': did you mean 'paper'?"),
    (["--preset", "smoke", "--where", "sed=1"], "unknown field 'sed' in --where: did you mean seed?"),
    (["--preset", "smoke", "--retries", "-1"], "--retries is -1: use at least 0"),
    (["--preset", "smoke", "--max-runs", "0"], "--max-runs is 0: use at least 1"),
    (["--preset", "smoke", "--cores-per-run", "0"], "--cores-per-run is 0: use at least 1"),
    (["--preset", "smoke", "--cores-per-run", "4096"], "lower --cores-per-run"),
    (["--preset", "smoke", "--gpus-per-run", "-1"], "--gpus-per-run is -1: use at least 0"),
    (["--preset", "smoke", "--gpus-per-run", "64"], "a run is to have 64 GPUs, but there are"),
    (["--preset", "smoke", "--memory", "lots"], "--memory takes an amount such as 12GB"),
    (["--preset", "smoke", "--memory", "900TB"], "is more than the"),
    (["--preset", "smoke", "--memory", "1MB"], "needs about 0."),
    (["--preset", "smoke", "--launcher", "cloud"], "--launcher"),
    (["--preset", "smoke", "--retry", "3"], "did you mean --retries?"),
    (["--where", "seed=0", "grid.toml"], "--where takes all that follows it, so write the file before it"),
    (["--preset", "smoke", "--ray-address", "127.0.0.1:1"], "--ray-address goes with --launcher ray, not local"),
    (["--preset", "smoke", "--launcher", "ray", "--slurm-time", "9"], "goes with --launcher slurm, not ray"),
    (["--preset", "smoke", "--launcher", "slurm", "--slurm-time", "0"], "--slurm-time is 0: use at least 1"),
]


@pytest.mark.parametrize(("argv", "sentence"), WRONG)
def test_a_mistake_gets_a_sentence_and_nothing_starts(
    argv: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["grid", *argv]) == 2
    said = capsys.readouterr()
    assert sentence in said.err and said.err.count("\n") == 1 and not said.out
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_place_of_the_runs_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "runs").write_text("")
    assert main(["grid", "--preset", "smoke", "--runs-dir", str(tmp_path / "runs")]) == 2
    assert "runs (Not a directory): choose another --runs-dir" in capsys.readouterr().err


def test_code_that_a_grid_file_names_is_not_loaded_unless_its_user_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text('preset = "smoke"\n[set]\nenv = "stranger_maze:make"')
    body = "from dcp.envs.registry import make_env\nprint('loaded')\ndef make():\n    return make_env('point_u_maze')\n"
    (tmp_path / "stranger_maze.py").write_text(body)
    assert main(["grid", "grid.toml"]) == 2
    said = capsys.readouterr()
    assert "--own-code stranger_maze:make" in said.err and "loaded" not in said.out
    allowed = ["--own-code", "stranger_maze:make", "--dry-run"]
    assert main(["grid", "grid.toml", *allowed]) == 0
    assert "stranger_maze.make/dcp/seed_0" in capsys.readouterr().out


def test_a_dry_run_tells_state_memory_and_time_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture):
    where = ["--where", "method=dcp", "--runs-dir", str(tmp_path / "runs")]
    assert main(["grid", "--preset", "smoke", *where, "--dry-run"]) == 0
    *runs, total, work, time = capsys.readouterr().out.splitlines()
    assert len(runs) == 4 and total == "4 waiting; 0% of all steps"
    assert runs[0].startswith("point_u_maze/dcp/seed_0: waiting, 0 / ") and runs[0].endswith(", roughly a minute")
    assert "; takes 0.6" in runs[0] and work.startswith("Work: roughly 0.") and time == "Time: roughly a minute here"
    assert not list(tmp_path.iterdir())


def test_a_dry_run_whose_output_is_closed_ends_without_a_traceback(tmp_path: Path):
    command = f"{sys.executable} -m dcp.cli.main grid --preset smoke --dry-run --runs-dir {tmp_path} >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_report_that_cannot_be_made_is_no_mistake_in_the_command(tmp_path: Path):
    """Exit code 2 would say that nothing ran."""
    with pytest.raises(RunError, match="the runs have ended, but there is no report: "):
        grid._report(tmp_path)  # a folder without runs


def test_help_names_the_grids_and_the_exit_codes(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stop:
        main(["grid", "--help"])
    said = capsys.readouterr().out
    assert stop.value.code == 0 and "135 runs" in said and "some runs failed" in said and "--ray-address" in said
