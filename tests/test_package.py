"""What pip installs: the wheel holds every file of the package, the name is ours, and hints name it."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import dcp

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WITH_HINTS = [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]


def test_the_installed_distribution_is_dcp_rl_in_the_version_of_the_code():
    assert PROJECT["name"] == "dcp-rl"
    assert version("dcp-rl") == PROJECT["version"] == dcp.__version__


def test_no_hint_installs_a_strangers_package():
    """`dcp` on the package index is not ours."""
    hints = [(page.name, hint) for page in WITH_HINTS for hint in re.findall(r"pip install.*", page.read_text())]
    assert [hint for hint in hints if re.search(r"install (-\S+ )*['\"]?dcp(?!-rl|[_\w])", hint[1])] == []


def test_hints_name_extras_that_exist():
    named = {
        extra
        for page in WITH_HINTS
        for group in re.findall(r"dcp-rl\[([\w,]+)\]", page.read_text())
        for extra in group.split(",")
    }
    assert {"video", "onnx", "cuda"} <= named <= set(PROJECT["optional-dependencies"])


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path):
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    built = subprocess.run(build, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("dcp_rl-*.whl")
    assert list(tmp_path.glob("dcp_rl-*.tar.gz"))  # the wheel is built from it
    listed = ["git", "-C", str(ROOT / "src"), "ls-files", "--cached", "--others", "--exclude-standard", "dcp"]
    files = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    assert sorted(set(files) - set(zipfile.ZipFile(wheel).namelist())) == []
    assert "dcp/zoo/ant_u_maze/dcp/policy.safetensors" in files


def test_citation_changelog_and_package_have_one_version_and_date():
    citation = (ROOT / "CITATION.cff").read_text()
    (cited,) = re.findall(r"^version: (.*)$", citation, re.MULTILINE)
    (released,) = re.findall(r"^date-released: (.*)$", citation, re.MULTILINE)
    newest, date = re.findall(r"^## \[([\d.]+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert cited == newest == PROJECT["version"]
    assert released == date


CORE = """
import sys, dcp.algorithm
files = {name: module.__file__ for name, module in sys.modules.items() if name == "dcp" or name.startswith("dcp.")}
print(len(files), sum(len(open(file).read().splitlines()) for file in files.values()), *files)
"""


def test_the_algorithm_loads_a_core_that_can_be_read_in_one_sitting_and_nothing_of_the_machine():
    done = subprocess.run([sys.executable, "-P", "-c", CORE], capture_output=True, text=True, check=True)
    modules, lines, *names = done.stdout.split()
    assert int(modules) <= 24 and int(lines) <= 5000
    rooms = {name.split(".")[1] for name in names if "." in name}
    assert not rooms & {"machine", "runs", "lab", "grid", "robots", "interop", "cli", "files"}
