"""Measure an agent's learned distance: is it a measure of time, and what does it say about where the run stands?

Each part takes a `Study` and returns its numbers and what to draw.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dcp.envs.mazes import has_plane, share_of_cells_visited
from dcp.errors import UserError
from dcp.files.run_folder import METRICS_FILE, kept_policies, load_run
from dcp.lab.diagnose.visited_states import Result, Study, Visits
from dcp.lab.episodes import distances
from dcp.lab.statistics import Interval, clustered_mean, clustered_statistic, spearman
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import load_policy_and_about

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


# The regime: how far the run has come in its maze, whether the goal draws nearer in psi, where z lies. The changes over
# training are read from metrics.csv and from kept policies.

TIMES = 10  # moments of an episode, and the most kept policies, at which distances are measured
COVERED, GROWTH = 0.9, 0.05  # shares of the free cells
NEAR_END = 0.25  # share of the way from s to g within which z counts as being at one of them
COVERAGES = ("cells_visited", "pool_coverage")  # the first that metrics.csv has


def regime(study: Study) -> Result:
    """Measure coverage, the distance to the goal in psi, and z's place, over training and over an episode.

    Distances are in units of the mean distance between two visited states, so that psi's scale does not matter. In
    single-goal CRL they rise over training at states that are not the goal, which is what drives its actor outward.
    """
    visits, spec = study.visits, study.visits.spec
    achieved = spec.achieved(visits.states)  # [T + 1, H, G]
    drawn: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    if spec.maze is not None and has_plane(spec):
        alive = np.arange(len(achieved))[:, None] <= visits.ends[None]  # [T + 1, H]
        numbers["cells_in_episodes"] = float(share_of_cells_visited(spec.maze, achieved[alive][:, :2]))
    first, last = (_relative(study, study.policy, *moments) for moments in _thirds(study))
    numbers["early_distance"], numbers["late_distance"] = first.as_json(), last.as_json()
    if study.folder is not None and (study.folder / METRICS_FILE).is_file():
        try:
            drawn["training"] = over_training(load_run(study.folder).metrics)
        except UserError as error:
            study.notes.append(f"metrics.csv was not read: {error}")
        else:
            numbers |= {name: [curve[0], curve[-1]] for name, curve in drawn["training"].items() if len(curve)}
        if kept := _over_policies(study):
            drawn["kept"] = kept
            numbers["distance"] = [kept["distance"][0], kept["distance"][-1]]
    else:
        study.notes.append("there is no metrics.csv of this policy: the regime is that of the played episodes alone")
    return {**numbers, "words": words_of(drawn.get("training", {}), numbers)}, drawn


def over_training(metrics: Mapping[str, np.ndarray]) -> dict[str, list[float]]:
    """Return the curves of metrics.csv that say where the run was. z's place: 0 at s, 1 at g."""
    curves = {"env_steps": metrics["env_steps"], "success_once": metrics["success_once"]}
    covered = next((metrics[name] for name in COVERAGES if name in metrics), None)
    if covered is not None:
        curves["coverage"] = covered
    if {"state_to_subgoal", "subgoal_to_goal"} <= set(metrics):
        to_z, onward = metrics["state_to_subgoal"], metrics["subgoal_to_goal"]
        curves["place_of_z"] = to_z / np.maximum(to_z + onward, 1e-9)
    return {name: [float(value) for value in curve] for name, curve in curves.items()}


def words_of(curves: Mapping[str, list[float]], numbers: Mapping[str, Any]) -> str:
    """Return the regime in words."""
    words = []
    if covered := curves.get("coverage"):
        half = (len(covered) + 1) // 2
        grown = float(np.mean(covered[half:]) - np.mean(covered[:half])) if len(covered) > 1 else 0.0
        share = covered[-1]
        growing = "its coverage still grows" if grown > GROWTH else "its coverage has stopped growing"
        words.append("its coverage is nearly full" if share >= COVERED else growing)
    if place := curves.get("place_of_z"):
        where = "near s" if place[-1] < NEAR_END else "near g" if place[-1] > 1.0 - NEAR_END else "between s and g"
        words.append(f"z lies {where}")
    if pair := numbers.get("distance"):
        words.append(
            "the goal moves away in psi over training" if pair[1] > pair[0] else "the goal draws nearer in psi"
        )
    return "; ".join(words) or "unknown"


def _thirds(study: Study) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return times and episodes of moments in the first and in the last third of what precedes each success."""
    visits = study.visits
    ends = np.where(visits.reached >= 0, visits.reached - 1, visits.ends)  # [H]
    shares = np.linspace(0.0, 1.0 / 3.0, TIMES)
    times = [np.round(part[:, None] * ends[None]).astype(int) for part in (shares, 1.0 - shares)]  # [TIMES, H] each
    episodes = np.broadcast_to(np.arange(len(ends)), times[0].shape).ravel()
    return [(each.ravel(), episodes) for each in times]


def _relative(study: Study, policy: DeployedPolicy, times: np.ndarray, episodes: np.ndarray) -> Interval:
    """Return d_psi to the goal at these moments [K], in units of the mean d_psi between two visited states."""
    visits = study.visits
    other = visits.achieved[np.random.default_rng(study.seed).permutation(len(visits.at))]
    usual = float(np.mean(distances(policy, visits.achieved, other)))
    achieved = visits.spec.achieved(visits.states[times, episodes])
    to_goal = np.asarray(distances(policy, achieved, visits.goals[episodes]), float)
    return clustered_mean(to_goal / max(usual, 1e-12), episodes, 0.0)


def _over_policies(study: Study) -> dict[str, list[float]] | None:
    """Measure the distance to the goal under policies that the run kept, at the states that the last one visits."""
    assert study.folder is not None
    kept = kept_policies(study.folder)
    chosen = [kept[i] for i in np.unique(np.linspace(0, len(kept) - 1, TIMES).round().astype(int))] if kept else []
    steps, means = [], []
    for path in chosen:
        policy, about = load_policy_and_about(path)
        steps.append(float(about.get("env_steps") or 0))
        means.append(_relative(study, policy, *study.visits.at.T).mean)
    return {"env_steps": steps, "distance": means} if len(means) > 1 else None
