"""Where `dcp eval` writes what it found, and under which names."""

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from dcp.analysis.evaluation_results import require_room
from dcp.evaluation.targets import Target
from dcp.evaluation.trial import Arena
from dcp.policies.exports import is_exported

if TYPE_CHECKING:
    from dcp.cli.eval import EvalOptions

LONGEST_NAME = 200  # bytes, of a file without its ending


def file_name(target: Target, arena: Arena, options: "EvalOptions", burst: tuple[int, int] | None, mark: str) -> str:
    """Of the files: the same evaluation again replaces its files, another one stands beside it."""
    seeds = "-".join(map(str, arena.seeds))
    parts = [arena.env.spec.name, f"{arena.episodes}_episodes", f"seeds_{seeds}"]
    parts += [f"physics_{arena.env.spec.stepped_by}"] if arena.env.spec.stepped_by != target.physics else []
    parts += ["stochastic"] if options.stochastic else []
    name = "_".join([*parts, *([f"burst_{burst[0]}_{burst[1]}"] if burst else [])]) + mark
    if len(name.encode()) <= LONGEST_NAME:
        return name
    whole = hashlib.sha256(name.encode()).hexdigest()[:16]  # a file's name has an end; many seeds do not
    return f"{name.encode()[: LONGEST_NAME - 17].decode(errors='ignore')}_{whole}"


def marks(targets: list[Target], out: Path | None) -> list[str]:
    """What keeps the files of several policies apart in one folder: an export from its run, and all under --out."""
    folders = [folder_of(target, out) for target in targets]
    names = [f"_{Path(target.label).name}" if is_exported(target.label) else "" for target in targets]
    places = list(zip(folders, names, strict=True))
    return [
        name if places.count((folder, name)) == 1 else "_" + re.sub(r"[^\w.-]+", "_", target.label).strip("_")
        for target, folder, name in zip(targets, folders, names, strict=True)
    ]


def require_rooms(targets: list[Target], out: Path | None) -> None:
    for target in targets:
        require_room(folder_of(target, out))


def folder_of(target: Target, out: Path | None) -> Path:
    return target.home if out is None else out
