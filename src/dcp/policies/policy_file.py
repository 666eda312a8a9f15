"""Load policies that `saving` wrote. Loading runs no code and needs no environment."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
from msgspec import Meta, Struct, field
from safetensors import safe_open

from dcp.actor import init_actor
from dcp.components import TABLES, build
from dcp.errors import UserError, one_line, shown
from dcp.files.run_folder import POLICY_FILE, located
from dcp.files.validation import MEGABYTE, About, FormatError, Name, Size, checked, parse_json
from dcp.files.writing import write_whole as write_whole
from dcp.interfaces import Problem
from dcp.methods import table  # noqa: F401  fills the tables
from dcp.named_code import code_in, require_imported
from dcp.networks import MLP
from dcp.policies.policy import DeployedPolicy, deployed_params
from dcp.policies.saving import (
    CHECKSUM,
    KINDS,
    METADATA_KEY,
    POLICY_SCHEMA_VERSION,
    array_name,
    checksum,
    named_arrays,
)
from dcp.policies.saving import save_policy as save_policy
from dcp.scaling import init_scale
from dcp.types import EnvSpec, Params


def load_policy(path: str | Path) -> DeployedPolicy:
    """Load a policy file or a run folder's policy; `zoo/<env>/<method>` names one from the package."""
    return load_policy_and_about(path)[0]


def load_policy_and_about(path: str | Path) -> tuple[DeployedPolicy, dict[str, Any]]:
    """Return a policy and its metadata from one read, because a run in training may replace its file at any moment."""
    path = _policy_file(path)
    arrays, metadata = _read(path)
    try:
        spec = _spec(metadata["spec"])
        stored = {kind: checked(metadata.get(kind), _Part) for kind in KINDS}
        _require_bounded(stored, arrays)
        _require_finite(arrays)
    except (FormatError, LookupError) as error:
        raise UserError(f"{path} is damaged ({error}): train or copy it again") from error
    names = [name for part in stored.values() for name in code_in([part.name, part.settings])]
    require_imported(names, path)
    try:
        parts = {kind: _made(kind, part) for kind, part in stored.items()}
    except Exception as error:  # a user's part may raise anything
        raise UserError(f"{path} has a part that cannot be made ({one_line(error)}): train or copy it again") from error
    try:
        policy = _assembled(spec, parts, arrays, metadata.get("action_chunk", 1), metadata.get("scaled", False))
    except Exception as error:
        raise UserError(f"{path} is damaged ({one_line(error)}): train or copy it again") from error
    return policy, dict(metadata.get("about", {}))


def policy_about(path: str | Path) -> dict[str, Any]:
    """Return the metadata that was saved with the policy: env, method and so on."""
    return dict(_read(_policy_file(path))[1].get("about", {}))


def _policy_file(path: str | Path) -> Path:
    path = located(path)
    if path.is_dir():
        path = path / POLICY_FILE
    if not path.is_file():
        raise UserError(f"no policy at {path}: name a {POLICY_FILE}, or the run folder that `dcp train` printed")
    return path


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays, and the metadata in the current schema with version, checksum, spec and about checked."""
    try:
        with safe_open(path, framework="numpy") as file:
            stored = (file.metadata() or {}).get(METADATA_KEY)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # safetensors' errors, and NumPy's for an unknown type
        raise UserError(
            f"{path} is not a readable safetensors file ({one_line(error)}): train or copy it again"
        ) from error
    if stored is None:
        raise UserError(f"{path} was not written by dcp: name a {POLICY_FILE} that `dcp train` wrote")
    try:
        if len(stored) > MEGABYTE:
            raise FormatError(f"{len(stored):,} characters")
        metadata = parse_json(stored)
        version = checked(metadata, _Version).schema_version
    except FormatError as error:
        raise UserError(f"{path} has damaged metadata ({error}): train or copy it again") from error
    if version < 1:
        raise UserError(f"{path} has schema {shown(version)}, which no dcp has written: train or copy it again")
    if version > POLICY_SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema {shown(version)}, newer than {POLICY_SCHEMA_VERSION}: upgrade dcp to load it"
        )
    try:
        _require_checksum(metadata, arrays)
        checked(metadata, _Metadata)
        return (arrays, metadata) if version > 1 else _from_1(arrays, metadata)
    except FormatError as error:
        raise UserError(f"{path} is damaged ({error}): train or copy it again") from error


# Schemas of the metadata. The spec and the parts have their own: EnvSpec, and each part's fields.


class _Version(Struct):
    schema_version: int


class _Metadata(Struct):
    spec: dict[str, Any]
    action_chunk: Annotated[int, Meta(ge=1, le=10_000)] = 1
    scaled: bool = False
    about: About = field(default_factory=About)


class _Networks1(Struct):
    repr_dim: int


class _Metadata1(Struct):
    networks: _Networks1
    energy: Name
    condition: Name


class _Part(Struct):
    name: Name
    settings: dict[str, Any]


_METHODS = {"network": ("init", "apply"), "critic": ("init", "representation"), "condition": ("size", "__call__")}


def _made(kind: str, part: _Part) -> Any:
    """Build the part if its class has the methods of its kind, so that a file cannot build an unrelated class."""
    made = TABLES[kind].find(part.name)
    if missing := [name for name in _METHODS[kind] if not callable(getattr(made, name, None))]:
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


def _require_bounded(parts: Mapping[str, _Part], arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse sizes that would take too long: an MLP has an array per layer, and nothing has 10,000 layers."""
    for kind, part in parts.items():
        layers = len(arrays) if part.name == "mlp" else 10_000
        for name, value in part.settings.items():
            if isinstance(value, int) and abs(value) >= 2**31:
                raise FormatError(f"{kind}.{shown(name)} is {shown(value)}")
            if isinstance(value, int) and name == "depth" and value > layers:
                raise FormatError(f"{kind}.depth is {value}, but there are {len(arrays)} arrays")


def _from_1(arrays: dict[str, np.ndarray], metadata: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Convert schema 1, which had only an MLP, the contrastive critic, and a condition without settings."""
    checked(metadata, _Metadata1)
    shape = metadata["networks"]
    mlp = {name: shape[name] for name in MLP.from_config if name in shape}
    critic = {"energy": metadata["energy"], "repr_dim": shape["repr_dim"]}
    parts = {
        "network": {"name": "mlp", "settings": mlp},
        "critic": {"name": "contrastive", "settings": critic},
        "condition": {"name": metadata["condition"], "settings": {}},
    }
    renamed = {f"critic{name.removeprefix('encoders')}" if name.startswith("encoders/") else name: array
               for name, array in arrays.items()}  # fmt: skip
    return renamed, {**metadata, **parts}


class _Sizes(Struct):
    """Check the ranges of an EnvSpec's numbers; EnvSpec itself checks the types."""

    name: Name
    state_size: Size
    goal_size: Size
    action_size: Size
    threshold: Annotated[float, Meta(ge=0, le=1e30)]
    episode_length: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    physics: Name = "none"


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


def _assembled(
    spec: EnvSpec, parts: dict[str, Any], arrays: dict[str, np.ndarray], chunk: int, scaled: bool
) -> DeployedPolicy:
    """Return the policy of these parts. The arrays must be exactly the parts' own, in any pytree.

    Parameters that serve only training, such as psi_sa, may be missing.
    """
    network, critic, condition = parts["network"], parts["critic"], parts["condition"]
    actor, params = _shapes(spec, network, critic, condition, chunk)
    scale = jax.eval_shape(lambda: init_scale("running", spec)) if scaled else ()
    stored = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    wanted, wrong = {}, []
    for critic_params in (deployed_params(critic, params), params):
        like = {"actor": actor, "critic": critic_params, "scale": scale}
        wanted = {name: (leaf.shape, leaf.dtype) for name, leaf in named_arrays(like).items()}
        wrong = [name for name in sorted(wanted.keys() | stored.keys()) if wanted.get(name) != stored.get(name)]
        if not wrong:
            # The arrays stay in NumPy until used, because starting a device takes as long as everything else here.
            tree = jax.tree_util.tree_map_with_path(lambda path, _: arrays[array_name(path)], like)
            parameters = (tree["actor"], tree["critic"], chunk, tree["scale"])
            return DeployedPolicy(spec, network, critic, condition, *parameters)
    raise ValueError(f"array {wrong[0]} is {stored.get(wrong[0])}, not {wanted.get(wrong[0])}")
