"""Is d_psi a measure of time? Against the steps between visited states, the steps to the goal, and the true way.

Hindsight pairs are two states of one episode, up to its first success, as the critic was trained on. Their time is that
from the first to the moment at which the agent first came within the threshold of the second: an agent that waits there
is not farther away. A perfect measure of time has rank correlation 1 and a line through zero.
"""

from typing import Any, NamedTuple

import numpy as np

from dcp.policies.policy import DeployedPolicy
from dcp.theory.diagnostics.correlation import line, rank_correlation
from dcp.theory.diagnostics.fields import psi
from dcp.theory.diagnostics.truth import Truth
from dcp.theory.diagnostics.visits import Visits

PAIRS = 2000
LONGEST = 100  # steps: 1 / (1 - discount), beyond which the critic has seen few pairs


class Pairs(NamedTuple):
    """Two moments of one episode."""

    episode: np.ndarray  # [K]
    start: np.ndarray  # [K]
    end: np.ndarray  # [K]

    steps: np.ndarray  # [K]: until the agent was first near the later state; 0 if it was from the beginning


def hindsight_pairs(visits: Visits, seed: int, count: int = PAIRS) -> Pairs:
    """At most 100 steps apart. A pair that is near from the beginning has no way between it, and is left out."""
    rng = np.random.default_rng(seed)
    last = np.where(visits.reached >= 0, visits.reached, visits.ends)  # [H]
    episode = rng.choice(np.flatnonzero(last > 0), count) if np.any(last > 0) else np.zeros(0, int)
    apart = rng.integers(1, np.minimum(LONGEST, last[episode]) + 1)
    start = rng.integers(0, last[episode] - apart + 1)
    achieved = visits.spec.achieved(visits.states)  # [T + 1, H, G]
    steps = np.array(
        [
            _first_near(achieved[a : a + n + 1, h], visits.spec.threshold)
            for a, n, h in zip(start, apart, episode, strict=True)
        ],
        int,
    )
    way = steps > 0
    return Pairs(episode[way], start[way], (start + apart)[way], steps[way])


def _first_near(path: np.ndarray, threshold: float) -> int:
    """The index of the first point of a path [n + 1, G] that is near its last."""
    return int(np.argmax(np.linalg.norm(path - path[-1:], axis=1) < threshold))


def between(policy: DeployedPolicy, visits: Visits, pairs: Pairs) -> np.ndarray:
    """[K]: d_psi of each pair"""
    achieved = visits.spec.achieved(visits.states)  # [T + 1, H, G]
    ends = [np.asarray(psi(policy, achieved[time, pairs.episode])) for time in (pairs.start, pairs.end)]
    return np.linalg.norm(ends[0] - ends[1], axis=1)


def to_goal(visits: Visits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every state before its episode's success: its place [K, 2 of time and episode], steps that are left [K], goal."""
    found = [(t, h) for h in np.flatnonzero(visits.reached > 0) for t in range(visits.reached[h])]
    at = np.array(found, int).reshape(-1, 2)
    return at, visits.reached[at[:, 1]] - at[:, 0], visits.goals[at[:, 1]]


def distances(policy: DeployedPolicy, achieved: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """[K, G], [K, G] -> [K]: d_psi"""
    return np.linalg.norm(np.asarray(psi(policy, achieved)) - np.asarray(psi(policy, goal)), axis=1)


def fit(x: np.ndarray, d_psi: np.ndarray, episodes: np.ndarray) -> dict[str, Any]:
    """d_psi over x: order, line, and the number of pairs."""
    known = np.isfinite(x) & np.isfinite(d_psi)
    x, d_psi, episodes = x[known].astype(float), d_psi[known].astype(float), episodes[known]
    order = rank_correlation(x, d_psi, episodes).as_json()
    return {"rank_correlation": order, **line(x, d_psi, episodes), "pairs": len(x)}


def measure(policy: DeployedPolicy, truth: Truth, visits: Visits, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """-> what is said, and what is drawn"""
    pairs = hindsight_pairs(visits, seed)
    apart = between(policy, visits, pairs)
    at, left, goals = to_goal(visits)
    if len(at) > PAIRS:
        rows = np.random.default_rng(seed).permutation(len(at))[:PAIRS]
        at, left, goals = at[rows], left[rows], goals[rows]
    toward = distances(policy, visits.spec.achieved(visits.states[tuple(at.T)]), goals)
    other = np.random.default_rng(seed).permutation(len(visits.at))
    ways = truth.lengths(visits.achieved, visits.achieved[other])
    across = distances(policy, visits.achieved, visits.achieved[other])
    said = {
        "hindsight": fit(pairs.steps, apart, pairs.episode),
        "steps_to_goal": fit(left, toward, at[:, 1]),
        "true_way": fit(ways, across, visits.episode),
        "episodes_that_reach": int(np.sum(visits.reached > 0)),
        "longest": LONGEST,
    }
    drawn = {"hindsight": (pairs.steps, apart), "steps_to_goal": (left, toward), "true_way": (ways, across)}
    return said, drawn
