"""Poses and episodes made by hand, for which nothing is compiled; and episodes that `dcp render` would show."""

import numpy as np

from dcp.envs.registry import make_env
from dcp.lab.episodes import Episode, Shown, show_policy
from dcp.lab.targets import open_target

YAW = (np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5))  # 90 degrees about z: w, x, y, z


def ant_pose(x: float, y: float, turn=(1.0, 0.0, 0.0, 0.0), goal=(12.0, 12.0)) -> np.ndarray:
    """The ant as it starts, there, turned so."""
    q = make_env("ant_u_maze").init_q.astype(np.float64).copy()
    q[:2], q[3:7], q[-2:] = (x, y), turn, goal
    return q


def ant_walk(steps: int = 6, reached: int | None = None, **guides) -> Episode:
    """Along the U maze's first corridor, from (4, 4) by 0.5 a step, to the goal at (12, 12)."""
    q = np.stack([ant_pose(4.0, 4.0 + 0.5 * t) for t in range(steps + 1)])
    return Episode(q[:, :2], np.array([12.0, 12.0]), q, reached, **guides)


def point_walk(steps: int = 40, reached: int | None = None, **guides) -> Episode:
    """Along the U maze's first row, from (1, 1) to (1, 3)."""
    points = np.stack([np.ones(steps + 1), np.linspace(1.0, 3.0, steps + 1)], axis=-1)
    return Episode(points, np.array([3.0, 3.0]), None, reached, **guides)


def shown_episodes(env, policy, seed: int, first: int, num_episodes: int, steps: int) -> list[Episode]:
    shown = Shown(seed, first, num_episodes, steps, direction="off")
    return show_policy(open_target(policy), "the policy", env, shown).episodes
