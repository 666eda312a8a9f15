"""`--import MODULE` on any command: what a user's module registers can be named."""

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dcp.cli.main import main
from dcp.envs.registry import ENVIRONMENTS
from dcp.named_code import is_users
from dcp.policies.policy_file import load_policy
from tests.cli.test_train import MY_ENV
from tests.support.tiny import FLAGS

TRAINED = [*FLAGS, "--method", "crl", "--window", "17", "--batch-size", "256"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module that registers `my_line`; afterwards it is as if it had never been imported."""
    (tmp_path / "my_registered.py").write_text(f"{MY_ENV}\nimport dcp\ndcp.register_env('my_line', Line)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_registered", raising=False)
    monkeypatch.setattr("dcp.envs.registry.ENVIRONMENTS", dict(ENVIRONMENTS))
    return tmp_path


@pytest.mark.parametrize("argv", [["--import", "my_registered", "envs"], ["envs", "--import=my_registered"]])
def test_a_registered_environment_is_listed(argv: list[str], here: Path, capsys: pytest.CaptureFixture[str]):
    before = list(sys.path)
    assert main(argv) == 0
    assert "my_line" in capsys.readouterr().out
    assert sys.path == before
    assert "DCP_IMPORT" not in os.environ


def test_it_is_trained_and_evaluated_by_its_name(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["train", "--env", "my_line", *TRAINED, "--import", "my_registered"]) == 0
    folder = Path("runs/my_line/crl/seed_0")
    assert load_policy(folder)([0.0], [2.0]).shape == (1,)
    assert main(["eval", str(folder), "--episodes", "4", "--import", "my_registered"]) == 0
    assert "on line" in capsys.readouterr().out


@pytest.mark.slow
def test_the_processes_of_several_seeds_import_it_too(here: Path, capsys: pytest.CaptureFixture[str]):
    flags = ["--env", "my_line", "--seeds", "0", "1", "--seeds-as", "processes", "--import", "my_registered"]
    assert main(["train", *TRAINED, *flags]) == 0, capsys.readouterr()
    assert Path("runs/my_line/crl/seed_1/policy.safetensors").is_file()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--import", "no_such_module"], "--import no_such_module fails (ModuleNotFoundError: No module named"),
        (["--import", "my_broken"], "--import my_broken fails (ValueError: two lines)"),
        (["--import"], "--import needs a module's name"),
        (["--import", "--steps"], "--import needs a module's name"),
    ],
)
def test_a_mistake_gives_one_sentence(flags: list[str], sentence: str, here: Path, capsys):
    (here / "my_broken.py").write_text("raise ValueError('two\\nlines')")
    assert main(["envs", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line


def test_a_config_may_not_name_a_function_of_a_library_that_dcp_imports(tmp_path, capsys):
    """NumPy is imported by then, and nobody named it."""
    stored = {"schema_version": 2, "config": {"env": "numpy:show_config"}, "earlier_budgets": []}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert main(["train", "--config", str(tmp_path), "--dry-run"]) == 2
    said = capsys.readouterr()
    assert "names the code 'numpy:show_config'" in said.err and "Build Dependencies" not in said.out


def test_a_value_of_the_users_module_may_be_a_part_and_what_it_imports_may_not(monkeypatch: pytest.MonkeyPatch):
    module = ModuleType("my_energies")
    module.__file__ = "/somewhere/my_energies.py"
    vars(module).update(mine=(1.0, 2.0), system=os.system)
    monkeypatch.setitem(sys.modules, "my_energies", module)
    assert is_users("my_energies:mine")
    assert not is_users("my_energies:system")
    assert not is_users("my_energies:nothing")
