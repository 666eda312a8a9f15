"""The networks of a policy as lists of plain layers: what the ONNX and the NumPy form are written from.

Its one job is to say what `networks/mlp.py` computes without Flax. `write` compares every file with the policy itself,
so that a change there that is forgotten here cannot leave this package.
"""

from typing import NamedTuple

import flax.linen as nn
import numpy as np

from dcp.networks import NetworkShape
from dcp.policies.policy import DeployedPolicy
from dcp.types import Params

NORM_EPSILON = float(nn.LayerNorm.epsilon)


class Layer(NamedTuple):
    """Dense, then LayerNorm, then the activation, then the residual connection."""

    kernel: np.ndarray  # [in, out]
    bias: np.ndarray  # [out]
    norm: tuple[np.ndarray, np.ndarray] | None  # scale [out], shift [out]
    activation: str | None
    residual: bool  # adds what the last such layer, or the first layer, gave


def network_layers(policy: DeployedPolicy) -> dict[str, list[Layer]]:
    """By name: the actor (its mean alone) and psi_g."""
    *hidden, last = _mlp_layers(policy.networks.shape, policy.actor)
    size = policy.spec.action_size
    mean = last._replace(kernel=last.kernel[:, :size], bias=last.bias[:size])  # the other half is the log std
    return {"actor": [*hidden, mean], "psi_g": _mlp_layers(policy.networks.shape, policy.encoders["psi_g"])}


def _mlp_layers(shape: NetworkShape, params: Params) -> list[Layer]:
    hidden = [_hidden(shape, params, number) for number in range(shape.depth)]
    return [*hidden, Layer(*_dense(params["out"]), None, None, False)]


def _hidden(shape: NetworkShape, params: Params, number: int) -> Layer:
    norm = None
    if shape.layer_norm:
        stored = params[f"norm_{number}"]
        norm = (np.asarray(stored["scale"]), np.asarray(stored["bias"]))
    residual = number > 0 and shape.residual_every > 0 and number % shape.residual_every == 0
    return Layer(*_dense(params[f"hidden_{number}"]), norm, shape.activation, residual)


def _dense(params: Params) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(params["kernel"]), np.asarray(params["bias"])
