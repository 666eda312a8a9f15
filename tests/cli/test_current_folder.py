"""Standing in a folder must not run its code: nobody may be harmed by `cd DOWNLOADED_RUN; dcp eval .`"""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from dcp import named_code

OPTIONAL = ("wandb", "torch", "stable_baselines3", "sitecustomize", "usercustomize")  # looked for, maybe not there
COMMANDS = {
    "envs": ["envs"],
    "methods": ["methods"],
    "train --dry-run": ["train", "--config", ".", "--dry-run"],
    "train --resume": ["train", "--resume", ".", "--no-plots", "--display", "none"],
    "train": ["train", "--preset", "smoke", "--depth", "1", "--display", "none", "--tensorboard", "--overwrite"],
    "eval": ["eval", ".", "--episodes", "4"],
    "diagnose": ["diagnose", ".", "--episodes", "4", "--states", "8", "--no-figures"],
    "landscape": ["landscape", ".", "--rollouts", "0"],
    "render": ["render", ".", "--format", "gif", "html"],
    "export": ["export", ".", "--format", "onnx", "--out", "policy.onnx"],
    "latency": ["latency", ".", "--steps", "20"],
    "report": [
        "report",
        ".",
    ],
    "compare": ["compare", ".", "../other"],
    "grid": ["grid", "--preset", "smoke", "--dry-run", "--runs-dir", "grid"],
    "doctor": ["doctor", "--no-self-test"],
}
# Runs every command in one process, so that everything is imported once, and says what came from where it must not.
RUN_ALL = """
import json, sys
from pathlib import Path
from dcp.cli.main import main
codes = {}
for name, argv in json.loads(sys.argv[1]).items():
    try:
        codes[name] = main(argv)
    except SystemExit as stop:
        codes[name] = stop.code
here = str(Path.cwd())
found = [name for name, module in sys.modules.items() if str(getattr(module, "__file__", None) or "").startswith(here)]
print("\\n" + json.dumps({"codes": codes, "from_here": found, "path": here in sys.path or "" in sys.path}))
"""


@pytest.fixture
def hostile(tiny_run, tmp_path: Path) -> Path:
    """A run folder with a file for every module that dcp, or anything below it, could import."""
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.folder, folder)
    shutil.copytree(tiny_run.folder, tmp_path / "other")
    for name in {*sys.stdlib_module_names, *packages_distributions(), *OPTIONAL, "dcp"}:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name + ' '!r})\n")
    return folder


def _environment() -> dict[str, str]:
    """A user's: without this project's root on PYTHONPATH."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}


def test_no_command_imports_a_file_of_the_current_folder(hostile: Path):
    command = [sys.executable, "-P", "-c", RUN_ALL, json.dumps(COMMANDS)]
    done = subprocess.run(command, cwd=hostile, capture_output=True, text=True, env=_environment(), timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["from_here"] == [] and not told["path"]
    assert not (hostile.parent / "ran").exists()
    assert {name: code for name, code in told["codes"].items() if code not in (0, None)} == {}, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_the_installed_command_imports_no_file_of_the_current_folder(name: str, hostile: Path):
    """Each in a process of its own: another command may import a library first."""
    command = [str(Path(sys.executable).parent / "dcp"), *COMMANDS[name]]
    done = subprocess.run(command, cwd=hostile, capture_output=True, text=True, env=_environment(), timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not (hostile.parent / "ran").exists()


def test_a_module_that_the_user_names_is_found_in_the_folder_and_the_path_is_as_before(tmp_path: Path):
    (tmp_path / "my_named_part.py").write_text("import my_helper\nPART = my_helper.NUMBER")
    (tmp_path / "my_helper.py").write_text("NUMBER = 7")
    (tmp_path / "json.py").write_text("raise SystemExit('the standard library comes first')")
    before = list(sys.path)
    with named_code.user_import_path(tmp_path):
        assert named_code.import_named("my_named_part:PART") == 7
        assert sys.path == before
    with pytest.raises(ModuleNotFoundError):
        named_code.import_named("my_other_part:PART")
    assert sys.path == before


def test_a_module_that_fails_leaves_the_path_as_it_was(tmp_path: Path):
    (tmp_path / "my_failing_part.py").write_text("import sys\nsys.path.insert(0, 'x')\nraise ValueError('no')")
    before = list(sys.path)
    with named_code.user_import_path(tmp_path), pytest.raises(ValueError, match="no"):
        named_code.import_named("my_failing_part:PART")
    assert str(tmp_path) not in sys.path
    sys.path[:] = before
