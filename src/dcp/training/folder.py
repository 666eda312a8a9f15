"""The writing side of a run folder: claimed once, never overwritten silently, nothing touched that is not a run's."""

import json
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

from dcp.config import SCHEMA_VERSION, Config
from dcp.deploy.artefact import save_policy
from dcp.deploy.policy import DeployedPolicy
from dcp.deploy.run_folder import CONFIG_FILE, METRICS_FILE, PLOTS_DIR, POLICY_FILE
from dcp.errors import UserError

PACKAGES = ("dcp", "jax", "jaxlib", "flax", "optax", "brax", "mujoco", "numpy")
TENSORBOARD_DIR = "tensorboard"
REPLACED_DIR = ".replaced"  # the run that `--overwrite` replaces, until the new one has a result
# All that a run writes: `--overwrite` replaces these and nothing else.
_WRITTEN = (
    CONFIG_FILE,
    METRICS_FILE,
    POLICY_FILE,
    f"{PLOTS_DIR}/learning_curve.png",
    f"{PLOTS_DIR}/landscape.png",
    f"{PLOTS_DIR}/episode.gif",
    f"{TENSORBOARD_DIR}/events.out.tfevents.*",
)


@dataclass(frozen=True)
class RunFolder:
    path: Path
    config: Config

    @property
    def metrics(self) -> Path:
        return self.path / METRICS_FILE

    @property
    def tensorboard(self) -> Path:
        return self.path / TENSORBOARD_DIR

    def save_policy(self, policy: DeployedPolicy, row: dict[str, Any]) -> None:
        c = self.config
        about = {"env": c.env, "method": c.method, "seed": c.seed, "env_steps": row["env_steps"]}
        save_policy(self.path / POLICY_FILE, policy, about)

    def keep(self) -> None:
        """The run has a result: what it replaces may go."""
        _remove_written(self.path / REPLACED_DIR)
        _remove_empty(self.path / REPLACED_DIR)

    def release(self) -> None:
        """Leave all as it was: for a run that ended before its first evaluation."""
        _remove_written(self.path)
        _move_written(self.path / REPLACED_DIR, self.path)
        _remove_empty(self.path)
        for folder in (self.path.parent, self.path.parent.parent):  # <method>, <env>
            if not any(folder.iterdir()):
                folder.rmdir()


def claim(runs_dir: str | Path, config: Config, overwrite: bool = False) -> RunFolder:
    """Make the folder of this resolved config, with config.json in it."""
    path = Path(runs_dir) / config.run_path
    content = {"schema_version": SCHEMA_VERSION, "config": asdict(config), "versions": versions()}
    try:
        path.mkdir(parents=True, exist_ok=True)
        if overwrite:
            _move_written(path, path / REPLACED_DIR)
        (path / PLOTS_DIR).mkdir(exist_ok=True)
        with (path / CONFIG_FILE).open("x", encoding="utf-8") as file:  # x: of two runs at once, one gets it
            json.dump(content, file, indent=2)
    except FileExistsError as error:
        if (path / CONFIG_FILE).exists():
            raise UserError(taken(path)) from error
        raise UserError(f"{error.filename} is a file, not a folder: choose another --runs-dir") from error
    except OSError as error:
        raise UserError(f"cannot write to {path} ({error.strerror}): choose another --runs-dir") from error
    return RunFolder(path, config)


def taken(path: Path) -> str:
    return f"{path} holds a run already: use --overwrite, another --seed or another --runs-dir"


def versions() -> dict[str, str]:
    found = {"python": python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _written(path: Path) -> list[Path]:
    return [file for pattern in _WRITTEN for file in path.glob(pattern)]


def _remove_written(path: Path) -> None:
    for file in _written(path):
        file.unlink()


def _move_written(source: Path, target: Path) -> None:
    for file in _written(source):
        destination = target / file.relative_to(source)
        destination.parent.mkdir(parents=True, exist_ok=True)
        file.replace(destination)
    if source.name == REPLACED_DIR:
        _remove_empty(source)


def _remove_empty(path: Path) -> None:
    """The run's own folders, where nothing is left in them."""
    for folder in (path / PLOTS_DIR, path / TENSORBOARD_DIR, path):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
