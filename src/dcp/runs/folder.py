"""The writing side of a run folder: one writer, never overwritten silently, nothing touched that is not a run's.

The run that `--overwrite` replaces is kept until the new one has a result, and comes back if it gets none. A process
may end at any line of that. config.json moves last in both directions, so what is found tells what was going on: a
replaced run without config.json was never moved away whole, and one with it waits until the new run has a result.
"""

import fcntl
import json
import os
import shutil
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dcp.config import SCHEMA_VERSION, Config
from dcp.errors import RunError, UserError
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import save_policy, write_whole
from dcp.run_folder import (
    CHECKPOINTS_DIR,
    CONFIG_FILE,
    FAULT_FILE,
    METRICS_FILE,
    PLOTS_DIR,
    POLICIES_DIR,
    POLICY_FILE,
    TENSORBOARD_DIR,
)
from dcp.runs.checkpoint import UNSPLIT, machine, versions
from dcp.runs.run_status import Budget, raised, read_plan, taken
from dcp.validation import require_no_links_out

LOCK_FILE = ".lock"
REPLACED_DIR = ".replaced"
_RETURNING_DIR, _GONE_DIR = ".replaced.returning", ".replaced.gone"  # on its way back; being removed
# All that a run writes: `--overwrite` replaces these and nothing else.
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
    CONFIG_FILE,
)
_DRAFTS = (  # see write_whole
    *(f".{name}.*.tmp" for name in (CONFIG_FILE, METRICS_FILE, POLICY_FILE, FAULT_FILE)),
    f"{POLICIES_DIR}/.*.tmp",
)


class FolderLock:
    """One writer per folder. The operating system holds the lock, so it ends with its owner, however that ends."""

    def __init__(self, folder: Path):
        self._path = folder / LOCK_FILE
        self._descriptor: int | None = self._acquire()

    def _acquire(self) -> int:
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
                os.close(descriptor)
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
            os.close(descriptor)  # its owner removed it meanwhile: that was a lock on nothing

    def require(self) -> None:
        """Stop where the folder was moved or removed, or the lock taken away: this process must not write there."""
        if lost := self.lost():
            raise RunError(lost)

    def lost(self) -> str | None:
        """Say in a sentence that the folder was moved or removed; None while it is where it was."""
        if self._descriptor is None or self._is_current(self._descriptor):
            return None
        return f"{self._path.parent} was moved or removed in the middle of its run: resume it where it is"

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        if self._descriptor is None:
            return
        with suppress(OSError):  # the folder may be read-only by now: the lock ends with the descriptor
            self._path.unlink(missing_ok=True)  # while it is still ours
        os.close(self._descriptor)
        self._descriptor = None


def owner(folder: Path) -> str | None:
    """Say who writes to this folder now: "process 12 on host", or None. Shares the lock for an instant to find out."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
    except OSError:
        return None  # whoever wants to write will be told
    finally:
        os.close(descriptor)
    return None


@dataclass(frozen=True)
class RunFolder:
    """A run folder that this process may write to, until `lock` is released."""

    path: Path
    config: Config  # resolved
    lock: FolderLock
    earlier: tuple[Budget, ...] = ()  # budgets that were raised since

    @property
    def metrics(self) -> Path:
        return self.path / METRICS_FILE

    @property
    def tensorboard(self) -> Path:
        return self.path / TENSORBOARD_DIR

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
        """Write the policy as it is now. `keep`: also as one that later evaluations leave alone, without psi_sa."""
        self.lock.require()  # else the folder would be made again where it was
        names = ("env", "eval_env", "fidelity", "physics", "method", "seed")
        about = {name: getattr(self.config, name) for name in names}
        about["env_steps"] = row["env_steps"]
        save_policy(self.path / POLICY_FILE, policy, about)
        if keep:
            name = f"{int(row['env_steps']):012d}.safetensors"
            save_policy(self.path / POLICIES_DIR / name, policy.without_critic(), about)

    def save_fault(self, seen: dict[str, Any]) -> Path:
        write_whole(self.fault, json.dumps({"schema_version": SCHEMA_VERSION, **seen}, indent=2).encode())
        return self.fault

    def keep(self) -> None:
        """Say that the run has a result: what it replaces may go."""
        drop_replaced(self.path)

    def discard(self) -> None:
        """Leave all as it was: for a run that ended before there was anything to keep."""
        restore_replaced(self.path)
        self.lock.release()
        with suppress(OSError):  # not empty, or not ours
            for folder in (self.path, self.path.parent, self.path.parent.parent):  # seed_<n>, <method>, <env>
                folder.rmdir()


def claim(runs_dir: str | Path, config: Config, overwrite: bool = False) -> RunFolder:
    """Make the folder of this resolved config, with config.json in it."""
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
    """Open the folder of a run to resume, with a raised budget if `steps` says so (`save_config` writes it down)."""
    path = Path(path)
    read_plan(path)  # is it a run at all?
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
    """List what a run has written here; config.json is the last."""
    return [found for pattern in _WRITTEN for found in path.glob(pattern)]


def finish_replacing(path: Path) -> None:
    """Finish what a process left half done. Only for the owner of the folder's lock."""
    for litter in (path / _GONE_DIR, *(found for pattern in _DRAFTS for found in path.glob(pattern))):
        _remove(litter)
    _move_written(path / _RETURNING_DIR, path)
    aside = path / REPLACED_DIR
    if not (aside / CONFIG_FILE).exists():
        _move_written(aside, path)  # it was being moved away
    elif not (path / CONFIG_FILE).exists():
        restore_replaced(path)  # the new run had not begun, or was being discarded


def keep_replaced(path: Path) -> None:
    """Move the run that is here away. If it has no result and replaced another itself, that other one must stay."""
    if (path / REPLACED_DIR).is_dir():
        _remove_written(path)
    else:
        _move_written(path, path / REPLACED_DIR)


def restore_replaced(path: Path) -> None:
    """Remove this run and put the replaced one back."""
    _remove_written(path)
    if (path / REPLACED_DIR).is_dir():
        (path / REPLACED_DIR).rename(path / _RETURNING_DIR)  # from here on, what lies in the folder is the old run's
        _move_written(path / _RETURNING_DIR, path)
    _remove_empty(path)


def drop_replaced(path: Path) -> None:
    """Remove the replaced run: the new one has a result."""
    if (path / REPLACED_DIR).is_dir():
        (path / REPLACED_DIR).rename(path / _GONE_DIR)
        _remove(path / _GONE_DIR)


def _remove_written(path: Path) -> None:
    for found in reversed(run_files(path)):  # config.json first: what is left of this run is no run
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
    """The run's own folders, where nothing is left in them."""
    for folder in (path / PLOTS_DIR, path / POLICIES_DIR, path / TENSORBOARD_DIR, path):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
