"""Save policies as named arrays and one JSON string. `policy_file` loads them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save

from dcp.components import describe
from dcp.files.writing import write_whole
from dcp.policies.policy import DeployedPolicy
from dcp.types import Params

POLICY_SCHEMA_VERSION = 4  # 2 stores the parts as components; 3 has action chunks; 4 has a scale
KINDS = ("network", "critic", "condition")  # the parts of a policy
METADATA_KEY = "dcp"  # the only metadata entry, because safetensors writes several in no fixed order
CHECKSUM = "sha256"


def save_policy(path: str | Path, policy: DeployedPolicy, about: Mapping[str, Any]) -> Path:
    """Write the policy completely or not at all. `about` says where it comes from: env, method, and more."""
    path = Path(path)
    metadata: dict[str, Any] = {
        "schema_version": 4 if policy.scale else 3 if policy.action_chunk > 1 else 2,  # an older dcp reads what it can
        "spec": {name: value for name, value in asdict(policy.spec).items() if name != "action_chunk"},
        **{kind: describe(kind, getattr(policy, kind)) for kind in KINDS},
        "about": dict(about),
        **({"action_chunk": policy.action_chunk} if policy.action_chunk > 1 else {}),
        **({"scaled": True} if policy.scale else {}),
    }
    if policy.spec.scale is None:
        del metadata["spec"]["scale"]  # an older dcp does not know it
    named = named_arrays({"actor": policy.actor, "critic": policy.critic_params, "scale": policy.scale})
    arrays = {name: np.asarray(array, order="C") for name, array in named.items()}
    metadata[CHECKSUM] = checksum(json.loads(json.dumps(metadata)), arrays)  # as JSON returns it: tuples become lists
    write_whole(path, save(arrays, {METADATA_KEY: json.dumps(metadata)}))
    return path


def checksum(metadata: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of the metadata, without the checksum itself, and of every array with its name and shape."""
    content = {name: value for name, value in metadata.items() if name != CHECKSUM}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def named_arrays(tree: Params) -> dict[str, Any]:
    """Flatten a tree to names: {"actor": {"out": {"bias": b}}} -> {"actor/out/bias": b}."""
    return {array_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def array_name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
