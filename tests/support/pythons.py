"""`make test-pythons`: install the wheel in an empty environment on each Python, and use it from an empty folder.

    python -m tests.support.pythons WHEEL [PYTHON ...]

Without interpreters it takes those of VERSIONS that it finds on the path and in pyenv's folder. pip resolves the
requirements by itself: no lock file. Prints one line per step, and exits with 1 if a step failed.
"""

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


def steps(bin_folder: Path, wheel: Path) -> dict[str, list[str]]:
    """Return what a new user does, by name: install, the README's Python, and the commands."""
    python, dcp = str(bin_folder / "python"), str(bin_folder / "dcp")
    return {
        "pip install": [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)],
        "README's Python": [python, "-c", "\n".join(python_blocks(README))],
        "python -m dcp": [python, "-m", "dcp", "--version"],
        "dcp train": [dcp, "train", "--preset", "demo", "--steps", "300000", "--display", "plain"],
        "dcp render": [dcp, "render", "zoo/point_u_maze/dcp"],
        "dcp doctor": [dcp, "doctor"],
    }


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
            verdict = "ok" if done.returncode == 0 else f"exit code {done.returncode}"
            print(f"test-pythons: {name}: {step}: {verdict}, {time.monotonic() - start:.0f} s", flush=True)
            if done.returncode:
                print(done.stdout.decode(errors="replace"), flush=True)
                return False
    return True


def main() -> int:
    wheel, pythons = Path(sys.argv[1]).resolve(), sys.argv[2:] or list(interpreters())
    return 0 if pythons and all([used(python, wheel) for python in pythons]) else 1


if __name__ == "__main__":
    sys.exit(main())
