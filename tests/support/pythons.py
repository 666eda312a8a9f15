"""`make test-pythons`: install the wheel in an empty environment on each Python, and use it from an empty folder.

    python -m tests.support.pythons WHEEL [PYTHON ...]

Without interpreters it takes those of VERSIONS that it finds on the path and in pyenv's folder. pip resolves the
requirements by itself: no lock file. Prints one line per step, and exits with 1 if a step failed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13")
README = Path(__file__).parents[2] / "README.md"
NOTEBOOKS = sorted(README.with_name("notebooks").glob("*.ipynb"))
VERSION_OF = "import sys, venv, ensurepip; print('.'.join(map(str, sys.version_info[:2])))"
ANSWER_SECONDS = 60
STEP_SECONDS = 1800


def python_blocks(page: Path) -> list[str]:
    """Return the page's blocks of Python, in order."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def version_of(python: str) -> str | None:
    """Return such as "3.12", or None where this is no Python that can make a virtual environment."""
    try:
        answer = subprocess.run([python, "-c", VERSION_OF], capture_output=True, text=True, timeout=ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def interpreters() -> Iterator[str]:
    """Yield one Python of each version that is here."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in VERSIONS:
        candidates = [shutil.which(f"python{version}"), *map(str, root.glob(f"{version}.*/bin/python{version}"))]
        found = next((python for python in candidates if python and version_of(python) == version), None)
        if found is None:
            print(f"test-pythons: no Python {version} here", flush=True)
        else:
            yield found


def first_cells() -> str:
    """Return the notebooks' first cells as one program, which fails if one of them would have to install dcp."""
    code = []
    for path in NOTEBOOKS:
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        code.append("".join(cells[0]["source"]).replace("%pip install -q ..", "raise SystemExit('dcp is not found')"))
    return "\n".join(code)


def steps(bin_folder: Path, wheel: Path) -> dict[str, list[str]]:
    """Return what a new user does, by name: install without extras, the README's Python, and the commands."""
    python, dcp = str(bin_folder / "python"), str(bin_folder / "dcp")
    maze = "zoo/point_u_maze/dcp"
    return {
        "pip install": [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)],
        "README's Python": [python, "-c", "\n".join(python_blocks(README))],
        "python -m dcp": [python, "-m", "dcp", "--version"],
        "dcp train": [dcp, "train", "--preset", "demo", "--steps", "300000", "--display", "plain"],
        "dcp render": [dcp, "render", "zoo/point_u_maze/dcp"],
        "dcp explore": [dcp, "explore", maze, "--out", "page.html"],
        "dcp report": [dcp, "report", "runs", "--out", "report"],
        "dcp export, NumPy": [dcp, "export", maze, "--format", "numpy", "--out", "policy.npz"],
        "dcp export, StableHLO": [dcp, "export", maze, "--format", "stablehlo", "--out", "policy.stablehlo"],
        "dcp export, ONNX": [dcp, "export", maze, "--format", "onnx", "--out", "policy.onnx"],
        "dcp latency": [dcp, "latency", "zoo/so101_reach/dcp"],
        "the notebooks' first cells": [python, "-c", first_cells()],
        "dcp doctor": [dcp, "doctor"],
    }


# What ends with another code than 0, and with these words: the extra that it needs is not installed.
NEEDS_AN_EXTRA = {"dcp export, ONNX": "pip install '.[onnx]' in a clone of dcp"}


def used(python: str, wheel: Path) -> bool:
    """Install the wheel with this Python and take every step, in a temporary folder. -> whether all went well"""
    name = f"Python {version_of(python)}"
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty")
        empty.mkdir()
        subprocess.run([python, "-m", "venv", str(Path(folder, "venv"))], check=True)
        for step, command in steps(Path(folder, "venv", "bin"), wheel).items():
            start = time.monotonic()
            done = subprocess.run(
                command, cwd=empty, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=STEP_SECONDS
            )
            words = NEEDS_AN_EXTRA.get(step)
            good = done.returncode == 0 if words is None else done.returncode == 2 and words in done.stdout.decode()
            verdict = "ok" if good else f"exit code {done.returncode}"
            print(f"test-pythons: {name}: {step}: {verdict}, {time.monotonic() - start:.0f} s", flush=True)
            if not good:
                print(done.stdout.decode(errors="replace"), flush=True)
                return False
    return True


def main() -> int:
    wheel, pythons = Path(sys.argv[1]).resolve(), sys.argv[2:] or list(interpreters())
    return 0 if pythons and all([used(python, wheel) for python in pythons]) else 1


if __name__ == "__main__":
    sys.exit(main())
