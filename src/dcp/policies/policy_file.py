"""A policy as a file: named arrays and one JSON string. It cannot run code, and needs no environment to be loaded."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from dcp.components import build, code_in, describe, require_imported
from dcp.errors import UserError
from dcp.interfaces import Problem
from dcp.methods import table  # noqa: F401  fills the tables
from dcp.networks import MLP, init_actor
from dcp.policies.policy import DeployedPolicy, deployed_params
from dcp.run_folder import POLICY_FILE, located
from dcp.types import EnvSpec, MazeLayout, Params

POLICY_SCHEMA_VERSION = 2  # 2 stores the critic, the condition and the network as components
KINDS = ("network", "critic", "condition")  # the parts of a policy
_KEY = "dcp"  # the one metadata entry


def save_policy(path: str | Path, policy: DeployedPolicy, about: Mapping[str, Any]) -> Path:
    """Write the policy whole or not at all. `about` says where it comes from: env, method, and what else is of use."""
    path = Path(path)
    metadata = {
        "schema_version": POLICY_SCHEMA_VERSION,
        "spec": asdict(policy.spec),
        **{kind: describe(kind, getattr(policy, kind)) for kind in KINDS},
        "about": dict(about),
    }
    named = _named({"actor": policy.actor, "critic": policy.critic_params})
    arrays = {name: np.asarray(array, order="C") for name, array in named.items()}
    write_whole(path, save(arrays, {_KEY: json.dumps(metadata)}))
    return path


def load_policy(path: str | Path) -> DeployedPolicy:
    """From a policy file or a run folder; `zoo/<env>/<method>` names one that comes with the package."""
    return load_policy_and_about(path)[0]


def load_policy_and_about(path: str | Path) -> tuple[DeployedPolicy, dict[str, Any]]:
    """Both from one reading: a run that is being trained replaces its file at any moment."""
    path = _policy_file(path)
    arrays, metadata = _read(path)
    try:
        spec = _spec(metadata["spec"])
        stored = {kind: (metadata[kind]["name"], dict(metadata[kind]["settings"])) for kind in KINDS}
        names = [name for name, settings in stored.values() for name in code_in([name, settings])]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error!r}): train or copy it again") from error
    require_imported(names, path)
    try:
        parts = {kind: build(kind, name, settings) for kind, (name, settings) in stored.items()}
    except UserError as error:
        raise UserError(f"{path} has a part that cannot be made ({error}): train or copy it again") from error
    try:
        policy = _assembled(spec, parts, arrays)
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # UserError is a ValueError
        raise UserError(f"{path} is damaged ({error}): train or copy it again") from error
    return policy, dict(metadata.get("about", {}))


def policy_about(path: str | Path) -> dict[str, Any]:
    """What was said of the policy when it was saved: env, method and so on."""
    return dict(_read(_policy_file(path))[1].get("about", {}))


def write_whole(path: Path, content: bytes) -> None:
    """A reader finds the old file or the new one, never a half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # a power cut must not leave the name without the content
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _policy_file(path: str | Path) -> Path:
    path = located(path)
    if path.is_dir():
        path = path / POLICY_FILE
    if not path.is_file():
        raise UserError(f"no policy at {path}: name a {POLICY_FILE}, or the run folder that `dcp train` printed")
    return path


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        with safe_open(path, framework="numpy") as file:
            stored = (file.metadata() or {}).get(_KEY)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is no readable safetensors file ({error}): train or copy it again") from error
    if stored is None:
        raise UserError(f"{path} was not written by dcp: name a {POLICY_FILE} that `dcp train` wrote")
    try:
        metadata = json.loads(stored)
        version = int(metadata["schema_version"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} has damaged metadata ({error!r}): train or copy it again") from error
    if version < 1:
        raise UserError(f"{path} has schema {version}, which no dcp has written: train or copy it again")
    if version > POLICY_SCHEMA_VERSION:
        raise UserError(f"{path} has schema {version}, newer than {POLICY_SCHEMA_VERSION}: upgrade dcp to load it")
    if version == 1:
        try:
            return _from_1(arrays, metadata)
        except (LookupError, TypeError, AttributeError) as error:
            raise UserError(f"{path} is damaged ({error!r}): train or copy it again") from error
    return arrays, metadata


def _from_1(arrays: dict[str, np.ndarray], metadata: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Before parts could be a user's own: an MLP, the contrastive critic, and a condition without settings."""
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


def _spec(stored: dict[str, Any]) -> EnvSpec:
    values = dict(stored)
    values["goal_dims"] = tuple(values["goal_dims"])
    if values.get("maze") is not None:
        values["maze"] = MazeLayout(tuple(values["maze"]["rows"]), float(values["maze"]["scale"]))
    if values.get("maze_dims") is not None:
        values["maze_dims"] = tuple(values["maze_dims"])
    values["fixes"] = tuple(values.get("fixes", ()))  # files of before have none
    return EnvSpec(**values)


def _named(tree: Params) -> dict[str, Any]:
    """{"actor": {"out": {"bias": b}}} -> {"actor/out/bias": b}"""
    return {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _assembled(spec: EnvSpec, parts: dict[str, Any], arrays: dict[str, np.ndarray]) -> DeployedPolicy:
    """The policy of these parts. The arrays must be exactly those that the parts have, in any pytree.

    A policy may come without what serves training alone, such as psi_sa.
    """
    network, critic, condition = parts["network"], parts["critic"], parts["condition"]
    if len(spec.goal_dims) != spec.goal_size:
        raise ValueError(f"goal_dims {spec.goal_dims} are not {spec.goal_size} indices")
    size = condition.size(spec, critic.repr_dim)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0)))
    actor = jax.eval_shape(lambda keys: init_actor(network, keys[0], spec, size), keys)
    params = jax.eval_shape(lambda keys: critic.init(keys, Problem(spec, network)).params, keys)
    stored = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    wanted, wrong = {}, []
    for critic_params in (deployed_params(critic, params), params):
        like = {"actor": actor, "critic": critic_params}
        wanted = {name: (leaf.shape, leaf.dtype) for name, leaf in _named(like).items()}
        wrong = [name for name in sorted(wanted.keys() | stored.keys()) if wanted.get(name) != stored.get(name)]
        if not wrong:
            # The arrays stay NumPy's until they are used: starting a device takes as long as everything else here.
            found = jax.tree_util.tree_map_with_path(lambda path, _: arrays[_name(path)], like)
            return DeployedPolicy(spec, network, critic, condition, found["actor"], found["critic"])
    raise ValueError(f"array {wrong[0]} is {stored.get(wrong[0])}, not {wanted.get(wrong[0])}")
