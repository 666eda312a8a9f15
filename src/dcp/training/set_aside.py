"""The run that `--overwrite` replaces: set aside until the new one has a result, and back again if it gets none.

A process may end at any line here. config.json moves last in both directions, so what is found tells what was going on:
a run set aside without config.json was never set aside whole, and one with it waits until the new run has a result.
"""

import shutil
from pathlib import Path

from dcp.run_folder import CONFIG_FILE, METRICS_FILE, PLOTS_DIR, POLICY_FILE
from dcp.training.checkpoint_files import CHECKPOINTS_DIR

TENSORBOARD_DIR = "tensorboard"
FAULT_FILE = "fault.json"
REPLACED_DIR = ".replaced"
_RETURNING_DIR, _GONE_DIR = ".replaced.returning", ".replaced.gone"  # on its way back; being removed
# All that a run writes: `--overwrite` replaces these and nothing else.
_WRITTEN = (
    METRICS_FILE,
    POLICY_FILE,
    FAULT_FILE,
    CHECKPOINTS_DIR,
    f"{PLOTS_DIR}/learning_curve.png",
    f"{PLOTS_DIR}/landscape.png",
    f"{PLOTS_DIR}/episode.gif",
    f"{TENSORBOARD_DIR}/events.out.tfevents.*",
    CONFIG_FILE,
)
_DRAFTS = tuple(f".{name}.*.tmp" for name in (CONFIG_FILE, METRICS_FILE, POLICY_FILE, FAULT_FILE))  # see write_whole


def written(path: Path) -> list[Path]:
    """What a run has written here; config.json is the last."""
    return [found for pattern in _WRITTEN for found in path.glob(pattern)]


def recover(path: Path) -> None:
    """Finish what a process left half done. Only for the owner of the folder's lock."""
    for litter in (path / _GONE_DIR, *(found for pattern in _DRAFTS for found in path.glob(pattern))):
        _remove(litter)
    _move_written(path / _RETURNING_DIR, path)
    aside = path / REPLACED_DIR
    if not (aside / CONFIG_FILE).exists():
        _move_written(aside, path)  # it was being set aside
    elif not (path / CONFIG_FILE).exists():
        bring_back(path)  # the new run had not begun, or was being discarded


def set_aside(path: Path) -> None:
    """A run without a result has replaced another already: then it is that one which must stay."""
    if (path / REPLACED_DIR).is_dir():
        _remove_written(path)
    else:
        _move_written(path, path / REPLACED_DIR)


def bring_back(path: Path) -> None:
    """Leave all as it was before this run."""
    _remove_written(path)
    if (path / REPLACED_DIR).is_dir():
        (path / REPLACED_DIR).rename(path / _RETURNING_DIR)  # from here on, what lies in the folder is the old run's
        _move_written(path / _RETURNING_DIR, path)
    _remove_empty(path)


def let_go(path: Path) -> None:
    """The new run has a result."""
    if (path / REPLACED_DIR).is_dir():
        (path / REPLACED_DIR).rename(path / _GONE_DIR)
        _remove(path / _GONE_DIR)


def _remove_written(path: Path) -> None:
    for found in reversed(written(path)):  # config.json first: what is left of this run is no run
        _remove(found)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _move_written(source: Path, target: Path) -> None:
    for found in written(source):
        destination = target / found.relative_to(source)
        destination.parent.mkdir(parents=True, exist_ok=True)
        _remove(destination)
        found.replace(destination)
    if source.name in (REPLACED_DIR, _RETURNING_DIR):
        _remove_empty(source)


def _remove_empty(path: Path) -> None:
    """The run's own folders, where nothing is left in them."""
    for folder in (path / PLOTS_DIR, path / TENSORBOARD_DIR, path):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
