"""What is wrong with the flags of `dcp grid`, by themselves: a sentence each, before any file is read."""

from typing import TYPE_CHECKING

from dcp.errors import UserError
from dcp.grid.launchers.options import RayOptions, SlurmOptions

if TYPE_CHECKING:
    from dcp.cli.grid import GridOptions


def check_options(options: "GridOptions") -> None:
    if len(options.file) > 1:
        raise UserError(f"one grid file at a time: {options.file[1]} is the second")
    if bool(options.file) == (options.preset is not None):
        swallowed = not options.file and any("=" not in condition for condition in options.where)
        where = "; --where takes all that follows it, so write the file before it" if swallowed else ""
        raise UserError(f"name a grid file or a --preset (paper, smoke), and only one of them{where}")
    _check_numbers(options)
    _check_launcher(options)
    for flag, given in (("--calibrate", options.calibrate), ("--no-calibration", not options.calibration)):
        if given and not options.dry_run:
            raise UserError(f"{flag} goes with --dry-run: nothing else measures")


def _check_numbers(options: "GridOptions") -> None:
    least = {"retries": 0, "cores_per_run": 1, "max_runs": 1, "slurm_time": 1}
    for name, number in least.items():
        given = getattr(options.slurm if name == "slurm_time" else options, name)
        if given is not None and given < number:
            raise UserError(f"--{name.replace('_', '-')} is {given}: use at least {number}")
    share = options.gpus_per_run
    if share is not None and not (0 <= share < float("inf") and (share <= 1 or share == int(share))):
        raise UserError(f"--gpus-per-run is {share}: use a share from 0 to 1, or a whole number of GPUs")


def _check_launcher(options: "GridOptions") -> None:
    """A flag of another launcher would do nothing, and the runs would not be where they are looked for."""
    for launcher, given, default in (("ray", options.ray, RayOptions()), ("slurm", options.slurm, SlurmOptions())):
        for name, value in vars(given).items():
            if options.launcher != launcher and value != getattr(default, name):
                raise UserError(f"--{name.replace('_', '-')} goes with --launcher {launcher}, not {options.launcher}")
