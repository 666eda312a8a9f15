"""Small JSON files between a grid and its jobs on other machines, whole at any moment: what no scheduler tells both."""

import json
import os
from pathlib import Path
from typing import Any


def write_note(file: Path, content: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    draft.write_text(json.dumps(content, indent=2), encoding="utf-8")
    draft.replace(file)


def read_note(file: Path) -> dict[str, Any]:
    """-> empty where there is none, or none that can be read"""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
