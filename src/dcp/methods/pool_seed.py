"""Read seeds for the pool, states without actions, from a file. Loading a file never runs code."""

import csv
import hashlib
import io
import zipfile
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dcp.config import Config, Settings
from dcp.errors import UserError, shown
from dcp.files.experience import is_experience, read_experience
from dcp.files.validation import open_regular
from dcp.methods.table import COMMANDS, METHODS, make_part
from dcp.types import Array, Batch, EnvSpec

LARGEST = 100_000_000  # bytes, compressed or not: enough for thousands of pools of the largest state
FORMS = "an NPZ file with an array `states` or `goals`, a CSV of numbers, or a file of --data"


@dataclass(frozen=True)
class PoolSeed:
    """Hold the file's content, checked against an environment."""

    goals: np.ndarray  # [K, G]
    states: np.ndarray | None  # [K, S]; None if the file holds only goals
    sha256: str


@dataclass(frozen=True)
class Seeds:
    """Hold what one run uses of the file."""

    pool: np.ndarray  # [slots, G]: never overwritten
    critic: np.ndarray | None  # [K, S]: each also once in the critic's data
    sha256: str


def read_pool_seed(path: str, spec: EnvSpec) -> PoolSeed:
    """Return the file's rows, or raise UserError with one sentence on what is wrong."""
    if is_experience(path):  # also has actions, which nobody needs here
        experience = read_experience(path, spec)
        states = np.asarray(experience.rows.state)
        return PoolSeed(spec.achieved(states), states, experience.sha256)
    content = _content(path)
    is_npz = zipfile.is_zipfile(io.BytesIO(content))
    rows, is_state = (_from_npz if is_npz else _from_csv)(path, content, spec)  # float64
    if not len(rows):
        raise UserError(f"pool_seed {shown(path)} holds no state: give at least one")
    if not np.all(np.abs(rows) <= np.finfo(np.float32).max):  # a comparison with NaN is False
        raise UserError(f"pool_seed {shown(path)} holds a NaN, an infinity or a number beyond 3.4e38: repair it")
    rows = rows.astype(np.float32)
    goals = spec.achieved(rows) if is_state else rows
    return PoolSeed(goals, rows if is_state else None, hashlib.sha256(content).hexdigest())


def read_seeds(config: Config, spec: EnvSpec) -> Seeds:
    """Return what this resolved config uses of its seed file."""
    assert config.pool_seed is not None
    file = read_pool_seed(config.pool_seed, spec)
    slots = seeded_slots(config.pool_size, config.pool_seed_fraction or 0.0)
    critic = None
    if config.pool_seed_in_critic and file.states is not None:
        critic = file.states[np.unique(row_of_each_slot(len(file.states), slots))]
    return Seeds(file.goals[row_of_each_slot(len(file.goals), slots)], critic, file.sha256)


def seeded_slots(pool_size: int, fraction: float) -> int:
    return round(fraction * pool_size)


def row_of_each_slot(rows: int, slots: int) -> np.ndarray:
    """Return the row of each slot [slots], spread evenly over the file: two rows' counts differ by at most one."""
    return np.arange(slots) * rows // slots


def _content(path: str) -> bytes:
    try:
        with open_regular(path) as file:
            content = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no name of a file"
        raise UserError(f"cannot read pool_seed {shown(path)} ({reason}): give {FORMS}") from error
    if len(content) > LARGEST:
        raise UserError(f"pool_seed {shown(path)} is larger than {LARGEST // 10**6} MB: keep fewer states")
    return content


def _from_npz(path: str, content: bytes, spec: EnvSpec) -> tuple[np.ndarray, bool]:
    wrong = f"pool_seed {shown(path)} is not a readable NPZ file"
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(member.file_size for member in archive.infolist()) > LARGEST:
                raise UserError(
                    f"pool_seed {shown(path)} unpacks to more than {LARGEST // 10**6} MB: keep fewer states"
                )
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            names = [name for name in ("states", "goals") if name in arrays.files]
            if len(names) != 1:
                raise UserError(f"pool_seed {shown(path)} must hold one array, `states` or `goals`: nothing else")
            rows = arrays[names[0]]
    except UserError:
        raise
    except Exception as error:  # zip, zlib, a damaged header, a pickled object: NumPy raises many kinds
        raise UserError(f"{wrong} ({type(error).__name__}): write it with numpy.savez, numbers only") from error
    columns = spec.state_size if names[0] == "states" else spec.goal_size
    if rows.ndim != 2 or rows.shape[1] != columns or rows.dtype.kind not in "fiu":
        raise UserError(
            f"`{names[0]}` of pool_seed {shown(path)} is {rows.dtype}{list(rows.shape)}: "
            f"{spec.name} needs numbers of shape [K, {columns}]"
        )
    return rows.astype(np.float64), names[0] == "states"


def _from_csv(path: str, content: bytes, spec: EnvSpec) -> tuple[np.ndarray, bool]:
    """Return the rows and whether they are states, by the number of columns. A first line of text is a header."""
    try:
        lines = [line for line in csv.reader(io.StringIO(content.decode("utf-8-sig"))) if line]
    except (ValueError, csv.Error) as error:
        raise UserError(f"pool_seed {shown(path)} cannot be read ({type(error).__name__}): give {FORMS}") from error
    rows = [_numbers(line) for line in lines]
    for place, row in enumerate(rows[1:], 1):
        if row is None:
            text = shown(",".join(lines[place]))
            raise UserError(f"pool_seed {shown(path)} cannot be read: {text} is not a line of numbers; give {FORMS}")
    numbers = [row for row in rows if row is not None]  # all but a header
    widths = {len(row) for row in numbers} or {spec.state_size}
    if len(widths) > 1 or not widths <= {spec.state_size, spec.goal_size}:
        raise UserError(
            f"pool_seed {shown(path)} has {' and '.join(map(str, sorted(widths)[:4]))} columns: {spec.name} needs "
            f"{spec.state_size} for states or {spec.goal_size} for goals"
        )
    width = widths.pop()
    return np.asarray(numbers, np.float64).reshape(-1, width), width == spec.state_size


def _numbers(line: list[str]) -> list[float] | None:
    """Return a line's numbers; None for a line of text."""
    try:
        return [float(cell) for cell in line]
    except ValueError:
        return None


def seed_violations(settings: Settings, spec: EnvSpec) -> list[str]:
    """Return in one sentence why a run cannot use its file, if it cannot."""
    assert settings.pool_seed is not None
    if not make_part("command", settings).has_pool:
        pooled = ", ".join(name for name, method in METHODS.items() if COMMANDS.find(method.command).has_pool)
        return [f"{settings.method} has no pool to seed: leave pool_seed out, or choose one of {pooled}"]
    try:
        file = read_pool_seed(settings.pool_seed, spec)
    except UserError as error:
        return [str(error)]
    if settings.pool_seed_sha256 not in (None, file.sha256):
        return [
            f"pool_seed {shown(settings.pool_seed)} is not the file that this run began with: "
            "restore it, or start another run"
        ]
    if settings.pool_seed_in_critic and file.states is None:
        return [
            f"pool_seed {shown(settings.pool_seed)} holds only goals, and pool_seed_in_critic needs whole states "
            f"[K, {spec.state_size}]: give these, or leave it out"
        ]
    return []


# Seeds in the critic's data.


def sample_seed_states(states: Array, updates: int, share: int, key: Array) -> Array:
    """Draw states [K, S] for each update: [updates, share, S]. None twice in an update: two equal pairs would be each
    other's negatives."""
    random_scores = jax.random.uniform(key, (updates, states.shape[0]))
    return states[jax.lax.top_k(random_scores, share)[1]]


def inject_stationary_pairs(batch: Batch, states: Array, spec: EnvSpec) -> Batch:
    """Replace the first pairs of [B, ...] by pairs of these states [M, S]: no action, and the future is the present.

    That is what a hindsight goal of an episode at rest is, whichever later step it is taken from. Without momentum
    (point_soccer) it is the exact truth; for a simulated body it is as true as the body stands still.
    """
    num, achieved = states.shape[0], spec.achieved(states)  # [M, G]
    stationary: dict[str, Any] = {
        "state": states,
        "action": 0.0,
        "commanded_goal": achieved,
        "future_goal": achieved,
        "future_steps": 1,
        "next_state": states,
        "hit_time": 0,
        "reward": 1.0,
        "occupancy": 1.0,
        **dict.fromkeys(("valid", "has_next", "hit", "occupancy_seen"), True),
        **dict.fromkeys(("terminal", "falls"), False),
    }
    fields = {name: array for name, array in batch._asdict().items() if array is not None}
    if batch.goal_sequence is not None:
        stationary["goal_sequence"] = jnp.tile(achieved, (1, batch.goal_sequence.shape[-1] // spec.goal_size))
    return Batch(**{name: array.at[:num].set(stationary[name]) for name, array in fields.items()})
