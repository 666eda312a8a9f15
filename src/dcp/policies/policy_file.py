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

from dcp.critics.energies import ENERGIES
from dcp.errors import UserError
from dcp.methods.table import make_condition
from dcp.networks import ACTIVATIONS, Networks, NetworkShape
from dcp.policies.policy import DeployedPolicy
from dcp.run_folder import POLICY_FILE, located
from dcp.types import EnvSpec, MazeLayout, Params

POLICY_SCHEMA_VERSION = 1
_KEY = "dcp"  # the one metadata entry


def save_policy(path: str | Path, policy: DeployedPolicy, about: Mapping[str, Any]) -> Path:
    """Write the policy whole or not at all. `about` says where it comes from: env, method, and what else is of use."""
    path = Path(path)
    metadata = {
        "schema_version": POLICY_SCHEMA_VERSION,
        "spec": asdict(policy.spec),
        "condition": policy.condition.name,
        "networks": asdict(policy.networks.shape),
        "energy": policy.energy,
        "about": dict(about),
    }
    arrays = _flatten({"actor": policy.actor, "encoders": policy.encoders})
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
        networks = Networks(NetworkShape(**metadata["networks"]))
        condition, energy = make_condition(metadata["condition"]), metadata["energy"]
        if energy not in ENERGIES or networks.shape.activation not in ACTIVATIONS:
            raise ValueError("an energy or activation that is not known")
        params = _unflatten(arrays)
        _compare(params, networks, spec)
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # UserError is a ValueError
        raise UserError(f"{path} is damaged ({error}): train or copy it again") from error
    # The arrays stay NumPy's until they are used: starting a device takes as long as everything else here.
    policy = DeployedPolicy(networks, condition, spec, params["actor"], params["encoders"], energy)
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
    return arrays, metadata


def _spec(stored: dict[str, Any]) -> EnvSpec:
    values = dict(stored)
    values["goal_dims"] = tuple(values["goal_dims"])
    if values.get("maze") is not None:
        values["maze"] = MazeLayout(tuple(values["maze"]["rows"]), float(values["maze"]["scale"]))
    if values.get("maze_dims") is not None:
        values["maze_dims"] = tuple(values["maze_dims"])
    values["fixes"] = tuple(values.get("fixes", ()))  # files of before have none
    return EnvSpec(**values)


def _flatten(tree: Params, prefix: str = "") -> dict[str, np.ndarray]:
    """{"actor": {"out": {"bias": b}}} -> {"actor/out/bias": b}"""
    if not isinstance(tree, Mapping):
        return {prefix: np.asarray(tree, order="C")}
    inner = [_flatten(value, f"{prefix}/{name}" if prefix else name) for name, value in tree.items()]
    return {name: array for part in inner for name, array in part.items()}


def _unflatten(arrays: dict[str, np.ndarray]) -> Params:
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        *branches, leaf = path.split("/")
        node = tree
        for branch in branches:
            node = node.setdefault(branch, {})
        node[leaf] = array
    return tree


def _compare(params: Params, networks: Networks, spec: EnvSpec) -> None:
    """The arrays must be exactly those that the networks of the metadata have, and the sizes the environment's.

    A policy may come without psi_sa, which is the critic's alone.
    """
    actor, encoders = jax.eval_shape(lambda: networks.init(jax.random.key(0)))
    if "psi_sa" not in params["encoders"]:
        del encoders["psi_sa"]
    wanted = {name: (x.shape, x.dtype) for name, x in _leaves({"actor": actor, "encoders": encoders})}
    stored = {name: (x.shape, x.dtype) for name, x in _leaves(params)}
    for name in sorted(wanted.keys() | stored.keys()):
        if wanted.get(name) != stored.get(name):
            raise ValueError(f"array {name} is {stored.get(name)}, not {wanted.get(name)}")
    s = networks.shape
    sizes = (s.state_size, s.goal_size, s.action_size)
    if sizes != (spec.state_size, spec.goal_size, spec.action_size) or len(spec.goal_dims) != s.goal_size:
        raise ValueError("the networks' sizes are not the environment's")


def _leaves(tree: Params) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
