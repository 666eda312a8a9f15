"""What pip installs: the wheel holds every file of the package, the name is ours, and hints name it."""

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import dcp
from dcp.errors import install_hint

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WITH_HINTS = [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "notebooks").glob("*.ipynb")]
WITH_HINTS += [
    page for room in ("src", "docs", "examples") for page in (ROOT / room).rglob("*.*") if page.suffix in (".py", ".md")
]
WITH_HINTS += [*(ROOT / "lerobot_plugins").rglob("*.toml"), *(ROOT / "lerobot_plugins").rglob("*.md")]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_installed_distribution_is_dcp_rl_in_the_version_of_the_code():
    assert PROJECT["name"] == "dcp-rl"
    assert version("dcp-rl") == PROJECT["version"] == dcp.__version__


def test_dir_lists_the_interface_and_nothing_else():
    names = [name for name in dir(dcp) if not name.startswith("_")]
    assert names == sorted([*dcp.__all__, "presets"])
    assert {"train", "Agent", "Algorithm", "load_policy", "make_env", "METHODS"} <= set(names)


def test_no_text_fetches_dcp_from_a_package_index():
    """Nobody owns the name there yet, and `dcp` is another project: `pip install .` in a clone is what works."""
    argument = r"""(?: +(?!in\b|#)[^\s`]+)*? +['"]?"""
    wrong = re.compile(rf"pip install{argument}dcp(-rl)?(\[\w+\])?(?![\w/-])")
    texts = {page.relative_to(ROOT).as_posix(): page.read_text() for page in WITH_HINTS}
    assert [(name, hint[0]) for name, text in texts.items() for hint in wrong.finditer(f"{text}\n")] == []
    assert wrong.search("pip install -q 'dcp-rl[video]'") and wrong.search("%pip install dcp\n")


def test_hints_name_extras_that_exist():
    texts = [page.read_text() for page in WITH_HINTS]
    named = {extra for text in texts for extra in re.findall(r"""['"]\.\[(\w+)\]|install_hint\(['"](\w+)""", text)}
    names = {one or other for one, other in named}
    assert {"video", "onnx", "cuda", "hub"} <= names <= set(PROJECT["optional-dependencies"])


def test_the_hint_is_what_works_from_a_clone_and_from_a_repository_once_there_is_one(tmp_path: Path, monkeypatch):
    assert install_hint("wandb") == "pip install '.[wandb]' in a clone of dcp"
    assert install_hint() == "pip install . in a clone of dcp"
    info = tmp_path / "dcp_rl-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: dcp-rl\nVersion: 9\nProject-URL: Repository, https://host/dcp\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert install_hint("wandb") == "pip install 'dcp-rl[wandb] @ git+https://host/dcp'"


def test_actions_are_pinned_by_commit_and_downloads_by_hash():
    used = [use for file in WORKFLOWS for use in re.findall(r"uses: (.*)", file.read_text())]
    assert len(used) >= 8 and [use for use in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\S+", use)] == []
    installs = [line for file in WORKFLOWS for line in re.findall(r"pip install.*", file.read_text())]
    assert installs and [line for line in installs if "--require-hashes" not in line] == []


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
    released = re.findall(r"^date-released: (.*)$", citation, re.MULTILINE)
    newest, date = re.findall(r"^## \[([\d.]+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert cited == newest == PROJECT["version"]
    assert released == ([] if date == "unreleased" else [date])
    assert "arXiv:2606.16515" in citation and "2026-06-15" in citation


def test_the_images_of_docker_install_extras_and_commands_that_exist():
    text = (ROOT / "Dockerfile").read_text()
    extras = {extra for named in re.findall(r"EXTRAS='?\[([\w,]+)\]", text) for extra in named.split(",")}
    assert {"cuda", "video"} <= extras <= set(PROJECT["optional-dependencies"])
    (minor,) = re.findall(r"^FROM python:3\.(\d+)", text, re.MULTILINE)
    dev = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert f"Programming Language :: Python :: 3.{minor}" in PROJECT["classifiers"]
    assert dev["image"].endswith(f":3.{minor}") and "make setup" in dev["postCreateCommand"]


WITHOUT_BRAX = """
import sys
sys.modules.update(dict.fromkeys(("brax", "jaxopt", "trimesh", "mujoco.mjx")))  # importing one fails
import dcp, dcp.algorithm
dcp.load_policy("zoo/ant_u_maze/dcp")
for name in ("ant_u_maze", "ant_push", "humanoid", "pusher_easy"):
    dcp.make_env(name).engine
"""


def test_policies_and_the_paper_s_physics_need_no_brax():
    subprocess.run([sys.executable, "-P", "-c", WITHOUT_BRAX], check=True)
