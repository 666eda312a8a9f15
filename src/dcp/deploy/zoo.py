"""Trained policies that come with the package: `zoo/<env>/<method>` stands for a run's folder wherever one is named."""

from pathlib import Path

from dcp.errors import UserError

NAME = "zoo"
FOLDER = Path(__file__).parents[1] / NAME


def located(path: str | Path) -> Path:
    """The path as it is, or the zoo's if it names one of its runs; what lies in the present folder goes first."""
    path = Path(path)
    if path.exists() or not is_zoo(path):
        return path
    found = FOLDER.joinpath(*path.parts[1:])
    if not found.exists() or (found.is_dir() and not (found / "config.json").is_file()):
        raise UserError(f"the zoo has no {Path(*path.parts[1:])}: choose one of {', '.join(names())}")
    return found


def is_zoo(path: str | Path) -> bool:
    return Path(path).parts[:1] == (NAME,)


def names() -> list[str]:
    """zoo/<env>/<method>, for each policy."""
    return sorted(f"{NAME}/{file.parent.relative_to(FOLDER).as_posix()}" for file in FOLDER.glob("*/*/config.json"))
