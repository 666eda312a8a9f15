"""The .npz of `deploy/numpy_policy.py`: the layers' arrays, and one JSON string."""

import io
import json
from typing import Any

import numpy as np

from dcp.deploy.export.layers import NORM_EPSILON, Layer, network_layers
from dcp.deploy.numpy_policy import ACTIVATIONS, CONDITIONS, METADATA
from dcp.errors import UserError
from dcp.policies.policy import DeployedPolicy


def numpy_bytes(policy: DeployedPolicy, metadata: dict[str, Any]) -> bytes:
    condition, activation = policy.condition.name, policy.networks.shape.activation
    for kind, name, table in (("condition", condition, CONDITIONS), ("activation", activation, ACTIVATIONS)):
        if name not in table:
            raise UserError(f"the NumPy form does not know the {kind} {name!r}: choose --format stablehlo")
    walked = network_layers(policy)
    networks = {name: walked[name] for name in CONDITIONS[condition].networks}
    said = {
        **metadata,
        "norm_epsilon": NORM_EPSILON,
        "networks": {n: [_about(x) for x in w] for n, w in networks.items()},
    }
    arrays = {METADATA: np.array(json.dumps(said))}
    for name, layers in networks.items():
        for number, layer in enumerate(layers):
            arrays |= {f"{name}/{number}/{part}": array for part, array in _arrays(layer).items()}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _about(layer: Layer) -> dict[str, Any]:
    return {"norm": layer.norm is not None, "activation": layer.activation, "residual": layer.residual}


def _arrays(layer: Layer) -> dict[str, np.ndarray]:
    norm = {} if layer.norm is None else {"scale": layer.norm[0], "shift": layer.norm[1]}
    return {"kernel": layer.kernel, "bias": layer.bias, **norm}
