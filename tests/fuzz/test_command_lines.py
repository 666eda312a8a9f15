"""Random command lines and hostile environments: an end that the user understands, and never a traceback.

`python -m tests.fuzz.command_lines COUNT SEED` runs as many as one likes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.command_lines import ENVIRONMENTS, fuzz, judge, judge_environment


def test_forty_random_command_lines_end_without_a_traceback(tiny_run, tmp_path: Path):
    result = fuzz(40, seed=1, folder=tmp_path, run=tiny_run.folder)
    assert result["offences"] == []


@pytest.mark.slow
def test_four_hundred_random_command_lines_end_without_a_traceback():
    command = [sys.executable, "-m", "tests.fuzz.command_lines", "400", "20261119"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3_000, env=os.environ)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-2_000:]
    assert json.loads(done.stdout)["offences"] == []


@pytest.mark.parametrize("name", ["JAX_PLATFORMS", "COLUMNS", "HOME", "DCP_IMPORT"])
def test_a_hostile_environment_ends_without_a_traceback(name: str, tmp_path: Path):
    values = next(values for values in ENVIRONMENTS if name in values)
    assert judge_environment(values, ["train", "--preset", "smoke", "--dry-run"], tmp_path) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "values", ENVIRONMENTS, ids=lambda values: " ".join(f"{k}={v[:20]}" for k, v in values.items())
)
def test_training_in_a_hostile_environment_ends_without_a_traceback(values: dict[str, str], tmp_path: Path):
    argv = ["train", "--preset", "smoke", "--runs-dir", "runs"]
    assert judge_environment(values, argv, tmp_path) is None


def test_a_traceback_and_a_mistake_without_a_sentence_are_seen(monkeypatch: pytest.MonkeyPatch):
    """Else the other tests could not fail."""
    from dcp.cli import main as front

    def broken(argv: list[str]) -> int:
        return {"raises": lambda: 1 // 0, "is silent": lambda: 2, "leaves": lambda: sys.exit(3)}[argv[0]]()

    monkeypatch.setattr(front, "main", broken)
    assert "ZeroDivisionError" in str(judge(["raises"])[1])
    assert judge(["is silent"]) == (2, "0 lines: ")
    assert judge(["leaves"]) == (None, "SystemExit 3")
