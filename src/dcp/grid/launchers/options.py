"""Flags of single launchers, for cli/grid.py: the field `ray_address` becomes `--ray-address`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RayOptions:
    ray_address: str | None = None
    """Ray: the head node of a cluster that runs, as host:port, or auto. Default: one on this machine, for this grid."""


@dataclass(frozen=True)
class SlurmOptions:
    slurm_partition: str | None = None
    """SLURM: the partition. Default: the cluster's."""
    slurm_time: int = 24 * 60
    """SLURM: minutes that a job may take; a run that needs longer is requeued and goes on."""
    slurm_constraint: str | None = None
    """SLURM: features that a node must have."""
    slurm_account: str | None = None
    """SLURM: the account that is charged."""
