"""What the documents name is there: files, links, and in docs/reproduce.md every function and class."""

import re
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dcp.cli.main import main
from dcp.learner import Learner
from tests.support.tiny import FLAGS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMED = re.compile(r"`([\w/]+)\.py`: ((?:`[\w.]+`(?:, )?)+)")  # `module.py`: `name`, `name`
YOURS = {"my_parts.py", "my_tasks.py"}  # a reader's own


def has(owner: Any, name: str) -> bool:
    """Tell whether a module or class has this name, or a field of it."""
    return hasattr(owner, name) or any(name in getattr(base, "__annotations__", {}) for base in owner.__mro__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_file_that_a_page_names_exists(page: Path):
    named = set(re.findall(r"`([\w/]+\.py)`", page.read_text())) - YOURS
    assert [name for name in sorted(named) if not any((top / name).is_file() for top in (ROOT, ROOT / "src/dcp"))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file(page: Path):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)|(?:src|href)=\"([^\"]+)\"", page.read_text())
    paths = [path for path in ("".join(link) for link in links) if "://" not in path]
    assert [path for path in paths if not (page.parent / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_import_that_a_page_shows_works(page: Path):
    shown = re.findall(r"^\s*from (dcp[\w.]*) import (\w+(?:, \w+)*)", page.read_text(), re.MULTILINE)
    wanted = [(module, name) for module, names in shown for name in names.split(", ")]
    assert [wish for wish in wanted if not hasattr(import_module(wish[0]), wish[1])] == []


def test_paper_to_code_names_what_exists():
    entries = NAMED.findall((ROOT / "docs" / "reproduce.md").read_text())
    assert len(entries) > 38
    missing = []
    for path, names in entries:
        module = import_module(f"{'' if path.startswith('tools/') else 'dcp.'}{path.replace('/', '.')}")
        for name in re.findall(r"`([\w.]+)`", names):
            first, *rest = name.split(".")
            owner = getattr(module, first, None)
            if owner is None or (rest and not has(owner, rest[0])):
                missing.append(f"{path}.py: {name}")
    assert missing == []


def test_architecture_names_every_room():
    page = (ROOT / "docs/architecture.md").read_text()
    rooms = {p.name + "/" * p.is_dir() for p in (ROOT / "src/dcp").iterdir() if p.suffix == ".py" or p.is_dir()}
    assert [room for room in sorted(rooms) if not room.startswith("__") and room not in page] == []


class TracedError(Exception):
    """Carries the calls that led to the update."""


def test_the_calls_from_the_command_to_the_update_are_those_of_architecture_md(tmp_path: Path, monkeypatch):
    def step(self: Learner, *args: Any, **kwargs: Any):
        frames = traceback.extract_stack()
        raise TracedError(
            [(frame.filename.split("/src/dcp/")[-1], frame.name) for frame in frames if "/src/dcp/" in frame.filename]
        )

    monkeypatch.setattr(Learner, "step", step)
    own = ["--discount", "0.98", "--runs-dir", str(tmp_path), "--display", "none"]  # learn is not traced before
    with pytest.raises(TracedError) as raised:
        main(["train", *FLAGS, *own])
    calls = raised.value.args[0]
    page = (ROOT / "docs/architecture.md").read_text()
    (table,) = re.findall(r"^\| calls \| in \|\n(.*?)\n\n", page, re.DOTALL | re.MULTILINE)
    written = [
        (file, name.split(".")[-1])
        for names, file in re.findall(r"^\| (.*) \| `([\w/]+\.py)` \|$", table, re.MULTILINE)
        for name in re.findall(r"`([\w.]+)`", names)
    ]
    assert written == [*calls, ("learner.py", "step")]
    assert len(calls) <= 11  # from `main` to the update
