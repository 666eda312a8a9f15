"""Measure whether an agent's learned distance is a measure of time. The part takes a `Study`, as all do."""

from typing import NamedTuple

import numpy as np

from dcp.lab.diagnose.visited_states import Result, Study, Visits
from dcp.lab.episodes import distances
from dcp.lab.statistics import Interval, clustered_statistic, spearman

PAIRS = 2000
LONGEST = 100  # steps: 1 / (1 - discount); the critic has seen few pairs beyond
DRAWN = 400  # points of a cloud


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
    is not farther away. A perfect measure of time has rank correlation 1.
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
    orders = {name: {"rank_correlation": rank_correlation(*cloud).as_json()} for name, cloud in clouds.items()}
    drawn = {name: {"x": x[:DRAWN], "d_psi": d_psi[:DRAWN]} for name, (x, d_psi, _) in clouds.items()}
    return {**orders, "episodes_that_reach": reach, "longest": LONGEST}, drawn


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


def rank_correlation(x: np.ndarray, y: np.ndarray, episodes: np.ndarray) -> Interval:
    """Return Spearman's correlation of the finite x [K] and y [K], with a bootstrap interval over episodes [K]."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y, episodes = x[known], y[known], episodes[known]
    return clustered_statistic(lambda rows: spearman(x[rows], y[rows]), episodes)
