"""A diagnosis in a run's folder: <run>/diagnosis/diagnosis.json, and figures beside it."""

import json
from pathlib import Path
from typing import Any

from dcp.errors import UserError
from dcp.policies.policy_file import write_whole

FOLDER, FILE = "diagnosis", "diagnosis.json"
SCHEMA_VERSION = 1  # of the files that can be read here


def write(folder: Path, content: dict[str, Any], with_figures: bool = True) -> list[Path]:
    """-> the files, the numbers first; figures of an earlier diagnosis do not stay beside other numbers."""
    from dcp.analysis.diagnosis.figures import OVERVIEW, PANELS, figures
    from dcp.analysis.style import save

    try:
        for name in (OVERVIEW, *PANELS):  # by name: --out may be a folder with pictures of the user's own
            (folder / f"{name}.png").unlink(missing_ok=True)
        write_whole(folder / FILE, json.dumps(content, indent=1, allow_nan=False).encode())
        drawn = figures(content) if with_figures else {}
        return [folder / FILE, *(save(make(), folder / f"{name}.png") for name, make in drawn.items())]
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error.strerror}): choose another folder by --out") from error


def read(folder: Path) -> dict[str, Any] | None:
    """The diagnosis of a run's folder; None without one."""
    path = folder / FOLDER / FILE
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not isinstance(content.get("drawn"), dict):
            raise ValueError("it holds no result of dcp diagnose")
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({error}): run `dcp diagnose` again") from error
    if content.get("schema_version") != SCHEMA_VERSION:
        raise UserError(f"{path} has schema {content.get('schema_version')}: run `dcp diagnose` again")
    return content
