"""Measure an agent's learned distance: is it a measure of time, a quasimetric, and does psi preserve the goals?

Each part takes a `Study` and returns its numbers and what to draw.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy import stats

from dcp.lab.diagnose.visited_states import Result, Study, Visits, energy_distances, psi_and_jacobian
from dcp.lab.episodes import distances
from dcp.lab.statistics import UNKNOWN, Interval, clustered_mean, clustered_share, clustered_statistic, spearman
from dcp.methods.table import CRITICS

PAIRS = 2000
LONGEST = 100  # steps: 1 / (1 - discount); the critic has seen few pairs beyond
DRAWN = 400  # points of a cloud
ROUNDING = 1e-3  # relative: NORM_EPS turns a distance of zero into 0.001, and float32 rounds
BLIND = 0.1  # psi is blind if the smallest singular value is below this share of the largest


class Pairs(NamedTuple):
    """Hold pairs of moments of one episode each."""

    episode: np.ndarray  # [K]
    start: np.ndarray  # [K]
    end: np.ndarray  # [K]
    steps: np.ndarray  # [K]: until the agent was first near the later state; 0 if it was near from the start


def calibration(study: Study) -> Result:
    """Compare d_psi with the steps between visited states, the steps to the goal, and the true path.

    Hindsight pairs are two states of one episode up to its first success, like the critic's training pairs. Their time
    runs from the first state until the agent first came within the threshold of the second: an agent that waits there
    is not farther away. A perfect measure of time has rank correlation 1 and a line through zero.
    """
    policy, visits, seed = study.policy, study.visits, study.seed
    achieved = visits.spec.achieved(visits.states)  # [T + 1, H, G]
    pairs = hindsight_pairs(visits, seed)
    apart = distances(policy, achieved[pairs.start, pairs.episode], achieved[pairs.end, pairs.episode])
    before = [(t, h) for h in np.flatnonzero(visits.reached > 0) for t in range(visits.reached[h])]
    at = np.array(before, int).reshape(-1, 2)  # time and episode of every state before its episode's success
    if len(at) > PAIRS:
        at = at[np.random.default_rng(seed).permutation(len(at))[:PAIRS]]
    left, goals = visits.reached[at[:, 1]] - at[:, 0], visits.goals[at[:, 1]]
    toward = distances(policy, achieved[tuple(at.T)], goals)
    other = visits.achieved[np.random.default_rng(seed).permutation(len(visits.at))]
    ways, across = study.truth.lengths(visits.achieved, other), distances(policy, visits.achieved, other)
    reach = int(np.sum(visits.reached > 0))
    if not reach:
        study.notes.append("no episode reached its goal, so there are no steps to the goal to compare with")
    clouds = {
        "hindsight": (pairs.steps, np.asarray(apart), pairs.episode),
        "steps_to_goal": (left, np.asarray(toward), at[:, 1]),
        "true_way": (ways, np.asarray(across), visits.episode),
    }
    fits = {name: _fit(*cloud) for name, cloud in clouds.items()}
    drawn = {name: {"x": x[:DRAWN], "d_psi": d_psi[:DRAWN]} for name, (x, d_psi, _) in clouds.items()}
    return {**fits, "episodes_that_reach": reach, "longest": LONGEST}, drawn


def hindsight_pairs(visits: Visits, seed: int, count: int = PAIRS) -> Pairs:
    """Draw pairs at most 100 steps apart, without pairs that are near each other from the start."""
    rng = np.random.default_rng(seed)
    last = np.where(visits.reached >= 0, visits.reached, visits.ends)  # [H]
    episode = rng.choice(np.flatnonzero(last > 0), count) if np.any(last > 0) else np.zeros(0, int)
    apart = rng.integers(1, np.minimum(LONGEST, last[episode]) + 1)
    start = rng.integers(0, last[episode] - apart + 1)
    achieved = visits.spec.achieved(visits.states)  # [T + 1, H, G]
    paths = (achieved[a : a + n + 1, h] for a, n, h in zip(start, apart, episode, strict=True))  # [n + 1, G] each
    near_end = (np.linalg.norm(path - path[-1:], axis=1) < visits.spec.threshold for path in paths)
    steps = np.array([int(np.argmax(near)) for near in near_end], int)
    way = steps > 0
    return Pairs(episode[way], start[way], (start + apart)[way], steps[way])


def _fit(x: np.ndarray, d_psi: np.ndarray, episodes: np.ndarray) -> dict[str, Any]:
    """Compare d_psi with x: rank correlation, line, and the number of pairs."""
    known = np.isfinite(x) & np.isfinite(d_psi)
    x, d_psi, episodes = x[known].astype(float), d_psi[known].astype(float), episodes[known]
    order = rank_correlation(x, d_psi, episodes).as_json()
    return {"rank_correlation": order, **line(x, d_psi, episodes), "pairs": len(x)}


def rank_correlation(x: np.ndarray, y: np.ndarray, episodes: np.ndarray) -> Interval:
    """Return Spearman's correlation of x [K] and y [K] with a bootstrap interval over these episodes [K]."""
    return clustered_statistic(lambda rows: spearman(x[rows], y[rows]), episodes)


def line(x: np.ndarray, y: np.ndarray, episodes: np.ndarray) -> dict[str, Any]:
    """Fit y = intercept + slope x by least squares; r2 is the share of y's variance that it explains."""
    if len(x) < 3 or np.ptp(x) == 0.0:
        return {"slope": UNKNOWN.as_json(), "intercept": float("nan"), "r2": float("nan")}
    fit: Any = stats.linregress(x, y)

    def slope_of(rows: np.ndarray) -> float:
        fit: Any = stats.linregress(x[rows], y[rows]) if np.ptp(x[rows]) > 0.0 else None
        return float(fit.slope) if fit else float("nan")

    slope = clustered_statistic(slope_of, episodes).as_json()
    return {"slope": slope, "intercept": float(fit.intercept), "r2": float(fit.rvalue**2)}


def energies(study: Study) -> Result:
    """Measure whether the critic's own distance, -energy(psi_sa(s, a), psi_g(g)), is a quasimetric.

    d(s, g) uses the actor's own action toward g. The contrastive critic's d_psi = |psi_g - psi_g| is a norm: it is zero
    at g = s, symmetric, and obeys the triangle inequality by construction, so it is not measured. d(s, g) need not,
    because psi_sa and psi_g are two networks. A quasimetric may be asymmetric (that is not a fault), must be zero at
    g = s, and needs d(s, g) <= d(s, w) + d(w, g). Triples s, w, g of visited states are drawn at random.
    """
    policy, visits = study.policy, study.visits
    energy = getattr(policy.critic, "energy", None)
    unfit = ""
    if energy is None:
        unfit = f"the critic {CRITICS.name_of(type(policy.critic))} has no energy, so no triangle was measured"
    elif "psi_sa" not in policy.critic_params:
        unfit = (
            "the policy was saved without its critic psi_sa, so its energy was not measured: name the run's own folder"
        )
    elif energy not in ("norm", "l2"):
        unfit = f"the energy {energy} is not a distance, so no triangle was measured"
    if unfit:
        study.notes.append(unfit)
        return {}, {}

    def from_to(state: np.ndarray, toward: np.ndarray) -> np.ndarray:
        """Return distances: [K, S], [K, S] -> [K]. The energy l2 is a square, so its root is taken."""
        distance = energy_distances(policy, jnp.asarray(state), jnp.asarray(visits.spec.achieved(toward)))
        return np.sqrt(np.asarray(distance, float)) if energy == "l2" else np.asarray(distance, float)

    rng = np.random.default_rng(study.seed)
    s = visits.state
    w, g = (s[rng.permutation(len(s))] for _ in range(2))
    s_g, s_w, w_g, w_s, home = (from_to(a, b) for a, b in ((s, g), (s, w), (w, g), (w, s), (s, s)))
    excess = (s_g - s_w - w_g) / np.maximum(s_g, 1e-12)  # relative violation of the triangle inequality
    violated = excess > ROUNDING
    asymmetry = np.abs(s_w - w_s) / np.maximum(0.5 * (s_w + w_s), 1e-12)
    return {
        "triangle_violations": clustered_share(violated, visits.episode).as_json(),
        "triangle_excess": clustered_mean(np.where(violated, excess, np.nan), visits.episode).as_json(),
        "asymmetry": clustered_mean(asymmetry, visits.episode, 0.0, 2.0).as_json(),
        "at_home": clustered_mean(home / max(float(np.mean(s_g)), 1e-12), visits.episode, 0.0).as_json(),
        "triples": len(s),
    }, {}


def conditioning(study: Study) -> Result:
    """Measure the singular values of psi_g's Jacobian and the number of dimensions that psi uses.

    The actor's direction u and the gradient J^T u carry the same information if J_psi has full rank. If its smallest
    singular value is near zero, psi hardly sees moves in one direction of the goal's coordinates.
    """
    visits = study.visits
    psi, jacobian = (np.asarray(x) for x in psi_and_jacobian(study.policy, visits.achieved))
    strength = np.linalg.svd(jacobian, compute_uv=False)  # [K, min(D, G)]
    encoded = np.asarray(psi, float)  # [K, D]
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
    }, {}


def effective_rank(singular_values: np.ndarray) -> np.ndarray:
    """Return exp of the entropy of the values' shares, [..., R] -> [...]: R if all are equal, 1 if one is left."""
    shares = singular_values / np.maximum(singular_values.sum(axis=-1, keepdims=True), 1e-30)
    logs = np.log(np.where(shares > 0.0, shares, 1.0))
    return np.exp(-np.sum(shares * logs, axis=-1))
