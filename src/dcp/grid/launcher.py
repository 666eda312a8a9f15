"""Declare what the driver needs of a launcher, and make launchers by name: local processes, Ray tasks, SLURM jobs.

A launcher does not know how far a run is; run folders do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from dcp.grid.jobs import Job
from dcp.grid.resources import FreeResources

LauncherName = Literal["local", "ray", "slurm"]
State = Literal["waiting", "running", "paused", "finished", "failed", "stopped"]


@dataclass(frozen=True)
class Status:
    """The state of a job's latest attempt, according to its launcher."""

    state: State
    why: str = ""  # one sentence, for a job that failed, was stopped or is paused
    where: str = ""  # "process 123", "node a, task 5", "SLURM job 17_3"
    code: int | None = None  # its exit code, once it has ended: `retriable` judges it


NOT_BEGUN = Status("stopped", "it had not begun")


def stop_waiting(waiting: list[Job], statuses: dict[str, Status]) -> None:
    """Empty the list of waiting jobs: they never start."""
    for job in waiting:
        statuses[job.name] = NOT_BEGUN
    waiting.clear()


class Launcher(Protocol):
    """Run each job in its own process, by `worker.run_job`.

    A job that is submitted again is another attempt; the driver does that for jobs whose latest attempt has ended.
    If jobs of an earlier process of the same grid still run, the launcher adopts them, or `run_job` waits for them.
    """

    def require(self) -> None:
        """Raise UserError, before anything starts, if a package, a cluster or resources for a job are missing."""
        ...

    def submit(self, jobs: Sequence[Job]) -> None: ...

    def poll(self) -> dict[str, Status]:
        """Return at once the status of every job that was ever submitted, by name."""
        ...

    def stop(self) -> None:
        """Ask every job to stop with a checkpoint (SIGTERM), and wait for it. Waiting jobs never start."""
        ...

    def close(self) -> None:
        """Release what `require` and `submit` opened. Called once, whatever happened."""
        ...


@dataclass(frozen=True)
class RayOptions:
    """Flags of one launcher: the field `ray_address` becomes `--ray-address`."""

    ray_address: str | None = None
    """Ray: the head node of a running cluster, as host:port, or auto. Default: one on this machine, for this grid."""


@dataclass(frozen=True)
class SlurmOptions:
    slurm_partition: str | None = None
    """SLURM: the partition. Default: the cluster's."""
    slurm_time: int = 24 * 60
    """SLURM: minutes that a job may take; a run that needs longer is requeued and resumes."""
    slurm_constraint: str | None = None
    """SLURM: features that a node must have."""
    slurm_account: str | None = None
    """SLURM: the account that is charged."""


def make_launcher(
    name: LauncherName,
    jobs: Sequence[Job],
    free: FreeResources,
    ray: RayOptions,
    slurm: SlurmOptions,
    environ: Mapping[str, str] | None = None,
) -> Launcher:
    """Return the launcher of this name. `free` limits what runs at once here; elsewhere only `free.jobs` counts."""
    if name == "ray":
        from dcp.grid.ray_launcher import RayLauncher

        return RayLauncher(jobs, ray, free)
    if name == "slurm":
        from dcp.grid.slurm_launcher import SlurmLauncher

        return SlurmLauncher(jobs, slurm, free.jobs)
    from dcp.grid.local_launcher import LocalLauncher

    return LocalLauncher(free, jobs, environ)
