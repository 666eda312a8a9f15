"""The documentation's site: it builds strictly, and the pages' blocks run."""

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dcp.cli.main import main
from tests.support.pythons import python_blocks

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def follow(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Write the page's files into a folder and run its other blocks there. -> the names that they leave"""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    names: dict[str, Any] = {"__name__": page}
    for block in python_blocks(DOCS / f"{page}.md"):
        file = re.match(r"# (\w+\.py)\n", block)
        if file:
            Path(file[1]).write_text(block)
        else:
            exec(block, names)
    return names


def test_the_robots_tutorial_drives_the_point_around_the_wall(tmp_path: Path, monkeypatch, capsys):
    names = follow("your_own_robot", tmp_path, monkeypatch)
    assert names["robot"].place[1] > 1.0  # the goal lies behind a wall, at the same height
    assert "2 2 2" in capsys.readouterr().out


@pytest.mark.slow
def test_the_quick_start_runs_from_top_to_bottom(tmp_path: Path, monkeypatch):
    names = follow("quick_start", tmp_path, monkeypatch)
    assert names["run"].rows
    text = (DOCS / "quick_start.md").read_text()
    for command in re.findall(r"^    dcp (train .*?)(?: +#.*)?$", text, re.MULTILINE):
        if "--resume" not in command:
            assert main([*shlex.split(command), "--dry-run", "--runs-dir", "elsewhere"]) == 0, command


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="make test-all installs MkDocs")
def test_the_site_builds_without_a_warning(tmp_path: Path):
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    api = (tmp_path / "site" / "api.html").read_text()
    assert "PooledSubgoal" in api and (tmp_path / "site" / "search" / "search_index.json").is_file()
