"""docs/your_own_environment.md and your_own_parts.md: their files are written to a folder, their Python runs, and their
commands are accepted."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

import dcp
from dcp.cli.main import main
from dcp.components import TABLES
from dcp.methods import table as methods_table  # noqa: F401  fills the tables
from dcp.presets import preset_config

ROOT = Path(__file__).parents[2]
PAGE = "".join((ROOT / "docs" / f"your_own_{page}.md").read_text() for page in ("environment", "parts"))
BLOCKS = re.findall(r"^```(?:python|toml)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^    dcp (.*)$", PAGE, re.MULTILINE)


def name_of(block: str) -> str | None:
    """The file that a block is a part of, by its first line."""
    found = re.match(r"# (\w+\.(?:py|toml))\n", block)
    return found[1] if found else None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    """A user's folder with the files of the page, which can be imported."""
    path = tmp_path_factory.mktemp("page")
    for block in BLOCKS:
        if name := name_of(block):
            with (path / name).open("a") as file:
                file.write(block + "\n\n")
    rows = {kind: dict(table) for kind, table in TABLES.items()}
    sys.path.append(str(path))
    yield path
    sys.path.remove(str(path))
    for name in ("my_parts", "my_rows", "my_tasks", "my_gym"):
        sys.modules.pop(name, None)
    for kind, table in TABLES.items():
        for name in table.keys() - rows[kind].keys():
            del table[name]


def test_the_pages_python_trains_with_every_part_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    found: dict[str, Any] = {}
    for block in (block for block in BLOCKS if name_of(block) is None):
        exec(block, found)
    assert found["trained"].folder is None and len(found["trained"].rows) == 2
    assert found["metrics"]["critic_loss"].shape == (3,)
    assert dcp.load_policy(folder / "mine.safetensors").condition == found["SoftDirection"](scale=2.0)
    assert found["algorithm"].config.run_path.startswith("line/own-my_parts.Sines-")


@pytest.mark.parametrize("command", [c for c in COMMANDS if "--preset" in c or c.startswith("methods")])
def test_every_command_that_starts_something_is_accepted(command: str, folder: Path, monkeypatch):
    monkeypatch.chdir(folder)
    argv = shlex.split(command)
    assert main([*argv, *(["--dry-run"] if argv[0] == "train" else [])]) == 0


def test_the_grid_file_sweeps_the_setting_of_the_condition(folder: Path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (command,) = re.findall(r"`dcp (grid [^`]*)`", PAGE)
    assert main([*shlex.split(command), "--dry-run"]) == 0
    assert capsys.readouterr().out.count("dcp-my_parts.SoftDirection-scale_") == 4


def test_each_part_alone_can_be_traced_beside_ours(folder: Path):
    settings = [
        {"condition": "my_parts:SoftDirection"},
        {"score": "my_parts:halfway"},
        {"critic": "my_parts:LearnedTemperature"},
        {"network": "my_parts:Sines"},
        {"env": "my_tasks:Line"},
        {"env": "my_tasks:zigzag"},
        {"env": "my_tasks:two_joint_arm"},
        {"activation": "jax.nn:gelu"},
    ]
    for chosen in settings:
        algorithm = dcp.Algorithm(config=preset_config("smoke", **chosen))
        run = jax.eval_shape(algorithm.init, jax.random.key(0))
        _, metrics = jax.eval_shape(algorithm.iteration, run)
        assert metrics["critic_loss"].shape == ()


def test_the_page_names_every_open_table_and_its_flag():
    (said,) = re.findall(r"^Kinds: (.*?)\.$", PAGE, re.MULTILINE)
    kinds = re.findall(r"`(\w+)`", said)
    assert set(kinds) == TABLES.keys()
    flags = ["env" if kind == "environment" else kind.replace("_", "-") for kind in kinds]
    assert [flag for flag in flags if f"`--{flag}`" not in PAGE] == []
