"""Does the learned direction point along the true way? Its cosine with the shortest path's first step.

Two forms of the learned direction: -grad_s d_psi, and the pullback J^T u of the direction in psi-space. For a norm they
are one and the same (the paper's identity); both are measured, and how far they are apart. 1: along the path; 0: across
it; -1: away. Two baselines stand beside them:

- the straight line to the goal. An untrained psi is nearly linear, and a random linear map into many dimensions keeps
  directions: what is no better than the straight line was not learned.
- the learned direction toward another place than the goal that the truth is asked for (a random visited place; over the
  maze a random point): chance. It is above 0 where most places lie on one side.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from dcp.envs.fine_grid import wall_at
from dcp.envs.plane import goals_at, unit
from dcp.policies.policy import DeployedPolicy
from dcp.statistics import clustered_mean, clustered_share
from dcp.theory.diagnostics.fields import learned
from dcp.theory.diagnostics.truth import Truth
from dcp.types import MazeLayout

DISTANCE_BINS = 4


class Alignment(NamedTuple):
    """At K points, each with a goal."""

    pulled: np.ndarray  # [K]: cosine of J^T u with the true direction; nan where one of the two is none
    descent: np.ndarray  # [K]: of -grad_s d_psi
    straight: np.ndarray  # [K]: of the straight line
    elsewhere: np.ndarray  # [K]: of J^T u toward another goal
    difference: float  # the largest |J^T u - (-grad_s d_psi)|, relative to the longest of them
    length: np.ndarray  # [K]: of the true way
    shown: np.ndarray  # [K, G]: J^T u as unit vectors
    true: np.ndarray  # [K, G]


def compare(
    policy: DeployedPolicy, truth: Truth, achieved: np.ndarray, goal: np.ndarray, other: np.ndarray
) -> Alignment:
    """achieved [K, G], goal [K, G], other [K, G]: goals that have nothing to do with these"""
    found = jax.device_get(learned(policy, achieved.astype(np.float32), goal.astype(np.float32)))
    elsewhere = np.asarray(learned(policy, achieved.astype(np.float32), other.astype(np.float32)).pulled)
    true = truth.directions(achieved, goal)  # [K, G]
    longest = max(float(np.abs(found.pulled).max()), 1e-12)
    return Alignment(
        pulled=_cosine(found.pulled, true),
        descent=_cosine(found.descent, true),
        straight=_cosine(goal - achieved, true),
        elsewhere=_cosine(elsewhere, true),
        difference=float(np.abs(found.pulled - found.descent).max()) / longest,
        length=truth.lengths(achieved, goal),
        shown=unit(found.pulled),
        true=true,
    )


def _cosine(vectors: np.ndarray, units: np.ndarray) -> np.ndarray:
    """[K]: nan where a vector is zero, or the true direction unknown"""
    own = unit(np.asarray(vectors, float))
    return np.where(np.any(own != 0.0, axis=1), np.sum(own * units, axis=1), np.nan)


def measure(found: Alignment, groups: np.ndarray) -> dict[str, Any]:
    """groups [K]: episodes or goals, whose number decides the intervals."""
    known = np.isfinite(found.pulled)
    return {
        "pulled_back": clustered_mean(found.pulled, groups, -1.0, 1.0).as_json(),
        "descent": clustered_mean(found.descent, groups, -1.0, 1.0).as_json(),
        "straight_line": clustered_mean(found.straight, groups, -1.0, 1.0).as_json(),
        "another_goal": clustered_mean(found.elsewhere, groups, -1.0, 1.0).as_json(),
        "nearer": clustered_share(found.pulled[known] > 0.0, groups[known]).as_json(),
        "straight_line_nearer": clustered_share(found.straight[known] > 0.0, groups[known]).as_json(),
        "largest_difference": found.difference,
        "by_distance": _by_distance(found, groups),
        "points": int(known.sum()),
    }


def _by_distance(found: Alignment, groups: np.ndarray) -> list[dict[str, Any]]:
    """The same cosine for near and far goals: quarters of the points by the true way's length."""
    known = np.isfinite(found.pulled) & np.isfinite(found.length)
    if not known.any():
        return []
    edges = np.quantile(found.length[known], np.linspace(0.0, 1.0, DISTANCE_BINS + 1))
    which = np.clip(np.searchsorted(edges, found.length, side="right") - 1, 0, DISTANCE_BINS - 1)
    rows = []
    for i in range(DISTANCE_BINS):
        inside = known & (which == i)
        if inside.any():
            edge = {"low": float(edges[i]), "high": float(edges[i + 1]), "points": int(inside.sum())}
            both = {"pulled_back": found.pulled, "straight_line": found.straight}
            means = {name: clustered_mean(x[inside], groups[inside], -1.0, 1.0) for name, x in both.items()}
            rows.append({**edge, **{name: mean.as_json() for name, mean in means.items()}})
    return rows


def points_of(layout: MazeLayout, per_cell: int) -> np.ndarray:
    """[K, 2]: evenly over the free cells, off their faces"""
    rows, columns = layout.walls.shape
    steps = (np.arange(per_cell) + 0.5) / per_cell - 0.5
    x, y = ((np.arange(n)[:, None] + steps[None]).ravel() * layout.scale for n in (rows, columns))
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    return np.array([point for point in points if not wall_at(layout, point)])


def over_maze(
    policy: DeployedPolicy, truth: Truth, layout: MazeLayout, goals: np.ndarray, per_cell: int, seed: int = 0
) -> tuple[Alignment, np.ndarray]:
    """Every point with every goal [M, G]. -> and which goal [K]"""
    points = points_of(layout, per_cell)
    achieved = np.concatenate([goals_at(points, goal) for goal in goals])
    which = np.repeat(np.arange(len(goals)), len(points))
    others = np.random.default_rng(seed).integers(0, len(achieved), len(achieved))
    return compare(policy, truth, achieved, goals[which], achieved[others]), which
