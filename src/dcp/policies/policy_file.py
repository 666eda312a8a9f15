"""Load policies that `save_policy` wrote. Loading runs no code and needs no environment."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
from msgspec import Meta, Struct, field
from safetensors import safe_open

from dcp.actor import init_actor
from dcp.components import TABLES, build
from dcp.errors import UserError, one_line, shown
from dcp.files import write_whole as write_whole
from dcp.files.run_folder import POLICY_FILE, located
from dcp.files.validation import MEGABYTE, About, FormatError, Name, Size, checked, open_regular, parse_json
from dcp.interfaces import Problem
from dcp.methods import table  # noqa: F401  fills the tables
from dcp.named_code import code_in, require_imported
from dcp.networks import init_scale
from dcp.policies.policy import (
    CHECKSUM,
    KINDS,
    METADATA_KEY,
    POLICY_SCHEMA_VERSION,
    DeployedPolicy,
    checksum,
    deployed_params,
)
from dcp.policies.policy import save_policy as save_policy
from dcp.types import EnvSpec, Params, array_name, named_arrays

MOST_BYTES = 2**31  # of a policy file
_DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL"}
_DTYPES |= {f"{kind}{bits}": f"{kind[0].upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}


def load_policy(path: str | Path) -> DeployedPolicy:
    """Load a policy file or a run folder's policy; `zoo/<env>/<method>` names one from the package."""
    return load_policy_and_about(path)[0]


def load_policy_and_about(path: str | Path) -> tuple[DeployedPolicy, dict[str, Any]]:
    """Return a policy and its metadata from one read, because a run in training may replace its file at any moment."""
    path = _policy_file(path)
    with _opened(path) as file:
        metadata = _metadata(path, file)
        try:
            headers = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            arrays = {name: _Array(tuple(h.get_shape()), h.get_dtype()) for name, h in headers.items()}
            spec = _spec(metadata["spec"])
            stored = {kind: checked(metadata.get(kind), _Part) for kind in KINDS}
            _require_bounded(stored, len(arrays))
        except (FormatError, LookupError) as error:
            raise _damaged(path, error) from error
        names = [name for part in stored.values() for name in code_in([part.name, part.settings])]
        require_imported(names, path)
        try:
            parts = {kind: _made(kind, part) for kind, part in stored.items()}
        except Exception as error:  # a user's part may raise anything
            sentence = f"{path} has a part that cannot be made ({one_line(error)}): train or copy it again"
            raise UserError(sentence) from error
        try:
            chunk = metadata.get("action_chunk", 1)
            like = _matching(spec, parts, arrays, chunk, metadata.get("scaled", False))  # before any array is read
            # They stay in NumPy until used, because starting a device takes as long as everything else here.
            read = {name: file.get_tensor(name) for name in arrays}
            _require_checksum(metadata, read)
            _require_finite(read)
        except Exception as error:
            raise _damaged(path, error) from error
    tree = jax.tree_util.tree_map_with_path(lambda path, _: read[array_name(path)], like)
    network, critic, condition = (parts[kind] for kind in KINDS)
    policy = DeployedPolicy(spec, network, critic, condition, tree["actor"], tree["critic"], chunk, tree["scale"])
    return policy, dict(metadata.get("about", {}))


def policy_about(path: str | Path) -> dict[str, Any]:
    """Return the metadata that was saved with the policy: env, method and so on."""
    path = _policy_file(path)
    with _opened(path) as file:
        return dict(_metadata(path, file).get("about", {}))


def _policy_file(path: str | Path) -> Path:
    path = located(path)
    if path.is_dir():
        path = path / POLICY_FILE
    if not path.is_file():
        raise UserError(f"no policy at {path}: name a {POLICY_FILE}, or the run folder that `dcp train` printed")
    return path


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is damaged ({one_line(error)}): train or copy it again")


def _opened(path: Path) -> Any:
    """Open the file, which reads its header alone; the arrays are read when the header has been checked."""
    try:
        open_regular(path, most=MOST_BYTES).close()
        return safe_open(path, framework="numpy")
    except OSError as error:
        reason = error.strerror or one_line(error)
        raise UserError(f"cannot read {path} ({reason}): name a policy that `dcp train` wrote") from error
    except Exception as error:  # safetensors' own
        sentence = f"{path} is not a readable safetensors file ({one_line(error)}): train or copy it again"
        raise UserError(sentence) from error


def _metadata(path: Path, file: Any) -> dict[str, Any]:
    """Return the metadata, with version, spec and about checked."""
    stored = (file.metadata() or {}).get(METADATA_KEY)
    if stored is None:
        raise UserError(f"{path} was not written by dcp: name a {POLICY_FILE} that `dcp train` wrote")
    try:
        if len(stored) > MEGABYTE:
            raise FormatError(f"{len(stored):,} characters")
        metadata = parse_json(stored)
        version = checked(metadata, _Version).schema_version
    except FormatError as error:
        raise UserError(f"{path} has damaged metadata ({error}): train or copy it again") from error
    if version < 2:
        raise UserError(f"{path} has schema {shown(version)}, which this dcp does not read: train or copy it again")
    if version > POLICY_SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema {shown(version)}, newer than {POLICY_SCHEMA_VERSION}: upgrade dcp to load it"
        )
    try:
        checked(metadata, _Metadata)
    except FormatError as error:
        raise _damaged(path, error) from error
    return metadata


class _Array(NamedTuple):
    """Hold what the header says of an array."""

    shape: tuple[int, ...]
    dtype: str


# Schemas of the metadata. The spec and the parts have their own: EnvSpec, and each part's fields.


class _Version(Struct):
    schema_version: int


class _Metadata(Struct):
    spec: dict[str, Any]
    action_chunk: Annotated[int, Meta(ge=1, le=10_000)] = 1
    scaled: bool = False
    about: About = field(default_factory=About)


class _Part(Struct):
    name: Name
    settings: dict[str, Any]


_METHODS = {"network": ("init", "apply"), "critic": ("init", "representation"), "condition": ("size", "__call__")}


def _made(kind: str, part: _Part) -> Any:
    """Build the part if its class has the methods of its kind, so that a file cannot build an unrelated class."""
    part_class = TABLES[kind].find(part.name)
    if missing := [name for name in _METHODS[kind] if not callable(getattr(part_class, name, None))]:
        raise UserError(f"{shown(part.name)} is not a {kind}: it has no {missing[0]}")
    return build(kind, part.name, part.settings)


def _require_checksum(metadata: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse a file whose checksum does not match, or stands under another name. Older files have none."""
    renamed = CHECKSUM not in metadata and any(re.fullmatch("[0-9a-f]{64}", str(value)) for value in metadata.values())
    if renamed or (CHECKSUM in metadata and metadata[CHECKSUM] != checksum(metadata, arrays)):
        raise FormatError("its checksum does not fit: a byte has changed since it was written")


def _require_finite(arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise FormatError(f"the weights {shown(name)} are not all finite")


def _require_bounded(parts: Mapping[str, _Part], arrays: int) -> None:
    """Refuse sizes that would take too long: an MLP has an array per layer, and nothing has 10,000 layers."""
    for kind, part in parts.items():
        layers = arrays if part.name == "mlp" else 10_000
        for name, value in part.settings.items():
            if isinstance(value, int) and abs(value) >= 2**31:
                raise FormatError(f"{kind}.{shown(name)} is {shown(value)}")
            if isinstance(value, int) and name == "depth" and value > layers:
                raise FormatError(f"{kind}.depth is {value}, but there are {arrays} arrays")


class _Sizes(Struct):
    """Check the ranges of an EnvSpec's numbers; EnvSpec itself checks the types."""

    name: Name
    state_size: Size
    goal_size: Size
    action_size: Size
    threshold: Annotated[float, Meta(ge=0, le=1e30)]
    episode_length: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    physics: Name = "none"
    control: Name = "joints"


def _spec(stored: dict[str, Any]) -> EnvSpec:
    checked(stored, _Sizes)
    spec = checked(stored, EnvSpec)  # older files have no physics and no fixes
    if unknown := sorted(stored.keys() - asdict(spec).keys()):
        raise FormatError(f"spec has {shown(unknown[0])}, which this dcp does not know")
    if len(spec.goal_dims) != spec.goal_size:
        raise FormatError(f"goal_dims are {len(spec.goal_dims)} indices, not {spec.goal_size}")
    if not all(0 <= index < spec.state_size for index in (*spec.goal_dims, *(spec.maze_dims or ()))):
        raise FormatError(f"goal_dims or maze_dims are not indices below {spec.state_size}")
    if spec.maze is not None:
        if not (spec.maze.rows and spec.maze.rows[0] and len({len(row) for row in spec.maze.rows}) == 1):
            raise FormatError("the maze's rows are not of one length")
        if not 0 < spec.maze.scale < 1e6:
            raise FormatError(f"the maze's scale is {spec.maze.scale}")
    return spec


@lru_cache(maxsize=16)  # tracing takes longer than everything else here
def _shapes(spec: EnvSpec, network: Any, critic: Any, condition: Any, chunk: int) -> tuple[Params, Params]:
    """Return the shapes of the actor's and the critic's parameters, without their values."""
    spec = spec.in_chunks(chunk)
    size = condition.size(spec, critic.repr_dim)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0)))
    actor = jax.eval_shape(lambda keys: init_actor(network, keys[0], spec, size), keys)
    return actor, jax.eval_shape(lambda keys: critic.init(keys, Problem(spec, network)).params, keys)


def _matching(spec: EnvSpec, parts: dict[str, Any], arrays: dict[str, _Array], chunk: int, scaled: bool) -> Params:
    """Return the tree of the parts' parameters. The file's arrays must be exactly these, in any pytree.

    Parameters that serve only training, such as psi_sa, may be missing.
    """
    actor, params = _shapes(spec, *(parts[kind] for kind in KINDS), chunk)
    scale = jax.eval_shape(lambda: init_scale("running", spec)) if scaled else ()
    stored = dict(arrays)
    of_parts, wrong = {}, []
    for critic_params in (deployed_params(parts["critic"], params), params):
        like = {"actor": actor, "critic": critic_params, "scale": scale}
        of_parts = {name: (leaf.shape, _DTYPES.get(str(leaf.dtype))) for name, leaf in named_arrays(like).items()}
        wrong = [name for name in sorted(of_parts.keys() | stored.keys()) if of_parts.get(name) != stored.get(name)]
        if not wrong:
            return like
    raise ValueError(f"array {wrong[0]} is {stored.get(wrong[0])}, not {of_parts.get(wrong[0])}")
