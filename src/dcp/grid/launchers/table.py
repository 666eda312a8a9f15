"""Launchers by name. Ray and submitit are imported when they are asked for."""

from collections.abc import Mapping, Sequence
from typing import Literal

from dcp.grid.jobs import Job
from dcp.grid.launchers.interface import Launcher
from dcp.grid.launchers.local import LocalLauncher
from dcp.grid.launchers.options import RayOptions, SlurmOptions
from dcp.grid.room import Room

LauncherName = Literal["local", "ray", "slurm"]


def make_launcher(
    name: LauncherName,
    jobs: Sequence[Job],
    room: Room,
    ray: RayOptions,
    slurm: SlurmOptions,
    environ: Mapping[str, str] | None = None,
) -> Launcher:
    """`room` bounds what runs at once here; Ray and SLURM do that themselves, but for `room.most`."""
    if name == "ray":
        from dcp.grid.launchers.ray import RayLauncher

        return RayLauncher(jobs, ray, room)
    if name == "slurm":
        from dcp.grid.launchers.slurm import SlurmLauncher

        return SlurmLauncher(jobs, slurm, room.most)
    return LocalLauncher(room, jobs, environ)
