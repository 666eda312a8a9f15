"""Does psi_g keep what its goals say? Its Jacobian's singular values, and how many dimensions it uses.

The actor's direction u and the gradient J^T u say the same where J_psi has full rank; where its smallest singular value
is near zero, moves in one direction of the goal's coordinates are hardly seen by psi.
"""

from typing import Any

import numpy as np

from dcp.policies.policy import DeployedPolicy
from dcp.statistics import clustered_mean, clustered_share
from dcp.theory.diagnostics.fields import jacobians, psi
from dcp.theory.diagnostics.visits import Visits

BLIND = 0.1  # the smallest singular value is below this part of the largest


def effective_rank(singular_values: np.ndarray) -> np.ndarray:
    """[..., R] -> [...]: exp of the entropy of the values' shares; R where all are equal, 1 where one is left alone"""
    shares = singular_values / np.maximum(singular_values.sum(axis=-1, keepdims=True), 1e-30)
    logs = np.log(np.where(shares > 0.0, shares, 1.0))
    return np.exp(-np.sum(shares * logs, axis=-1))


def measure(policy: DeployedPolicy, visits: Visits) -> dict[str, Any]:
    strength = np.linalg.svd(np.asarray(jacobians(policy, visits.achieved)), compute_uv=False)  # [K, min(D, G)]
    encoded = np.asarray(psi(policy, visits.achieved), float)  # [K, D]
    spread = np.linalg.svd(encoded - encoded.mean(axis=0), compute_uv=False)  # [min(K, D)]
    ratio = strength[:, -1] / np.maximum(strength[:, 0], 1e-30)
    return {
        "singular_values": [clustered_mean(column, visits.episode).as_json() for column in strength.T],
        "smallest_by_largest": clustered_mean(ratio, visits.episode, 0.0, 1.0).as_json(),
        "blind": clustered_share(ratio < BLIND, visits.episode).as_json(),
        "jacobian_rank": clustered_mean(effective_rank(strength), visits.episode).as_json(),
        "jacobian_full_rank": int(strength.shape[1]),
        "psi_rank": float(effective_rank(spread)),
        "psi_size": int(encoded.shape[1]),
        "psi_singular_values": (spread / np.sqrt(len(encoded))).tolist(),
    }
