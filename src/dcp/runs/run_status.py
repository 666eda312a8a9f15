"""Read a run folder that training left: what was planned, how far the run got and why it ended, its checkpoints."""

import errno
import fcntl
import os
import re
import shlex
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from msgspec import Meta, Struct

from dcp.algorithm import RunState
from dcp.config import Config, Settings, fields_where
from dcp.errors import RunError, UserError, WorkerError, shown
from dcp.files import CHECKPOINTS_DIR, CONFIG_FILE, POLICY_FILE
from dcp.files.run_folder import is_zoo, load_run, read_config_file
from dcp.files.validation import MEGABYTE, Count, FormatError, Name, checked, open_regular, read_json, read_text
from dcp.loop import Budget, HostState, NotFiniteError
from dcp.runs.checkpoint import (
    ARRAYS_FILE,
    CHECKPOINT_SCHEMA_VERSION,
    NUMERICS,
    RECORD_FILE,
    SUMS_FILE,
    DamagedError,
    checkpoints,
    machine,
    remove_checkpoint,
    remove_drafts,
    stored_arrays,
    sums,
    type_and_shape,
    versions,
)
from dcp.runs.folder import LOCK_FILE, RunFolder, open_lock
from dcp.types import array_name

UNSPLIT = "off"  # the value of split_batches before config.json stored it
_POOL = re.compile(r"acting/command/(\w+/)*pool")  # a command's pool, or that of a state inside its own
# A change of these may change rounding: libraries, the processor with its cores, settings of XLA and JAX.
_DECIDE_BITS = {"jax", "jaxlib", "dcp", "flax", "optax", "mujoco", "device", "processor", "cores"}
_FLAGS = ("xla_flags", "libtpu_init_args")
_DECIDE_BITS |= {*_FLAGS, *NUMERICS}


# The plan.


def read_plan(path: Path) -> tuple[Config, tuple[Budget, ...]]:
    """Read a run's config and its earlier budgets."""
    try:
        is_run = (path / CONFIG_FILE).is_file()
    except OSError as error:
        raise UserError(f"cannot look into {str(path)[:200]} ({error.strerror}): name a run's folder") from error
    if not is_run:
        if is_zoo(path) and not path.exists():
            raise UserError(f"{path} is a policy of the package, without a checkpoint to resume: train your own run")
        raise UserError(f"{path} is not a run folder (no {CONFIG_FILE}): name the folder that `dcp train` printed")
    stored = read_config_file(path / CONFIG_FILE)
    config = Config.from_dict(stored["config"])
    earlier = tuple(Budget(budget["steps"], budget["num_evals"]) for budget in stored["earlier_budgets"])
    for before, after in pairwise((*earlier, Budget(config.steps, config.num_evals))):
        if before.steps >= after.steps or before.num_evals >= after.num_evals:
            raise UserError(f"{path / CONFIG_FILE} has earlier_budgets that do not increase: restore the file")
    return config, earlier


def differing(stored: Config, earlier: tuple[Budget, ...], asked: Settings) -> list[str]:
    """List the fields in which `asked` is another run. None means the run's own value where the run decides it."""
    decided_by_run = fields_where(run_decides=True)
    values = {name: value for name, value in asdict(asked).items() if value is not None or name not in decided_by_run}
    names = [name for name, value in values.items() if value != getattr(stored, name)]
    begun = {"steps": [b.steps for b in earlier], "num_evals": [b.num_evals for b in earlier]}  # earlier budgets
    names = [name for name in names if values[name] not in begun.get(name, [])]
    return [name for name in names if name != "steps" or asked.steps < stored.steps]


def budget_to_resume_with(path: Path, asked: Settings) -> int | None:
    """Return the budget to resume with; None if the run has already reached it.

    Settings that agree with the run are accepted. Others are refused by name, because they would make another run.
    """
    stored, earlier = read_plan(path)
    for name in differing(stored, earlier, asked):
        flag = f"--{name.replace('_', '-')}"
        if name == "steps":
            raise UserError(f"--steps {asked.steps} is below the run's {stored.steps}: steps can only be raised")
        mine, runs = getattr(asked, name), getattr(stored, name)
        if mine == getattr(Settings(), name):  # perhaps nobody gave the flag
            way = f"{flag} {mine}, the default, is not the run's {runs}: give the run's --preset and flags"
        else:
            way = f"{flag} {mine} is not the run's {runs}: leave {flag} out, give the run's --preset"
        raise UserError(f"{way}, or start another run")
    steps = max(asked.steps, stored.steps)
    longer = Settings(**{**asdict(stored), "steps": steps}).num_unrolls > stored.num_unrolls
    return None if is_finished(path) and not longer else steps


# How far it got.


def how_far(path: Path) -> tuple[int, int]:
    """Return the environment steps from which this run can resume, and those of its budget."""
    config, _ = read_plan(path)
    record = _newest_record(path)
    return record["env_steps"] if record else 0, config.num_unrolls * config.env_steps_per_unroll


def is_finished(path: Path, verified: bool = True) -> bool:
    """Return whether the run is complete, its last evaluation included. A damaged run does not count as complete;
    without `verified` this is fast, because no checksums are computed."""
    config, _ = read_plan(path)
    try:
        evaluations = len(load_run(path).metrics["env_steps"])
    except (UserError, LookupError):
        return False
    if checkpoints(path / CHECKPOINTS_DIR):  # else the run kept none
        record = _newest_record(path, verified)
        evaluations = min(evaluations, len(record["rows"])) if record else 0
    return evaluations == config.num_evals and (path / POLICY_FILE).is_file()


def _newest_record(path: Path, verified: bool = False) -> dict[str, Any] | None:
    """Return the record of the newest checkpoint that can be read, and with `verified` is as written; else None."""
    for checkpoint in checkpoints(path / CHECKPOINTS_DIR):
        with suppress(DamagedError, UserError):  # fall back to the one before it
            if verified:
                verify(checkpoint)
            record = read_record(checkpoint)
            if record.get("schema_version") == CHECKPOINT_SCHEMA_VERSION:  # resuming reports another version
                return record
    return None


def owner(folder: Path) -> str | None:
    """Return who writes to this folder now, as "process 12 on host", or None. Takes a shared lock for a moment."""
    try:
        descriptor = open_lock(folder / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
    except OSError:
        return None  # a writer gets the error
    finally:
        os.close(descriptor)
    return None


def resume_command(path: Path) -> str:
    """Return the command that resumes a run. It names the user's own parts and environments, which are code."""
    try:
        named = read_plan(path)[0].code
    except UserError:
        named = {}
    return shlex.join(["dcp", "train", "--resume", str(path), *(w for f, n in named.items() for w in (f"--{f}", n))])


def taken(path: Path) -> str:
    """Return a sentence that the folder already holds a run, and what to do."""
    otherwise = "use --overwrite, another --seed or another --runs-dir"
    try:
        finished, (done, total) = is_finished(path), how_far(path)
    except UserError:
        return f"{path} already holds a run: {otherwise}"
    if finished:
        return f"{path} holds a finished run: train it longer with --resume and more --steps, or {otherwise}"
    return f"{path} holds a run at {done:,} of {total:,} steps: resume it with `{resume_command(path)}`, or {otherwise}"


# Checkpoints.

RECORD_BYTES = 1024 * MEGABYTE  # of checkpoint.json, at most


class _Record(Struct):
    """Check what is not an array: the content of checkpoint.json."""

    env_steps: Count
    unrolls: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    rows: list[dict[Name, float]]
    metrics: list[dict[Name, float]]
    diverged: Count
    seconds: Annotated[float, Meta(ge=0, le=1e12)]
    arrays: dict[Name, Name]  # name -> type and shape
    config: dict[str, Any]
    versions: dict[str, str]
    machine: dict[str, str]


def verify(path: Path) -> None:
    """Raise `DamagedError` unless every byte is as it was written, no file is missing and none was added."""
    try:
        present = sums(path)  # refuses what is not a file, such as a pipe
        stored = read_text(path / SUMS_FILE, most=MEGABYTE)
    except FileNotFoundError as error:
        raise DamagedError(f"{error.filename} is missing") from error
    except FormatError:
        raise DamagedError(f"{SUMS_FILE} is damaged") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise DamagedError(f"{SUMS_FILE} is damaged") from None
        # what cannot be read is not damaged
        raise UserError(f"cannot read {error.filename} ({error.strerror}): repair that, or move {path} away") from error
    if stored != present:
        changed = sorted({line.split("  ", 1)[-1] for line in set(stored.splitlines()) ^ set(present.splitlines())})
        raise DamagedError(f"the checksum of {changed[0][:200]} does not fit" if changed else f"{SUMS_FILE} is damaged")


def _require_size(path: Path, most: int) -> None:
    """Refuse what would take long to read for its checksums: a forged file may have any size and no content."""
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink())
    if size > most:
        raise DamagedError(f"it has {size:,} bytes, more than {most:,}")


def read_record(path: Path) -> dict[str, Any]:
    """Read checkpoint.json. Types are checked for the current version; `load` refuses other versions."""
    try:
        record = read_json(path / RECORD_FILE, most=RECORD_BYTES)
    except (OSError, ValueError) as error:
        raise DamagedError(f"{RECORD_FILE} cannot be read: {error}") from error
    if not isinstance(record, dict):
        raise DamagedError(f"{RECORD_FILE} holds no object")
    if record.get("schema_version") == CHECKPOINT_SCHEMA_VERSION:
        try:
            checked(record, _Record)
        except FormatError as error:
            raise UserError(
                f"{path / RECORD_FILE} is not what dcp wrote ({error}): use a checkpoint that dcp wrote"
            ) from error
    return record


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Read the arrays of these names from a checkpoint; others are skipped."""
    try:
        with open_regular(path / ARRAYS_FILE) as file, np.load(file, allow_pickle=False) as stored:
            if any(entry.compress_type for entry in stored.zip.infolist()):  # small on disk, large in memory
                raise ValueError("they are compressed")
            return {name: stored[name] for name in names}
    except Exception as error:  # of a zip file, of NumPy's headers, or of the system
        raise DamagedError(f"its arrays cannot be read: {' '.join(str(error).split())[:200]}") from error


def read_pool(folder: Path) -> np.ndarray | None:
    """Return the pool [P, G] of a run folder's newest readable checkpoint; None if there is none."""
    for path in checkpoints(folder / CHECKPOINTS_DIR):
        try:
            if name := next(filter(_POOL.fullmatch, read_record(path).get("arrays", {})), None):
                return read_arrays(path, [name])[name]
        except DamagedError:
            continue
    return None


def load_latest(
    run: RunFolder, shapes: RunState, points: list[int], note: Callable[[str], None]
) -> tuple[RunState, HostState] | None:
    """Load a run's newest checkpoint, or the one before it if that is damaged. -> None if there is none

    `points`: the iterations done at each evaluation. `note` is called with what the run's owner should know.
    """
    remove_drafts(run.saver.folder)
    damaged = []
    for path in checkpoints(run.saver.folder):
        try:
            checkpoint = load(path, run.config, shapes)
        except DamagedError as damage:
            note(f"The checkpoint {path} is damaged ({damage}): trying the one before it.")
            damaged.append(path)
            continue
        for path_of_damaged in damaged:  # it would block later checkpoints
            remove_checkpoint(path_of_damaged)
        record = read_record(path)
        _require_planned(checkpoint[1], run, points)
        run.saver.last = record["env_steps"]
        then, now = {**record["versions"], **record["machine"]}, {**versions(), **machine()}
        changed = [name for name in now if name in _DECIDE_BITS and then.get(name, now[name]) != now[name]]
        if changed:
            differences = ", ".join(_difference(name, then[name], now[name]) for name in changed)
            note(f"Not what this run was trained with ({differences}): it resumes, but perhaps not bit for bit.")
        return checkpoint
    if damaged:
        raise UserError(
            f"every checkpoint of {run.path} is damaged: restore one from a copy, or begin again with --overwrite"
        )
    note(f"{run.path} has no checkpoint yet: beginning again.")
    return None


def _difference(name: str, then: str, now: str) -> str:
    """Return `cores 2 -> 4`; of flags only those that differ."""
    if name in _FLAGS:
        before, after = set(then.split()), set(now.split())
        then, now = " ".join(sorted(before - after)) or "none", " ".join(sorted(after - before)) or "none"
    return f"{name} {shown(then)[1:-1]} -> {shown(now)[1:-1]}"


def load(path: Path, config: Config, shapes: RunState) -> tuple[RunState, HostState]:
    """Verify and load a checkpoint, with its arrays on the host. `shapes`: of the run.

    Raises `DamagedError` if its bytes are not those that were written, `UserError` if it belongs to another run.
    """
    leaves = stored_arrays(shapes)
    _require_size(path, sum(leaf.size * leaf.dtype.itemsize for leaf in leaves.values()) + RECORD_BYTES)
    verify(path)
    record = _record_of_this_run(path, read_record(path), config)
    expected = {name: type_and_shape(leaf) for name, leaf in leaves.items()}
    for name in sorted(expected.keys() | record["arrays"].keys()):
        if expected.get(name) != record["arrays"].get(name):
            raise UserError(
                f"{path} holds {name} as {record['arrays'].get(name)}, where this version of dcp has "
                f"{expected.get(name)}: continue the run with the dcp that began it ({record['versions'].get('dcp')})"
            )
    arrays = read_arrays(path, expected)
    if {name: type_and_shape(array) for name, array in arrays.items()} != expected:
        raise UserError(f"{path} holds other arrays than its {RECORD_FILE} says: use a checkpoint that dcp wrote")
    if "unrolls" in arrays and int(arrays["unrolls"]) != record["unrolls"]:
        raise UserError(
            f"{path} has the arrays of {int(arrays['unrolls'])} unrolls, not of {record['unrolls']} as its "
            f"{RECORD_FILE} says: use a checkpoint that dcp wrote"
        )

    def leaf(path: Any, shape: Any) -> Any:
        if not shape.size:
            return jnp.zeros(shape.shape, shape.dtype)
        array = arrays[array_name(path)]
        is_key = jnp.issubdtype(shape.dtype, jax.dtypes.prng_key)
        return jax.random.wrap_key_data(jnp.array(array)) if is_key else array

    host = {name: record[name] for name in ("unrolls", "rows", "metrics", "diverged", "seconds")}
    return jax.tree_util.tree_map_with_path(leaf, shapes), HostState(**host)


def _record_of_this_run(path: Path, record: dict[str, Any], config: Config) -> dict[str, Any]:
    """Return the record if its version can be read and it belongs to this run; refuse it otherwise."""
    version = record.get("schema_version")
    if type(version) is not int or version != CHECKPOINT_SCHEMA_VERSION:
        remedy = "upgrade dcp" if isinstance(version, int) and version > CHECKPOINT_SCHEMA_VERSION else "train again"
        raise UserError(f"{path} has schema_version {shown(version)}, not {CHECKPOINT_SCHEMA_VERSION}: {remedy}")
    before = {**asdict(Settings()), "split_batches": UNSPLIT}  # values for fields that were added later
    ours, theirs = asdict(config), {**before, **record["config"]}
    for name in sorted(ours.keys() - set(fields_where(grows=True))):
        if theirs[name] != ours[name]:
            raise UserError(
                f"{path} was written with {name} {shown(theirs[name])}, but the run's config.json has "
                f"{shown(ours[name])}: restore config.json"
            )
    if wrong := _disagreement(record, config):
        raise UserError(f"{path / RECORD_FILE} contradicts itself ({wrong}): use a checkpoint that dcp wrote")
    return record


def _disagreement(record: dict[str, Any], config: Config) -> str | None:
    """Return a sentence if counters disagree with each other or with the plan, else None."""
    unrolls, rows, metrics, steps = record["unrolls"], record["rows"], record["metrics"], config.env_steps_per_unroll
    if unrolls > config.num_unrolls or record["env_steps"] != unrolls * steps:
        return f"{unrolls} unrolls of {config.num_unrolls} are not {record['env_steps']} steps"
    at = [row.get("env_steps", -1) / steps for row in rows]  # unrolls at each evaluation
    first = config.num_prefill_unrolls
    if any(before >= after for before, after in pairwise([first, *at])) or (at and at[-1] > unrolls):
        return "evaluations at steps that do not increase, or beyond its own"
    since = max(0, unrolls - (at[-1] if at else first))
    if len(metrics) != since:
        return f"metrics of {len(metrics)} iterations since the last evaluation, not of {since:g}"
    return None


def _require_planned(host: HostState, run: RunFolder, points: list[int]) -> None:
    """Refuse a checkpoint whose number of evaluations does not match its unrolls: the run would never end."""
    done = host.unrolls - run.config.num_prefill_unrolls
    if not bisect_left(points, done) <= len(host.rows) <= bisect_right(points, done):
        raise UserError(
            f"the checkpoint of {run.path} has {len(host.rows)} evaluations after {host.unrolls} unrolls, which its "
            "config does not plan: use a checkpoint that dcp wrote"
        )


# Why a run ended.

_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def why_it_ended(error: BaseException, folder: RunFolder) -> str | None:
    """Return a sentence why a run ended if neither its user nor a bug ended it, else None."""
    last = folder.saver.last  # environment steps at the newest checkpoint
    rest = f"the checkpoint at {last:,} steps is kept" if last is not None else "there was no checkpoint yet"
    if isinstance(error, NotFiniteError):
        see = ""
        with suppress(OSError, RunError):  # on a full disk, or in a folder that was moved, only the sentence is left
            see = f"see {folder.save_fault({**error.as_json(), 'last_checkpoint': last})}; "
        return f"{error}: {see}{rest}; try a lower learning rate or a larger batch in a new run"
    if isinstance(error, WorkerError):
        again = f"`{resume_command(folder.path)}`" if folder.is_worth_keeping else "it again"
        return f"{error}: {rest}; repair that and run {again}"
    if isinstance(error, Exception) and (lost := folder.lock.lost()):  # whichever write failed
        return lost
    if not isinstance(error, OSError) or error.errno is None:
        return None
    is_ours = str(error.filename or "").startswith((str(folder.path), str(folder.path.absolute())))
    if not is_ours and error.errno not in _WRITING:
        return None
    reason = f"cannot write to {folder.path} ({os.strerror(error.errno)})"
    if not folder.is_worth_keeping:
        return f"{reason}: nothing was kept; repair that and run it again"
    return f"{reason}: {rest}; repair that and run `{resume_command(folder.path)}`"
