"""What a kind of run costs on this machine, measured once and kept: environments and sizes decide it, not seeds."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from dcp import compiling
from dcp.config import Settings
from dcp.errors import RunError
from dcp.grid.jobs import Job, Resources
from dcp.policies.policy_file import write_whole

FILE = "calibration.json"
# What has little or no part in the time of a step. The methods have one (DCP takes up to 1.3 times what CRL takes), but
# a calibration of each would take three times as long: docs/grid.md says so.
_FREE = ("method", "seed", "steps", "eval_env", "num_evals", "eval_episodes", "actor_goal", "score", "discount")
_FREE += ("final_goal_share", "logsumexp_penalty", "target_entropy_scale", "min_replay_rows", "pool_refresh_steps")
_FREE += ("actor_learning_rate", "critic_learning_rate", "alpha_learning_rate", "energy", "contrastive_loss")


@dataclass(frozen=True)
class Measured:
    """Of one process with one seed, alone on its cores."""

    compile_seconds: float  # of training's programs; little where the cache on disk had them
    unroll_seconds: float
    iteration_seconds: float  # an unroll and its updates
    peak_bytes: float
    at: str = ""  # date

    def seconds(self, run: Settings) -> float:
        """Of a whole run, compiled twice: for training, and for evaluation, which is about as large."""
        evaluation = self.unroll_seconds * run.eval_episodes * (run.episode_length or 0) / run.env_steps_per_unroll
        unrolls = run.num_prefill_unrolls * self.unroll_seconds + run.num_iterations * self.iteration_seconds
        return 2 * self.compile_seconds + unrolls + run.num_evals * evaluation


def kind(settings: Settings, on: Resources, processor: str) -> str:
    """Runs with the same text take the same time a step."""
    sizes = {name: value for name, value in asdict(settings).items() if name not in _FREE}
    return json.dumps([[socket.gethostname(), processor, on.cores, on.gpus], sizes], sort_keys=True)


def file() -> Path:
    given = os.environ.get(compiling.VARIABLE)
    return (Path(given) if given and given != compiling.OFF else compiling.default_folder().parent) / FILE


def remembered(path: Path) -> dict[str, Measured]:
    """A file that is damaged, or of another version, is as good as none."""
    try:
        stored: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return {key: Measured(**values) for key, values in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def remember(path: Path, key: str, measured: Measured) -> None:
    kept = {**remembered(path), key: measured}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps({name: asdict(value) for name, value in kept.items()}, indent=1).encode())


def measure(job: Job, environ: Mapping[str, str] | None = None) -> Measured:
    """In a process of its own, on as many cores as a run has. Raises RunError where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(replace(job, seeds=job.seeds[:1]).to_json(), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "dcp.grid.measuring", str(path), str(os.getpid())]
        done = subprocess.run(command, capture_output=True, text=True, env=environ and dict(environ))
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        raise RunError(f"a calibration of {job.settings.env} failed ({lines[-1]}): use --no-calibration")
    return Measured(**json.loads(done.stdout.splitlines()[-1]), at=datetime.now().strftime("%Y-%m-%d"))
