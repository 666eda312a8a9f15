"""Where a run goes on: at its newest checkpoint, or the one before it where that is damaged."""

from collections.abc import Callable

from dcp.errors import UserError
from dcp.training import checkpoint_files as files
from dcp.training.checkpoint import Saver, load
from dcp.training.folder import RunFolder, machine, versions
from dcp.training.loop import Moment
from dcp.training.stages import Stages

# Others of these may round otherwise: libraries, and the processor with its number of cores.
_DECIDE_BITS = {"jax", "jaxlib", "dcp", "flax", "optax", "brax", "mujoco", "device", "processor", "cores", "hosts"}


def latest_moment(folder: RunFolder, stages: Stages, saver: Saver, note: Callable[[str], None]) -> Moment | None:
    """-> None where the run has no checkpoint yet. `note` is told what the run's owner should know."""
    files.remove_drafts(folder.checkpoints)
    found = files.checkpoints(folder.checkpoints)
    damaged = []
    for path in found:
        try:
            moment = load(path, folder.config, stages)
        except files.DamagedError as damage:
            note(f"The checkpoint {path} is damaged ({damage}): trying the one before it.")
            damaged.append(path)
            continue
        for path_of_damaged in damaged:  # it would stand in the way of those to come
            files.remove(path_of_damaged)
        record = files.read_record(path)
        saver.last = record["env_steps"]
        _compare(record["versions"], versions(), note)
        _compare(record["machine"], machine(), note)
        return moment
    if damaged:
        raise UserError(
            f"every checkpoint of {folder.path} is damaged: restore one from a copy, or begin again with --overwrite"
        )
    note(f"{folder.path} has no checkpoint yet: beginning again.")
    return None


def _compare(then: dict[str, str], now: dict[str, str], note: Callable[[str], None]) -> None:
    changed = [f"{name} {then[name]} -> {now[name]}" for name in now if then.get(name, now[name]) != now[name]]
    changed = [change for change in changed if change.split()[0] in _DECIDE_BITS]
    if changed:
        note(f"Not what this run was trained with ({', '.join(changed)}): it goes on, but maybe not bit by bit.")
