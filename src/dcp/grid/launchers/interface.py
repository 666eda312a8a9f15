"""What the driver asks of a launcher. How far a run is, nobody asks it: that is read from run folders."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from dcp.grid.jobs import Job

State = Literal["waiting", "running", "finished", "failed", "stopped"]


@dataclass(frozen=True)
class Status:
    """How a job's latest attempt stands, by its launcher."""

    state: State
    why: str = ""  # one sentence, of a job that failed or was stopped
    where: str = ""  # "process 123", "node a, task 5", "SLURM job 17_3"
    code: int | None = None  # its exit code, once it has ended: `retriable` judges it


class Launcher(Protocol):
    """Runs each job's `run_job` (grid/work.py) in a process of its own.

    A job that is submitted again is another attempt; the driver does that, for jobs whose latest attempt has ended.
    Jobs of an earlier process of the same grid that still run are the launcher's to adopt, or `run_job` waits for them.
    """

    def require(self) -> None:
        """Before anything starts: raise `UserError` where a package, a cluster or the room for a job is missing."""
        ...

    def submit(self, jobs: Sequence[Job]) -> None: ...

    def poll(self) -> dict[str, Status]:
        """By job's name, every job that was ever submitted. Returns at once."""
        ...

    def stop(self) -> None:
        """Ask every job to stop with a checkpoint (SIGTERM), and wait until they have. Waiting ones never start."""
        ...

    def close(self) -> None:
        """Let go of what `require` and `submit` opened. Called once, whatever happened."""
        ...
