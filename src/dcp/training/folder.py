"""The writing side of a run folder: one writer, never overwritten silently, nothing touched that is not a run's."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

import jax

from dcp import hosts
from dcp.config import SCHEMA_VERSION, Config
from dcp.devices import cores
from dcp.errors import UserError
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import save_policy, write_whole
from dcp.run_folder import CONFIG_FILE, METRICS_FILE, PLOTS_DIR, POLICY_FILE
from dcp.training import set_aside
from dcp.training.checkpoint_files import CHECKPOINTS_DIR
from dcp.training.lock import FolderLock
from dcp.training.progress import read_plan, taken
from dcp.training.schedule import Budget, raised
from dcp.training.set_aside import FAULT_FILE, TENSORBOARD_DIR

UNSPLIT = "off"  # what split_batches was before it was noted in config.json
PACKAGES = ("dcp", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "brax", "mujoco", "numpy")


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

    def save_policy(self, policy: DeployedPolicy, row: dict[str, Any]) -> None:
        c = self.config
        names = ("env", "eval_env", "fidelity", "physics", "method", "seed")
        about = {name: getattr(c, name) for name in names}
        save_policy(self.path / POLICY_FILE, policy, {**about, "env_steps": row["env_steps"]})

    def save_fault(self, seen: dict[str, Any]) -> Path:
        write_whole(self.fault, json.dumps({"schema_version": SCHEMA_VERSION, **seen}, indent=2).encode())
        return self.fault

    def keep(self) -> None:
        """The run has a result: what it replaces may go."""
        set_aside.let_go(self.path)

    def discard(self) -> None:
        """Leave all as it was: for a run that ended before there was anything to keep."""
        set_aside.bring_back(self.path)
        self.lock.release()
        with suppress(OSError):  # not empty, or not ours
            for folder in (self.path, self.path.parent, self.path.parent.parent):  # seed_<n>, <method>, <env>
                folder.rmdir()


def claim(runs_dir: str | Path, config: Config, overwrite: bool = False) -> RunFolder:
    """Make the folder of this resolved config, with config.json in it."""
    path = Path(runs_dir) / config.run_path
    try:
        path.mkdir(parents=True, exist_ok=True)
        folder = RunFolder(path, config, FolderLock(path))
        try:
            set_aside.recover(path)
            if overwrite:
                set_aside.set_aside(path)
            elif set_aside.written(path):
                raise UserError(taken(path))
            _begin(folder)
        except BaseException:
            folder.lock.release()
            raise
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"{error.filename} is a file, not a folder: choose another --runs-dir") from error
    except OSError as error:
        raise UserError(f"cannot write to {path} ({error.strerror}): choose another --runs-dir") from error
    return folder


def _begin(folder: RunFolder) -> None:
    try:
        (folder.path / PLOTS_DIR).mkdir(exist_ok=True)
        folder.save_config()
    except OSError:
        set_aside.bring_back(folder.path)
        raise


def reopen(path: str | Path, steps: int | None = None) -> RunFolder:
    """The folder of a run that is to go on, with a raised budget if `steps` says so (`save_config` writes it down)."""
    path = Path(path)
    read_plan(path)  # is it a run at all?
    try:
        lock = FolderLock(path)
    except OSError as error:
        raise UserError(f"cannot write to {path} ({error.strerror}): make it writable, or copy it elsewhere") from error
    try:
        set_aside.recover(path)
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


def versions() -> dict[str, str]:
    found = {"python": python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def machine() -> dict[str, str]:
    """What besides versions decides how numbers are rounded."""
    kind = jax.devices()[0].device_kind
    return {"device": kind, "processor": _processor(), "cores": str(cores()), "hosts": str(hosts.count())}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, UnicodeDecodeError):
        return "unknown"
