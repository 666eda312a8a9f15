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
from dcp.runs.checkpoint import Saver, machine, versions

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


@dataclass(eq=False)
class RunFolder:
    """Write a run's config, rows, policies and checkpoints to its folder, and its rows to the loggers of its user.

    This process may write here until `lock` is released.
    """

    path: Path
    config: Config  # resolved
    lock: FolderLock
    earlier: tuple[Budget, ...] = ()  # budgets before it was raised
    resumed: bool = False
    tracking: Tracking = Tracking()  # noqa: RUF009
    keep_policies: bool = False  # the policy of every evaluation
    rows: list[Row] = field(default_factory=list)  # of metrics.csv

    def __post_init__(self) -> None:
        self.saver = Saver(self.path / CHECKPOINTS_DIR, self.config, self.lock.is_held)
        self._sinks: list[Sink] = []
        self._note: Callable[[str], None] | None = None

    @property
    def metrics(self) -> Path:
        return self.path / METRICS_FILE

    @property
    def fault(self) -> Path:
        return self.path / FAULT_FILE

    def save_config(self) -> None:
        budgets = [asdict(budget) for budget in self.earlier]
        content = {"schema_version": SCHEMA_VERSION, "config": asdict(self.config), "earlier_budgets": budgets}
        content |= {"versions": versions(), "machine": machine()}
        write_whole(self.path / CONFIG_FILE, json.dumps(content, indent=2).encode())

    def save_fault(self, fault: dict[str, Any]) -> Path:
        self.lock.require()
        write_whole(self.fault, json.dumps({"schema_version": SCHEMA_VERSION, **fault}, indent=2).encode())
        return self.fault

    def begin(self, rows: Sequence[Row], note: Callable[[str], None]) -> None:
        """Write the config and metrics.csv, and open the sinks. `rows`: those of a resumed run."""
        if self.resumed:
            self.save_config()  # with the current budget
            self.fault.unlink(missing_ok=True)  # of an earlier process
        self._note, self.rows = note, list(rows)
        self._write_all(self.rows)  # whatever an earlier process left there
        if self.tracking.loggers:
            from dcp.runs.tracking import make_sinks

            self._sinks = make_sinks(self.path, self.config, self.tracking, self.rows)

    def add(self, policy: DeployedPolicy, row: Row) -> None:
        """Write the row to metrics.csv, at once, and then its policy. The run that this one replaced can go then."""
        self.lock.require()  # another run may have this path by now
        if self.rows and self._fill(row):
            with self.metrics.open("ab") as file:
                file.write(_as_csv([[row[name] for name in self.rows[0]]]))
        else:
            self._write_all([*self.rows, row])
        self._save_policy(policy, row)
        if (self.path / REPLACED_DIR).is_dir():
            from dcp.runs.replaced_run import drop_replaced

            drop_replaced(self.path)
        self.rows.append(row)
        for sink in self._sinks:
            sink.write(row)

    def _save_policy(self, policy: DeployedPolicy, row: Row) -> None:
        """Write the current policy, and with `keep_policies` a copy without psi_sa that no later one replaces."""
        names = ("env", "eval_env", "fidelity", "physics", "method", "seed")
        about = {name: getattr(self.config, name) for name in names} | {"env_steps": row["env_steps"]}
        save_policy(self.path / POLICY_FILE, policy, about)
        if self.keep_policies:
            name = f"{int(row['env_steps']):012d}.safetensors"
            save_policy(self.path / POLICIES_DIR / name, policy.without_critic(), about)

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
        write_whole(self.metrics, _as_csv(lines))

    def close(self) -> None:
        """Finish what is being written, however the run ended."""
        try:
            while self._sinks:
                self._sinks.pop().close()
        finally:
            self.saver.close()

    def leave(self) -> None:
        """Remove the folder if it holds no result."""
        if not (self.is_worth_keeping or self.fault.exists()):
            from dcp.runs.replaced_run import discard

            discard(self)

    @property
    def is_worth_keeping(self) -> bool:
        return bool(self.rows) or self.resumed or self.saver.last is not None


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


def claim(runs_dir: str | Path, config: Config, overwrite: bool = False, **outputs: Any) -> RunFolder:
    """Create and lock the folder of this resolved config, and write config.json. `outputs`: see `RunFolder`."""
    path = Path(runs_dir) / config.run_path
    try:
        path.mkdir(parents=True, exist_ok=True)
        require_no_links_out(path)
        folder = RunFolder(path, config, FolderLock(path), **outputs)
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
