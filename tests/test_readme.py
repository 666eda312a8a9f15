"""README.md: its Python and its commands run."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import dcp
from dcp.cli.main import main
from tests.support.pythons import README, python_blocks

TEXT = README.read_text()
COMMANDS = re.findall(r"^    dcp (.*?)(?: +#.*)?$", TEXT, re.MULTILINE) + re.findall(r"`dcp (\w+ --[^`]*)`", TEXT)
SHORT = ('preset_config("demo", steps=500_000)', 'preset_config("smoke")')


def run_blocks(blocks: list[str]) -> dict[str, Any]:
    """Run a page's blocks one after another, as a reader would paste them. -> the names that they leave"""
    names: dict[str, Any] = {"__name__": "readme"}
    for block in blocks:
        exec(block, names)
    return names


def test_its_python_runs_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (block,) = python_blocks(README)
    assert SHORT[0] in block
    names = run_blocks([block.replace(*SHORT)])
    assert len(names["run"].rows) == 2 and names["action"].shape == (2,)
    assert dcp.load_policy(tmp_path / "mine.safetensors").condition == dcp.Direction()


@pytest.mark.slow
def test_its_python_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run_blocks(python_blocks(README))


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("train")])
def test_its_training_commands_are_accepted(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert main([*shlex.split(command), "--dry-run"]) == 0
