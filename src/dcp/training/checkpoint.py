"""The whole run as a checkpoint, and back: arrays through Orbax, the rest as JSON. Neither can hold code."""

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dcp import hosts
from dcp.config import Config, Settings
from dcp.errors import UserError
from dcp.training import checkpoint_files as files
from dcp.training.folder import UNSPLIT, machine, versions
from dcp.training.hosts import pieces, spread
from dcp.training.loop import Moment
from dcp.training.stages import Stages
from dcp.training.trainer import RunState

CHECKPOINT_SCHEMA_VERSION = 1
_MAY_CHANGE = {"steps", "num_evals"}  # a run may be trained longer
# What is no array, and of which kind.
_RECORD = {
    "env_steps": int,
    "unrolls": int,
    "rows": list,  # those of metrics.csv
    "metrics": list,  # one an iteration since the last evaluation
    "diverged": int,
    "seconds": float,
    "arrays": dict,  # name -> type and shape
    "config": dict,
    "versions": dict,
    "machine": dict,
}


class Saver:
    """Writes moments in the background; training goes on as soon as their arrays are copied.

    An error of the writing surfaces at the next call.
    """

    def __init__(self, folder: Path, config: Config):
        self.folder, self._config = folder, config
        self.last: int | None = None  # environment steps at the newest checkpoint that is whole
        self._copies: dict[str, np.ndarray] = {}  # used again: fresh memory costs more than the copying
        self._thread = ThreadPoolExecutor(1, "dcp-checkpoint")
        self._thread.submit(_orbax)  # its import takes a second, while the programs are compiled
        self._writing: Future[None] | None = None

    def save(self, moment: Moment) -> None:
        self.wait()
        arrays = self._copied(moment.run)
        record = _record(moment, self._config, arrays)
        draft = files.draft(self.folder, files.name(moment.unrolls, len(moment.rows)))
        files.require_room(draft, sum(array.nbytes for array in arrays.values()))
        self._writing = self._thread.submit(self._write, draft, arrays, record)

    def check(self) -> None:
        """Raise what went wrong in the background, if anything did."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def close(self) -> None:
        """Without an error of its own: for the end, whatever it was."""
        self._thread.shutdown()  # what was begun ends first
        files.remove_drafts(self.folder)

    def _copied(self, run: RunState) -> dict[str, np.ndarray]:
        """Every array by its place in the tree, on the host. The next unroll reuses the memory of the originals."""
        for name, plain in plain_arrays(run):
            if name not in self._copies:
                self._copies[name] = np.empty(plain.shape, plain.dtype)
            for where, what in pieces(plain):
                self._copies[name][where] = what
        return self._copies

    def _write(self, draft: Path, arrays: dict[str, np.ndarray], record: dict[str, Any]) -> None:
        ocp = _orbax()
        as_they_are = ocp.type_handlers.NumpyHandler(deepcopy_host_arrays=False)
        registry = ocp.type_handlers.create_type_handler_registry((np.ndarray, as_they_are))
        handler = ocp.PyTreeCheckpointHandler(  # floats hardly can be compressed
            use_compression=False, type_handler_registry=registry, **_alone(ocp)
        )
        with ocp.Checkpointer(handler, **_alone(ocp)) as writer:
            writer.save((draft / files.STATE_DIR).absolute(), args=ocp.args.PyTreeSave(arrays))
        files.publish(draft, record)
        self.last = record["env_steps"]


def load(path: Path, config: Config, stages: Stages) -> Moment:
    """A verified checkpoint's moment, laid out over the devices as the stages would have it.

    Raises `DamagedError` where its bytes are not those that were written, `UserError` where it is another run's.
    """
    files.verify(path)
    record = check_record(path, files.read_record(path), config)
    like = stages.shapes()
    wanted = {name: _describe(leaf) for name, leaf in _named(like) if leaf.size}
    for name in sorted(wanted.keys() | record["arrays"].keys()):
        if wanted.get(name) != record["arrays"].get(name):
            raise UserError(
                f"{path} holds {name} as {record['arrays'].get(name)}, where this version of dcp has "
                f"{wanted.get(name)}: continue the run with the dcp that began it ({record['versions'].get('dcp')})"
            )
    arrays = read_arrays(path / files.STATE_DIR, wanted)
    if {name: _describe(array) for name, array in arrays.items()} != wanted:
        raise UserError(f"{path} holds other arrays than its {files.RECORD_FILE} says: use a checkpoint that dcp wrote")
    kept = {name: record[name] for name in ("unrolls", "rows", "metrics", "diverged", "seconds")}
    if hosts.count() > 1:
        hosts.tell({"moment": kept})
        spread(arrays)
    return moment_of(arrays, kept, stages)


def moment_of(arrays: dict[str, np.ndarray], kept: dict[str, Any], stages: Stages) -> Moment:
    return Moment(stages.place(_from_arrays(arrays, stages.shapes())), **kept)


def empty_arrays(stages: Stages) -> dict[str, np.ndarray]:
    """Room for all that a checkpoint of this run holds."""
    plain = {name: jax.eval_shape(_plain, leaf) for name, leaf in _named(stages.shapes()) if leaf.size}
    return {name: np.empty(leaf.shape, leaf.dtype) for name, leaf in plain.items()}


def plain_arrays(run: RunState) -> Iterator[tuple[str, jax.Array]]:
    """What of a run goes into a checkpoint. Orbax refuses empty arrays."""
    return ((name, _plain(leaf)) for name, leaf in _named(run) if leaf.size)


def check_record(path: Path, record: dict[str, Any], config: Config) -> dict[str, Any]:
    """The record, if it is of a version that can be read and of this very run."""
    version = record.get("schema_version") if isinstance(record, dict) else None
    if version != CHECKPOINT_SCHEMA_VERSION:
        remedy = "upgrade dcp" if isinstance(version, int) and version > CHECKPOINT_SCHEMA_VERSION else "train again"
        raise UserError(f"{path} has schema_version {version!r}, not {CHECKPOINT_SCHEMA_VERSION}: {remedy}")
    wrong = [name for name, kind in _RECORD.items() if not isinstance(record.get(name), kind)]
    if wrong:
        raise UserError(f"{path / files.RECORD_FILE} has no proper {wrong[0]!r}: use a checkpoint that dcp wrote")
    before = {**asdict(Settings()), "split_batches": UNSPLIT}  # fields that came later: what was done without them
    ours, theirs = asdict(config), {**before, **record["config"]}
    for name in sorted(ours.keys() - _MAY_CHANGE):
        if theirs[name] != ours[name]:
            raise UserError(
                f"{path} was written with {name} {theirs[name]!r}, but the run's config.json has {ours[name]!r}: "
                "restore config.json"
            )
    return record


def _from_arrays(arrays: dict[str, np.ndarray], like: RunState) -> RunState:
    def leaf(path: Any, abstract: Any) -> Any:
        if not abstract.size:
            return jnp.zeros(abstract.shape, abstract.dtype)
        array = arrays[_name(path)]
        if jnp.issubdtype(abstract.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(jnp.array(array))
        return array

    return jax.tree_util.tree_map_with_path(leaf, like)


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    ocp = _orbax()
    plain = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**_alone(ocp)), **_alone(ocp)) as reader:
        try:
            return reader.restore(path.absolute(), args=ocp.args.PyTreeRestore(restore_args=plain))
        except Exception as error:  # Orbax's and TensorStore's have no common kind
            raise files.DamagedError(f"its arrays cannot be read: {' '.join(str(error).split())[:200]}") from error


def _alone(ocp: Any) -> dict[str, Any]:
    """Among several hosts this one reads and writes by itself: Orbax would have all meet for it, in programs' midst."""
    if hosts.count() == 1:
        return {}
    here = hosts.index()
    return {"multiprocessing_options": ocp.options.MultiprocessingOptions(here, {here}, "dcp")}


def _record(moment: Moment, config: Config, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        "schema_version": CHECKPOINT_SCHEMA_VERSION,
        "env_steps": moment.unrolls * config.env_steps_per_unroll,
        "unrolls": moment.unrolls,
        "rows": [dict(row) for row in moment.rows],
        "metrics": [dict(row) for row in moment.metrics],
        "diverged": moment.diverged,
        "seconds": moment.seconds,
        "arrays": {name: _describe(array) for name, array in arrays.items()},
        "config": asdict(config),
        "versions": versions(),
        "machine": machine(),
    }


def _named(run: RunState) -> list[tuple[str, Any]]:
    return [(_name(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(run)]


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _plain(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _describe(leaf: Any) -> str:
    """float32[512,29]"""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return f"{np.dtype(leaf.dtype).name}[{','.join(map(str, leaf.shape))}]"


def _orbax() -> Any:
    import orbax.checkpoint

    logging.getLogger("absl").setLevel(logging.CRITICAL)  # it tells the console what our caller will
    return orbax.checkpoint
