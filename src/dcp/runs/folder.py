"""Write run folders: one writer each, no silent overwriting, and no changes to files that are not a run's."""

import csv
import errno
import fcntl
import io
import json
import math
import os
import socket
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dcp.config import SCHEMA_VERSION, Config, Tracking
from dcp.errors import RunError, UserError
from dcp.files import (
    CHECKPOINTS_DIR,
    CONFIG_FILE,
    FAULT_FILE,
    METRICS_FILE,
    PLOTS_DIR,
    POLICIES_DIR,
    POLICY_FILE,
    require_no_links_out,
    write_whole,
)
from dcp.loop import Budget, Row
from dcp.policies.policy import DeployedPolicy, save_policy
from dcp.runs.checkpoint import machine, versions

if TYPE_CHECKING:
    from dcp.runs.tracking import Sink

LOCK_FILE = ".lock"
REPLACED_DIR = ".replaced"
_TRIES, _PAUSE = 10, 0.02  # seconds between two tries: `run_status.owner` takes the lock for a moment, only to look


class FolderLock:
    """Allow one writer per folder. The operating system releases the lock when its owner ends, however it ends."""

    def __init__(self, folder: Path):
        self._path = folder / LOCK_FILE
        self._descriptor: int | None = self._acquire()

    def _acquire(self) -> int:
        tries = _TRIES
        while True:
            descriptor = open_lock(self._path, os.O_RDWR | os.O_CREAT)
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


def open_lock(path: Path, flags: int) -> int:
    """Open a lock file, and nothing else: a pipe would wait for its other end."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{path.name} is not a regular file", str(path))
    return descriptor


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

    def save_fault(self, fault: dict[str, Any]) -> Path:
        self.lock.require()
        write_whole(self.fault, json.dumps({"schema_version": SCHEMA_VERSION, **fault}, indent=2).encode())
        return self.fault

    def keep(self) -> None:
        """Remove the run that this one replaced, because this one has a result."""
        if (self.path / REPLACED_DIR).is_dir():
            from dcp.runs.replaced_run import drop_replaced

            drop_replaced(self.path)


@dataclass
class Results:
    """Write a run's config, rows and policies to its folder, and its rows to the loggers that are asked for."""

    folder: RunFolder
    resumed: bool
    tracking: Tracking = Tracking()  # noqa: RUF009
    keep_policies: bool = False  # the policy of every evaluation
    rows: list[Row] = field(default_factory=list)
    _sinks: "list[Sink]" = field(default_factory=list)
    _note: Callable[[str], None] | None = None

    def begin(self, rows: Sequence[Row], note: Callable[[str], None]) -> None:
        """Write the config and metrics.csv, and open the sinks. `rows`: those of a resumed run."""
        if self.resumed:
            self.folder.save_config()  # with the current budget
            self.folder.fault.unlink(missing_ok=True)  # of an earlier process
        self._note, self.rows = note, list(rows)
        self._write_all(self.rows)  # whatever an earlier process left there
        if self.tracking.loggers:
            from dcp.runs.tracking import make_sinks

            self._sinks = make_sinks(self.folder.path, self.folder.config, self.tracking, self.rows)

    def add(self, policy: DeployedPolicy, row: Row) -> None:
        """Write the row to metrics.csv, at once, and then its policy."""
        self.folder.lock.require()  # another run may have this path by now
        if self.rows and self._fill(row):
            with self.folder.metrics.open("ab") as file:
                file.write(_as_csv([[row[name] for name in self.rows[0]]]))
        else:
            self._write_all([*self.rows, row])
        self.folder.save_policy(policy, row, self.keep_policies)
        self.folder.keep()
        self.rows.append(row)
        for sink in self._sinks:
            sink.write(row)

    def _fill(self, row: Row) -> bool:
        """Give all rows the same columns, with nan where one has none; return whether only the new row changed.

        A run may be resumed by a version of dcp that has other metrics.
        """
        lost, added = self.rows[0].keys() - row.keys(), row.keys() - self.rows[0].keys()
        if (lost or added) and self._note is not None:
            names = ", ".join(sorted(lost | added))
            self._note(f"{METRICS_FILE} has other columns from here ({names}): rows without one have nan there.")
            self._note = None  # once is enough
        for other, names in [(row, lost), *((before, added) for before in self.rows)]:
            other |= dict.fromkeys(sorted(names), math.nan)
        return not added

    def _write_all(self, rows: Sequence[Row]) -> None:
        columns = list(rows[0]) if rows else []
        lines = [columns, *([row[name] for name in columns] for row in rows)] if rows else []
        write_whole(self.folder.metrics, _as_csv(lines))

    def close(self) -> None:
        while self._sinks:
            self._sinks.pop().close()

    def leave(self, last: int | None) -> None:
        """Remove the folder if it holds no result. `last`: environment steps at the newest checkpoint."""
        if not (self.is_worth_keeping(last) or self.folder.fault.exists()):
            from dcp.runs.replaced_run import discard

            discard(self.folder)

    def is_worth_keeping(self, last: int | None) -> bool:
        return bool(self.rows) or self.resumed or last is not None


def _as_csv(lines: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(lines)
    return text.getvalue().encode()


def holds_run(path: Path) -> bool:
    """Return whether this is a run folder; False for a name that no file can have."""
    try:
        return (path / CONFIG_FILE).exists()
    except (OSError, ValueError):
        return False


def claim(runs_dir: str | Path, config: Config, overwrite: bool = False) -> RunFolder:
    """Create and lock the folder of this resolved config, and write config.json."""
    path = Path(runs_dir) / config.run_path
    try:
        path.mkdir(parents=True, exist_ok=True)
        require_no_links_out(path)
        folder = RunFolder(path, config, FolderLock(path))
        try:
            if any(entry.name != LOCK_FILE for entry in path.iterdir()):  # of an earlier run, or its user's
                from dcp.runs.replaced_run import make_way

                make_way(path, overwrite)
            try:
                (path / PLOTS_DIR).mkdir(exist_ok=True)
                folder.save_config()
            except OSError:
                from dcp.runs.replaced_run import restore_replaced

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
