"""What a launcher is given: a run, or several seeds of one cell that train as one program."""

import json
import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from dcp.config import SCHEMA_VERSION, Settings
from dcp.policies.policy_file import write_whole
from dcp.runs.run_status import own_environments

GRID_DIR = "grid"  # beside the runs: jobs/, logs/, progress/


@dataclass(frozen=True)
class Resources:
    """What one job occupies while it runs."""

    cores: int = 1
    memory_bytes: int = 0  # estimated; see grid/memory.py
    gpus: float = 0.0  # may be a share of one


@dataclass(frozen=True)
class Job:
    """Everything that decides a process's work. Names of its files follow from it, so a restarted grid finds them."""

    settings: Settings  # with the first of the seeds
    seeds: tuple[int, ...]
    runs_dir: Path  # the grid's; absolute, and shared storage where jobs run on several machines
    subfolder: str = ""  # by the grid file's `folder`: keeps cells apart whose env, method and seed agree
    resources: Resources = Resources()
    code: Path | None = None  # where an environment named as module:factory is looked for, and a file of seeds

    @property
    def root(self) -> Path:
        """What `dcp train` calls --runs-dir."""
        return self.runs_dir / self.subfolder

    @property
    def runs(self) -> tuple[Settings, ...]:
        return tuple(replace(self.settings, seed=seed) for seed in self.seeds)

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(self.root / run.run_path for run in self.runs)

    @property
    def name(self) -> str:
        """ant_u_maze/dcp/seed_0, or ant_u_maze/dcp/seeds_0-1-2; with the subfolder before it. Unique in its grid."""
        cell = Path(self.subfolder) / Path(self.settings.run_path).parent
        seeds = "-".join(str(seed) for seed in self.seeds)
        return (cell / f"seed{'s' * (len(self.seeds) > 1)}_{seeds}").as_posix()

    @property
    def file(self) -> Path:
        return self.runs_dir / GRID_DIR / "jobs" / f"{self.name}.json"

    @property
    def log(self) -> Path:
        """What its processes printed, one after another."""
        return self.runs_dir / GRID_DIR / "logs" / f"{self.name}.log"

    @property
    def progress(self) -> Path:
        """Where its process says how far it is: see grid/heartbeat.py."""
        return self.runs_dir / GRID_DIR / "progress" / f"{self.name}.json"

    def command(self) -> list[str]:
        """The same by hand: `dcp train` with the config in `file`."""
        own = [part for flag, name in own_environments(self.settings).items() for part in (f"--{flag}", name)]
        seeds = [] if len(self.seeds) == 1 else ["--seeds", *map(str, self.seeds), "--seeds-as", "vmapped"]
        where = ["--config", str(self.file), "--runs-dir", str(self.root), "--resume", "auto"]
        return ["dcp", "train", *where, *seeds, *own, "--display", "none", "--no-plots"]

    def command_line(self) -> str:
        return shlex.join(self.command())

    def to_json(self) -> str:
        """Also a config file, as `dcp train --config` reads it."""
        rest = {"seeds": self.seeds, "subfolder": self.subfolder, "resources": asdict(self.resources)}
        paths = {"runs_dir": str(self.runs_dir), "code": None if self.code is None else str(self.code)}
        content = {"schema_version": SCHEMA_VERSION, "config": asdict(self.settings), "job": {**rest, **paths}}
        return json.dumps(content, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Of our own writing: what is not is refused with Python's own error."""
        content: dict[str, Any] = json.loads(text)
        job = content["job"]
        return cls(
            Settings(**content["config"]),
            tuple(int(seed) for seed in job["seeds"]),
            Path(job["runs_dir"]),
            str(job["subfolder"]),
            Resources(**job["resources"]),
            None if job["code"] is None else Path(job["code"]),
        )

    def save(self) -> Path:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.file, self.to_json().encode())  # a job of an earlier grid may read it at this moment
        return self.file
