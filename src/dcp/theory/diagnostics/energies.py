"""Is the critic's own distance, -energy(psi_sa(s, a), psi_g(g)), a quasimetric?

d(s, g) is taken with the actor's own action toward g. d_psi = |psi_g - psi_g| is a norm: it is zero at home, symmetric
and obeys the triangle inequality by construction, so nothing of it is measured. d(s, g) need not: psi_sa and psi_g are
two networks. A quasimetric may be asymmetric (that is no fault), must be zero at home, and needs
d(s, g) <= d(s, w) + d(w, g).
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from dcp.policies.policy import DeployedPolicy
from dcp.statistics import clustered_mean, clustered_share
from dcp.theory.diagnostics.fields import energy_distances
from dcp.theory.diagnostics.visits import Visits

ROUNDING = 1e-3  # relative: NORM_EPS makes a distance of zero 0.001, and float32 has its own


def has_critic(policy: DeployedPolicy) -> bool:
    return "psi_sa" in policy.encoders


def distances(policy: DeployedPolicy, state: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """[K, S], [K, G] -> [K]; the energy l2 is a square, of which the root is a distance"""
    found = np.asarray(energy_distances(policy, jnp.asarray(state), jnp.asarray(goal)), float)
    return np.sqrt(found) if policy.energy == "l2" else found


def measure(policy: DeployedPolicy, visits: Visits, seed: int) -> dict[str, Any]:
    """Triples s, w, g of visited states, drawn at random."""
    rng = np.random.default_rng(seed)
    s = visits.state
    w, g = (s[rng.permutation(len(s))] for _ in range(2))
    achieved = visits.spec.achieved
    s_g, s_w, w_g = (distances(policy, a, achieved(b)) for a, b in ((s, g), (s, w), (w, g)))
    w_s, home = distances(policy, w, achieved(s)), distances(policy, s, achieved(s))
    excess = (s_g - s_w - w_g) / np.maximum(s_g, 1e-12)  # of what the detour should have cost at least
    violated = excess > ROUNDING
    asymmetry = np.abs(s_w - w_s) / np.maximum(0.5 * (s_w + w_s), 1e-12)
    return {
        "triangle_violations": clustered_share(violated, visits.episode).as_json(),
        "triangle_excess": clustered_mean(np.where(violated, excess, np.nan), visits.episode).as_json(),
        "asymmetry": clustered_mean(asymmetry, visits.episode, 0.0, 2.0).as_json(),
        "at_home": clustered_mean(home / max(float(np.mean(s_g)), 1e-12), visits.episode).as_json(),
        "triples": len(s),
    }
