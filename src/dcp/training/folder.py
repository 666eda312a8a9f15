"""The writing side of a run folder: one writer, never overwritten silently, nothing touched that is not a run's."""

import json
import shutil
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

from dcp.config import SCHEMA_VERSION, Config
from dcp.deploy.artefact import save_policy, write_whole
from dcp.deploy.policy import DeployedPolicy
from dcp.deploy.run_folder import CONFIG_FILE, METRICS_FILE, PLOTS_DIR, POLICY_FILE, load_run, read_config_file
from dcp.errors import UserError
from dcp.training import checkpoint_files
from dcp.training.checkpoint_files import CHECKPOINTS_DIR
from dcp.training.lock import FolderLock
from dcp.training.schedule import Budget, raised

PACKAGES = ("dcp", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "brax", "mujoco", "numpy")
TENSORBOARD_DIR = "tensorboard"
FAULT_FILE = "fault.json"
REPLACED_DIR = ".replaced"  # the run that `--overwrite` replaces, until the new one has a result
# All that a run writes: `--overwrite` replaces these and nothing else.
_WRITTEN = (
    CONFIG_FILE,
    METRICS_FILE,
    POLICY_FILE,
    FAULT_FILE,
    CHECKPOINTS_DIR,
    f"{PLOTS_DIR}/learning_curve.png",
    f"{PLOTS_DIR}/landscape.png",
    f"{PLOTS_DIR}/episode.gif",
    f"{TENSORBOARD_DIR}/events.out.tfevents.*",
)


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

    def save_config(self) -> None:
        budgets = [asdict(budget) for budget in self.earlier]
        content = {"schema_version": SCHEMA_VERSION, "config": asdict(self.config), "earlier_budgets": budgets}
        write_whole(self.path / CONFIG_FILE, json.dumps({**content, "versions": versions()}, indent=2).encode())

    def save_policy(self, policy: DeployedPolicy, row: dict[str, Any]) -> None:
        c = self.config
        about = {"env": c.env, "method": c.method, "seed": c.seed, "env_steps": row["env_steps"]}
        save_policy(self.path / POLICY_FILE, policy, about)

    def save_fault(self, seen: dict[str, Any]) -> Path:
        path = self.path / FAULT_FILE
        write_whole(path, json.dumps({"schema_version": SCHEMA_VERSION, **seen}, indent=2).encode())
        return path

    def keep(self) -> None:
        """The run has a result: what it replaces may go."""
        _remove_written(self.path / REPLACED_DIR)
        _remove_empty(self.path / REPLACED_DIR)

    def discard(self) -> None:
        """Leave all as it was: for a run that ended before there was anything to keep."""
        _remove_written(self.path)
        _move_written(self.path / REPLACED_DIR, self.path)
        self.lock.release()
        _remove_empty(self.path)
        for folder in (self.path.parent, self.path.parent.parent):  # <method>, <env>
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def claim(runs_dir: str | Path, config: Config, overwrite: bool = False) -> RunFolder:
    """Make the folder of this resolved config, with config.json in it."""
    path = Path(runs_dir) / config.run_path
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(path)
        try:
            if overwrite:
                _move_written(path, path / REPLACED_DIR)
            elif (path / CONFIG_FILE).exists():
                raise UserError(taken(path))
            (path / PLOTS_DIR).mkdir(exist_ok=True)
            folder = RunFolder(path, config, lock)
            folder.save_config()
        except BaseException:
            lock.release()
            raise
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"{error.filename} is a file, not a folder: choose another --runs-dir") from error
    except OSError as error:
        raise UserError(f"cannot write to {path} ({error.strerror}): choose another --runs-dir") from error
    return folder


def reopen(path: str | Path, steps: int | None = None) -> RunFolder:
    """The folder of a run that is to go on, with a raised budget if `steps` says so (`save_config` writes it down)."""
    path = Path(path)
    config, earlier = read_plan(path)
    if steps is not None and steps < config.steps:
        raise UserError(f"steps {steps} are fewer than the run's {config.steps}: steps can only be raised")
    if steps is not None:
        config, earlier = raised(config, earlier, steps)
    try:
        lock = FolderLock(path)
    except OSError as error:
        raise UserError(f"cannot write to {path} ({error.strerror}): make it writable, or copy it elsewhere") from error
    return RunFolder(path, config, lock, earlier)


def read_plan(path: Path) -> tuple[Config, tuple[Budget, ...]]:
    """A run's config, and the budgets that it had before."""
    if not (path / CONFIG_FILE).is_file():
        raise UserError(f"{path} is no run folder: it has no {CONFIG_FILE}; name the folder that `dcp train` printed")
    stored = read_config_file(path / CONFIG_FILE)
    try:
        earlier = tuple(Budget(**budget) for budget in stored["earlier_budgets"])
    except TypeError as error:
        raise UserError(f"{path / CONFIG_FILE} has damaged budgets ({error}): restore the file") from error
    return Config(**stored["config"]), earlier


def how_far(path: Path) -> tuple[int, int]:
    """-> environment steps after which this run can go on, and those that it was asked for"""
    config, _ = read_plan(path)
    total = config.num_unrolls * config.env_steps_per_unroll
    for checkpoint in checkpoint_files.checkpoints(path / CHECKPOINTS_DIR):
        try:
            return int(checkpoint_files.read_record(checkpoint)["env_steps"]), total
        except (checkpoint_files.DamagedError, ValueError, KeyError, TypeError):
            continue  # damaged: the one before it counts
    try:  # a run that kept no checkpoint may have ended well
        ended = load_run(path).metrics["env_steps"][-1] >= total
    except (UserError, LookupError):
        ended = False
    return (total if ended else 0), total


def taken(path: Path) -> str:
    otherwise = "use --overwrite, another --seed or another --runs-dir"
    try:
        done, total = how_far(path)
    except UserError:
        return f"{path} holds a run already: {otherwise}"
    if done >= total:
        return f"{path} holds a finished run: train it longer by --resume with more --steps, or {otherwise}"
    going_on = f"continue it with `dcp train --resume {path}`"
    return f"{path} holds a run at {done:,} of {total:,} steps: {going_on}, or {otherwise}"


def versions() -> dict[str, str]:
    found = {"python": python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _written(path: Path) -> list[Path]:
    return [found for pattern in _WRITTEN for found in path.glob(pattern)]


def _remove_written(path: Path) -> None:
    for found in _written(path):
        shutil.rmtree(found) if found.is_dir() else found.unlink()


def _move_written(source: Path, target: Path) -> None:
    for found in _written(source):
        destination = target / found.relative_to(source)
        destination.parent.mkdir(parents=True, exist_ok=True)
        if destination.is_dir():  # left by a run that was ended at this very point
            shutil.rmtree(destination)
        found.replace(destination)
    if source.name == REPLACED_DIR:
        _remove_empty(source)


def _remove_empty(path: Path) -> None:
    """The run's own folders, where nothing is left in them."""
    for folder in (path / PLOTS_DIR, path / TENSORBOARD_DIR, path):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
