"""jax.export's artefact and the metadata in one zip file. JAX traces the policy: no network is described here."""

import io
import json
import zipfile
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from dcp.deploy.exported import STABLEHLO_ARTEFACT, STABLEHLO_METADATA
from dcp.policies.policy import DeployedPolicy
from dcp.types import Array

PLATFORMS = ("cpu", "cuda", "tpu")
_DATE = (1980, 1, 1, 0, 0, 0)  # the same policy is the same file


def stablehlo_bytes(policy: DeployedPolicy, metadata: dict[str, Any]) -> bytes:
    def action(state: Array, goal: Array) -> Array:
        return policy.act((), state, goal)[1]

    (batch,) = export.symbolic_shape("batch")
    sizes = (policy.spec.state_size, policy.spec.goal_size)
    inputs = [jax.ShapeDtypeStruct((batch, size), jnp.float32) for size in sizes]
    artefact = export.export(jax.jit(action), platforms=PLATFORMS)(*inputs)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(STABLEHLO_METADATA, _DATE), json.dumps(metadata))
        archive.writestr(zipfile.ZipInfo(STABLEHLO_ARTEFACT, _DATE), artefact.serialize())
    return file.getvalue()
