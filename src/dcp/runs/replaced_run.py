"""Put away the run that `--overwrite` replaces: it is restored if the new run ends without a result.

A process may end at any point of this. config.json moves last in both directions, so its place shows the state: a
replaced run without config.json was only partly moved away; one with it is kept until the new run has a result.
"""

import shutil
from contextlib import suppress
from pathlib import Path

from dcp.errors import UserError
from dcp.files import (
    CHECKPOINTS_DIR,
    CONFIG_FILE,
    FAULT_FILE,
    METRICS_FILE,
    PLOTS_DIR,
    POLICIES_DIR,
    POLICY_FILE,
    TENSORBOARD_DIR,
    TRACKING_FILE,
)
from dcp.runs.folder import REPLACED_DIR, RunFolder

_RETURNING_DIR, _GONE_DIR = ".replaced.returning", ".replaced.gone"  # being restored; being removed
# All files that a run writes. `--overwrite` replaces only these.
_WRITTEN = (
    METRICS_FILE,
    POLICY_FILE,
    FAULT_FILE,
    CHECKPOINTS_DIR,
    f"{POLICIES_DIR}/*.safetensors",
    f"{PLOTS_DIR}/learning_curve.png",
    f"{PLOTS_DIR}/landscape.png",
    f"{PLOTS_DIR}/episode.gif",
    f"{TENSORBOARD_DIR}/events.out.tfevents.*",
    TRACKING_FILE,
    CONFIG_FILE,
)
_DRAFTS = (  # see write_whole
    *(f".{name}.*.tmp" for name in (CONFIG_FILE, METRICS_FILE, POLICY_FILE, FAULT_FILE)),
    f"{POLICIES_DIR}/.*.tmp",
)


def make_way(path: Path, overwrite: bool) -> None:
    """Make room for a new run in a folder with files. Raise UserError if they are a run's, unless `overwrite`."""
    finish_replacing(path)
    if overwrite:
        keep_replaced(path)
    elif run_files(path):
        from dcp.runs.run_status import taken

        raise UserError(taken(path))


def run_files(path: Path) -> list[Path]:
    """List the files that a run has written here, config.json last."""
    return [file for pattern in _WRITTEN for file in path.glob(pattern)]


def finish_replacing(path: Path) -> None:
    """Finish a replacement that another process left half done. Only the owner of the folder's lock may call this."""
    for litter in (path / _GONE_DIR, *(draft for pattern in _DRAFTS for draft in path.glob(pattern))):
        _remove(litter)
    _move_written(path / _RETURNING_DIR, path)
    aside = path / REPLACED_DIR
    if not (aside / CONFIG_FILE).exists():
        _move_written(aside, path)  # it was only partly moved away
    elif not (path / CONFIG_FILE).exists():
        restore_replaced(path)  # the new run had not started, or was being discarded


def keep_replaced(path: Path) -> None:
    """Move the present run away. If it has no result and had replaced another run, keep that other run."""
    if (path / REPLACED_DIR).is_dir():
        _remove_written(path)
    else:
        _move_written(path, path / REPLACED_DIR)


def restore_replaced(path: Path) -> None:
    """Remove this run and restore the replaced one."""
    _remove_written(path)
    if (path / REPLACED_DIR).is_dir():
        (path / REPLACED_DIR).rename(path / _RETURNING_DIR)  # from here on the files in the folder are the old run's
        _move_written(path / _RETURNING_DIR, path)
    _remove_empty(path)


def drop_replaced(path: Path) -> None:
    """Remove the replaced run, because the new one has a result."""
    if (path / REPLACED_DIR).is_dir():
        (path / REPLACED_DIR).rename(path / _GONE_DIR)
        _remove(path / _GONE_DIR)


def discard(folder: RunFolder) -> None:
    """Remove a run that ended without a result, and restore what was there before. A folder that was moved or removed
    is left alone: its path may belong to another run by now."""
    if not folder.lock.is_held():
        folder.lock.release()
        return
    restore_replaced(folder.path)
    folder.lock.release()
    with suppress(OSError):  # not empty, or not permitted
        for place in (folder.path, folder.path.parent, folder.path.parent.parent):  # seed_<n>, <method>, <env>
            place.rmdir()


def _remove_written(path: Path) -> None:
    for file in reversed(run_files(path)):  # config.json first, so that the rest does not count as a run
        _remove(file)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _move_written(source: Path, target: Path) -> None:
    for file in run_files(source):
        destination = target / file.relative_to(source)
        destination.parent.mkdir(parents=True, exist_ok=True)
        _remove(destination)
        file.replace(destination)
    if source.name in (REPLACED_DIR, _RETURNING_DIR):
        _remove_empty(source)


def _remove_empty(path: Path) -> None:
    """Remove the run's own folders if they are empty."""
    for folder in (path / PLOTS_DIR, path / POLICIES_DIR, path / TENSORBOARD_DIR, path):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
