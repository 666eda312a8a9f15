"""Write run folders: one writer each, no silent overwriting, and no changes to files that are not a run's.

The run that `--overwrite` replaces is kept until the new run has a result, and is restored if it gets none. A process
may end at any point of this. config.json moves last in both directions, so its place shows the state: a replaced run
without config.json was only partly moved away; one with it is kept until the new run has a result.
"""

import fcntl
import json
import os
import shutil
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dcp.config import SCHEMA_VERSION, Config
from dcp.errors import RunError, UserError
from dcp.files.run_folder import (
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
from dcp.files.validation import require_no_links_out
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import save_policy, write_whole
from dcp.runs.checkpoint import UNSPLIT, machine, versions
from dcp.runs.run_status import Budget, raised, read_plan, taken

LOCK_FILE = ".lock"
_TRIES, _PAUSE = 10, 0.02  # seconds between two tries: `owner` takes the lock for a moment, only to look
REPLACED_DIR = ".replaced"
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
    *(f".{name}.*.tmp" for name in (CONFIG_FILE, METRICS_FILE, POLICY_FILE, FAULT_FILE, TRACKING_FILE)),
    f"{POLICIES_DIR}/.*.tmp",
)


class FolderLock:
    """Allow one writer per folder. The operating system releases the lock when its owner ends, however it ends."""

    def __init__(self, folder: Path):
        self._path = folder / LOCK_FILE
        self._descriptor: int | None = self._acquire()

    def _acquire(self) -> int:
        tries = _TRIES
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
                os.close(descriptor)
                tries -= 1
                if tries:
                    time.sleep(_PAUSE)
                    continue
                raise UserError(
                    f"{self._path.parent} is in use by {owner}: wait for it, stop it, or choose another --runs-dir"
                ) from None
            except OSError as error:
                os.close(descriptor)
                raise UserError(
                    f"{self._path} cannot be locked ({error.strerror}): choose a --runs-dir on a file system with locks"
                ) from None
            if self._is_current(descriptor):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
                return descriptor
            os.close(descriptor)  # its owner has just removed the file, so this lock protects nothing

    def require(self) -> None:
        """Raise RunError if the folder was moved or the lock removed, so that this process does not write there."""
        if lost := self.lost():
            raise RunError(lost)

    def lost(self) -> str | None:
        """Return a sentence if the folder was moved or removed, else None."""
        if self._descriptor is None or self.is_held():
            return None
        return f"{self._path.parent} was moved or removed in the middle of its run: resume it where it is"

    def is_held(self) -> bool:
        """Return whether the folder at this path is still this process's: not released, moved or removed."""
        return self._descriptor is not None and self._is_current(self._descriptor)

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        if self._descriptor is None:
            return
        with suppress(OSError):  # the folder may be read-only by now; closing the descriptor ends the lock
            if self.is_held():  # else this path belongs to another run by now
                self._path.unlink(missing_ok=True)  # before another process can take it
        os.close(self._descriptor)
        self._descriptor = None


def owner(folder: Path) -> str | None:
    """Return who writes to this folder now, as "process 12 on host", or None. Takes a shared lock for a moment."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
    except OSError:
        return None  # a writer gets the error
    finally:
        os.close(descriptor)
    return None


@dataclass(frozen=True)
class RunFolder:
    """Hold a run folder that this process may write to until `lock` is released."""

    path: Path
    config: Config  # resolved
    lock: FolderLock
    earlier: tuple[Budget, ...] = ()  # budgets before it was raised

    @property
    def metrics(self) -> Path:
        return self.path / METRICS_FILE

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS_DIR

    @property
    def fault(self) -> Path:
        return self.path / FAULT_FILE

    def save_config(self) -> None:
        budgets = [asdict(budget) for budget in self.earlier]
        content = {"schema_version": SCHEMA_VERSION, "config": asdict(self.config), "earlier_budgets": budgets}
        content |= {"versions": versions(), "machine": machine()}
        write_whole(self.path / CONFIG_FILE, json.dumps(content, indent=2).encode())

    def save_policy(self, policy: DeployedPolicy, row: dict[str, Any], keep: bool = False) -> None:
        """Write the current policy. `keep`: also write a copy without psi_sa that later evaluations do not replace."""
        self.lock.require()  # otherwise a moved folder would be recreated here
        names = ("env", "eval_env", "fidelity", "physics", "method", "seed")
        about = {name: getattr(self.config, name) for name in names}
        about["env_steps"] = row["env_steps"]
        save_policy(self.path / POLICY_FILE, policy, about)
        if keep:
            name = f"{int(row['env_steps']):012d}.safetensors"
            save_policy(self.path / POLICIES_DIR / name, policy.without_critic(), about)

    def save_fault(self, seen: dict[str, Any]) -> Path:
        self.lock.require()
        write_whole(self.fault, json.dumps({"schema_version": SCHEMA_VERSION, **seen}, indent=2).encode())
        return self.fault

    def keep(self) -> None:
        """Remove the replaced run, because this run has a result."""
        drop_replaced(self.path)

    def discard(self) -> None:
        """Remove a run that ended without a result, and restore what was there before. A folder that was moved or
        removed is left alone: its path may belong to another run by now."""
        if not self.lock.is_held():
            self.lock.release()
            return
        restore_replaced(self.path)
        self.lock.release()
        with suppress(OSError):  # not empty, or not permitted
            for folder in (self.path, self.path.parent, self.path.parent.parent):  # seed_<n>, <method>, <env>
                folder.rmdir()


def claim(runs_dir: str | Path, config: Config, overwrite: bool = False) -> RunFolder:
    """Create and lock the folder of this resolved config, and write config.json."""
    path = Path(runs_dir) / config.run_path
    try:
        path.mkdir(parents=True, exist_ok=True)
        require_no_links_out(path)
        folder = RunFolder(path, config, FolderLock(path))
        try:
            finish_replacing(path)
            if overwrite:
                keep_replaced(path)
            elif run_files(path):
                raise UserError(taken(path))
            try:
                (path / PLOTS_DIR).mkdir(exist_ok=True)
                folder.save_config()
            except OSError:
                restore_replaced(path)
                raise
        except BaseException:
            folder.lock.release()
            raise
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"{error.filename} is a file, not a folder: choose another --runs-dir") from error
    except OSError as error:
        raise UserError(f"cannot write to {path} ({error.strerror}): choose another --runs-dir") from error
    return folder


def reopen(path: str | Path, steps: int | None = None) -> RunFolder:
    """Lock the folder of a run to resume, with a raised budget if `steps` is larger (`save_config` stores it)."""
    path = Path(path)
    read_plan(path)  # refuses a folder that holds no run
    require_no_links_out(path)
    try:
        lock = FolderLock(path)
    except OSError as error:
        raise UserError(f"cannot write to {path} ({error.strerror}): make it writable, or copy it elsewhere") from error
    try:
        finish_replacing(path)
        config, earlier = read_plan(path)
        config = replace(config, split_batches=config.split_batches or UNSPLIT)
        if steps is not None and steps < config.steps:
            raise UserError(f"steps {steps} are fewer than the run's {config.steps}: steps can only be raised")
        if steps is not None:
            config, earlier = raised(config, earlier, steps)
    except BaseException:
        lock.release()
        raise
    return RunFolder(path, config, lock, earlier)


def run_files(path: Path) -> list[Path]:
    """List the files that a run has written here, config.json last."""
    return [found for pattern in _WRITTEN for found in path.glob(pattern)]


def finish_replacing(path: Path) -> None:
    """Finish a replacement that another process left half done. Only the owner of the folder's lock may call this."""
    for litter in (path / _GONE_DIR, *(found for pattern in _DRAFTS for found in path.glob(pattern))):
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


def _remove_written(path: Path) -> None:
    for found in reversed(run_files(path)):  # config.json first, so that the rest does not count as a run
        _remove(found)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _move_written(source: Path, target: Path) -> None:
    for found in run_files(source):
        destination = target / found.relative_to(source)
        destination.parent.mkdir(parents=True, exist_ok=True)
        _remove(destination)
        found.replace(destination)
    if source.name in (REPLACED_DIR, _RETURNING_DIR):
        _remove_empty(source)


def _remove_empty(path: Path) -> None:
    """Remove the run's own folders if they are empty."""
    for folder in (path / PLOTS_DIR, path / POLICIES_DIR, path / TENSORBOARD_DIR, path):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
