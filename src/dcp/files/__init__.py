"""What a run folder holds, and how files are written: whole, and never through a link out of the folder.

The modules read files of strangers.
"""

import os
from pathlib import Path

from dcp.errors import UserError

CONFIG_FILE = "config.json"
METRICS_FILE = "metrics.csv"
POLICY_FILE = "policy.safetensors"
POLICIES_DIR = "policies"  # of `--keep-policies`: the policy of each evaluation, by environment steps
PLOTS_DIR = "plots"
CHECKPOINTS_DIR = "checkpoints"
TENSORBOARD_DIR = "tensorboard"
FAULT_FILE = "fault.json"
TRACKING_FILE = "tracking.json"  # which run it is at W&B and trackio


def write_whole(path: Path, content: bytes, durable: bool = True) -> None:
    """Write a file so that a reader finds either the old content or the new, never a part. `durable`: even after a
    power cut, which takes as long as the disk needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.unlink(missing_ok=True)
    try:
        with draft.open("xb") as file:  # a link of this name in a stranger's folder would lead elsewhere
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def require_no_links_out(folder: Path, of: Path | None = None) -> None:
    """Refuse a run folder with a symbolic link that leads out of it, because writing or deleting there would change
    other files. The run folder itself may be reached by a link. `of`: the run, if `folder` is a part of it."""
    run = folder if of is None else of
    root = run.resolve()
    start = root if of is None else root / folder.relative_to(of)
    _require_within(start, root, run)
    for where, folders, files in os.walk(start):  # os.walk follows no links
        for name in (*folders, *files):
            _require_within(Path(where, name), root, run)
        if Path(where) == root:  # W&B's own, with links to its logs, from before dcp kept them elsewhere
            folders[:] = [name for name in folders if name != "wandb"]


def _require_within(entry: Path, root: Path, run: Path) -> None:
    if entry.is_symlink() and not _target(entry).is_relative_to(root):
        raise UserError(
            f"{run / entry.relative_to(root)} is a link that leads out of the run folder: "
            "put what it points to in its place, or remove it"
        )


def _target(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a link to itself
        return Path("/")
