"""Measure recorded episodes: every number that `dcp eval` reports, and the ones that training logs."""

from typing import NamedTuple

import numpy as np

from dcp.evaluation.rollout import Record

BINS = 4  # of the distance between start and goal


class Bin(NamedTuple):
    """Episodes by the distance from start to goal: from `low` up to `high`, which only the last bin includes."""

    low: float
    high: float
    episodes: int
    successes: int


class Measures(NamedTuple):
    """Hold measures of N episodes of T steps. An episode that never reaches its goal has a first reach of 0."""

    start: np.ndarray  # [N, S + G]: the first observations
    time_near_goal: np.ndarray  # [N]: steps within the threshold
    first_reach: np.ndarray  # [N]: the step that first came within it, from 1; 0 if none did
    final_distance: np.ndarray  # [N]
    start_distance: np.ndarray  # [N]: in a straight line
    saturation: np.ndarray  # [N]: share of action components beyond 0.95
    diverged: np.ndarray  # [N]
    steps: np.ndarray  # [N]: steps that counted
    cumulative_reach: np.ndarray  # [T]: share of episodes that were near their goal by this step

    @property
    def success(self) -> np.ndarray:
        """[N]"""
        return self.first_reach > 0

    def summary(self) -> dict[str, float]:
        """Return one number for each measure. The first four are those of metrics.csv."""
        reached = self.first_reach[self.success]
        return {
            **training_scores(self),
            "saturation": float(np.sum(self.saturation * self.steps) / max(np.sum(self.steps), 1)),
            "median_first_reach": float(np.median(reached)) if len(reached) else float("nan"),
        }

    def by_distance(self, distance: np.ndarray | None = None, bins: int = BINS) -> list[Bin]:
        """Return success by the distance from start to goal; `distance` [N] replaces the straight line's."""
        distance = self.start_distance if distance is None else distance
        edges = np.linspace(distance.min(), distance.max(), bins + 1)
        where = np.clip(np.searchsorted(edges, distance, side="right") - 1, 0, bins - 1)  # [N]
        return [
            Bin(float(edges[i]), float(edges[i + 1]), int(np.sum(where == i)), int(np.sum(self.success[where == i])))
            for i in range(bins)
        ]


def measure(record: Record) -> Measures:
    near, alive = np.asarray(record.near_goal), np.asarray(record.alive)  # [T, N]
    distance = np.asarray(record.distance, np.float64)  # [T + 1, N]
    steps = alive.sum(axis=0)  # [N]: the index of each episode's final state
    reached = np.logical_or.accumulate(near, axis=0)  # [T, N]
    saturated = np.where(alive, np.asarray(record.saturated, np.float64), 0.0)
    return Measures(
        start=np.asarray(record.start),
        time_near_goal=near.sum(axis=0),
        first_reach=np.where(near.any(axis=0), near.argmax(axis=0) + 1, 0),
        final_distance=np.take_along_axis(distance, steps[None], axis=0)[0],
        start_distance=distance[0],
        saturation=saturated.sum(axis=0) / np.maximum(steps, 1),
        diverged=np.any(np.asarray(record.diverged), axis=0, keepdims=True)[0],
        steps=steps,
        cumulative_reach=reached.mean(axis=1),
    )


def training_scores(measures: Measures) -> dict[str, float]:
    """Return the columns of metrics.csv. Success is a fraction."""
    return {
        "time_near_goal": float(np.mean(measures.time_near_goal)),
        "success_once": float(np.mean(measures.success)),
        "final_distance": float(np.mean(measures.final_distance)),
        "eval_diverged_episodes": int(np.sum(measures.diverged)),
    }
