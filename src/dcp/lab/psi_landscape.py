"""Compare what a representation learned about a maze, psi-distances and directions over its free space, with the truth.

The truth is the length of the shortest path. Both are compared by the order of distances and by where they lead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from dcp.envs.base import Environment
from dcp.envs.mazes import goals_at, has_plane, unit
from dcp.errors import UserError
from dcp.lab.episodes import Episode, directions, distances, play_toward
from dcp.lab.paths import (
    POINTS_PER_CELL,
    TruePaths,
    cell_points,
    grid_axes,
    grid_points,
    require_free,
    wall_at,
)
from dcp.lab.statistics import spearman
from dcp.lab.style import arrows_per_cell
from dcp.lab.targets import Target, environment_of, require_psi
from dcp.methods.table import CONDITIONS
from dcp.policies.policy import DeployedPolicy
from dcp.types import EnvSpec, MazeLayout

ROLLOUTS = 6
LOW, HIGH = 1.0, 99.0  # percentiles of the colours' range: the paper's


class Landscape(NamedTuple):
    layout: MazeLayout
    goal: np.ndarray  # [G]: its first two numbers lie in the maze's plane
    x: np.ndarray  # [X]: along the rows
    y: np.ndarray  # [Y]: along the columns
    distance: np.ma.MaskedArray  # [X, Y], masked inside walls


def psi_landscape(
    policy: DeployedPolicy, layout: MazeLayout, goal: np.ndarray, per_cell: int = POINTS_PER_CELL
) -> Landscape:
    """Return distances in the critic's space to one goal. Points on a wall's face count as free."""
    points = grid_points(layout, per_cell)
    distance = psi_distances(policy, points.reshape(-1, 2), goal).reshape(points.shape[:2])
    masked = np.ma.masked_array(distance, wall_at(layout, points))
    return Landscape(layout, np.asarray(goal), *grid_axes(layout, per_cell), masked)


def psi_distances(policy: DeployedPolicy, points: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Return psi-distances [K] from points [K, 2] of the plane to a goal [G]."""
    return np.asarray(distances(policy, goals_at(points, goal), np.asarray(goal, np.float32)[None]))


# The maze's own distances, and how a field over the maze compares with them.


class MazeTruth(NamedTuple):
    """The maze itself, seen from a goal."""

    landscape: Landscape  # path lengths
    points: np.ndarray  # [K, 2]: evenly over the free cells, off their faces; where directions are compared
    directions: np.ndarray  # [K, 2]: the first step of the shortest path, unit vectors


class Likeness(NamedTuple):
    """Measure how well a field and its directions agree with the truth; nan if one of the two is constant."""

    order: float  # Spearman's rank correlation of the distances, over the free points of the fine grid
    basin: float  # share of these points from which steepest descent ends at the goal
    nearer: float  # share of the compared points at which the direction leads to a shorter path


def true_landscape(layout: MazeLayout, goal: np.ndarray, per_cell: int = POINTS_PER_CELL) -> MazeTruth:
    """Return the true distances and directions to a goal [G], of which only the place in the plane counts."""
    require_free(layout, goal[:2])
    paths, to = TruePaths(layout), np.asarray(goal[None, :2], float)
    grid = grid_points(layout, per_cell)
    lengths = np.ma.masked_array(np.full(grid.shape[:2], np.inf), wall_at(layout, grid))
    lengths[~lengths.mask] = paths.lengths(grid[~lengths.mask], to)
    landscape = Landscape(layout, np.asarray(goal), *grid_axes(layout, per_cell), lengths)
    points = cell_points(layout, arrows_per_cell(layout))
    directions = paths.directions(points, np.repeat(to, len(points), axis=0))
    known = np.isfinite(directions).all(axis=1)
    return MazeTruth(landscape, points[known], directions[known])


def rank_correlation(a: np.ma.MaskedArray, b: np.ma.MaskedArray) -> float:
    """Return Spearman's rank correlation over the points that are free in both and finite."""
    both = ~np.ma.getmaskarray(a) & ~np.ma.getmaskarray(b) & np.isfinite(a.data) & np.isfinite(b.data)
    return spearman(a.data[both], b.data[both], least=2)


def leads_nearer(directions: np.ndarray, truth: MazeTruth) -> np.ndarray:
    """Return [K]: whether a direction [K, 2] makes the path shorter, so is within 90 degrees of the steepest one."""
    return np.sum(directions * truth.directions, axis=-1) > 0.0


def basin(distance: np.ma.MaskedArray, truth: MazeTruth, threshold: float) -> np.ndarray:
    """Return [X, Y]: True where going down the field, always to the lowest of eight neighbours, ends near the goal.

    Moves go between free points and slide along walls. From all other points descent ends in a local minimum.
    """
    free = np.isfinite(truth.landscape.distance.filled(np.inf))
    height = np.where(free, distance.data, np.inf)
    shape, index = height.shape, np.arange(height.size)
    lowest, best = index.copy(), height.ravel().copy()
    padded = np.pad(height, 1, constant_values=np.inf)
    for i, j in ((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)):
        neighbour = padded[1 + i : 1 + i + shape[0], 1 + j : 1 + j + shape[1]].ravel()
        better = neighbour < best
        lowest[better], best[better] = index[better] + i * shape[1] + j, neighbour[better]
    while not np.array_equal(lowest[lowest], lowest):  # each pass doubles the length of the path that is followed
        lowest = lowest[lowest]
    arrived = _straight_distances(truth.landscape).ravel() <= threshold
    return arrived[lowest].reshape(shape) & free


def likeness(distance: np.ma.MaskedArray, directions: np.ndarray, truth: MazeTruth, threshold: float) -> Likeness:
    """Compare a field with the truth. `threshold`: the environment's, within which the goal is reached."""
    free = np.isfinite(truth.landscape.distance.filled(np.inf))
    return Likeness(
        rank_correlation(distance, truth.landscape.distance),
        float(basin(distance, truth, threshold)[free].mean()),
        float(np.mean(leads_nearer(directions, truth))),
    )


def straight_line(truth: MazeTruth, threshold: float) -> Likeness:
    """Return the likeness of the straight line, which ignores walls."""
    distance = np.ma.masked_array(_straight_distances(truth.landscape), np.ma.getmaskarray(truth.landscape.distance))
    return likeness(distance, unit(truth.landscape.goal[:2][None] - truth.points), truth, threshold)


def _straight_distances(landscape: Landscape) -> np.ndarray:
    """Return the lengths of straight lines from the grid to the goal: [X, Y]."""
    return np.hypot(landscape.x[:, None] - landscape.goal[0], landscape.y[None, :] - landscape.goal[1])


# A run's landscape with everything that is drawn and reported about it.


@dataclass(frozen=True)
class View:
    """One run seen from one goal."""

    label: str
    env: str
    condition: str  # of the run's actor, by its name
    landscape: Landscape
    truth: MazeTruth
    directions: np.ndarray  # [K, 2]: at the truth's points
    basin: np.ndarray  # [X, Y]: where going down the field ends at the goal
    likeness: Likeness
    straight_line: Likeness  # of the maze, to compare any run with
    episodes: tuple[Episode, ...] = ()
    visited: np.ndarray | None = None  # [V]: psi-distances along the episodes' paths; None without any

    @property
    def num_reached(self) -> int:
        return sum(episode.reached is not None for episode in self.episodes)

    @property
    def actor_sees(self) -> str:
        """Return the condition in words, where it is the paper's; else its name."""
        return {"direction": "the direction", "raw_goal": "g itself"}.get(self.condition, self.condition)

    @property
    def is_below_straight_line(self) -> bool:
        """Return whether it orders the maze's points worse than the straight line does."""
        return self.likeness.order < self.straight_line.order

    @property
    def nearer(self) -> np.ndarray:
        """Return where the direction leads to a shorter path: [K]."""
        return leads_nearer(self.directions, self.truth)

    @property
    def place(self) -> tuple[Any, ...]:
        """Return a key that views of one place share: they have the same truth and are in one row."""
        return self.landscape.layout.walls.tobytes(), self.landscape.layout.scale, tuple(self.landscape.goal.tolist())


def view(
    target: Target,
    env: Environment,
    goal: Sequence[float] | np.ndarray | None = None,
    rollouts: int | None = None,
    per_cell: int = POINTS_PER_CELL,
) -> View:
    """Make a view of one run. Without a number of rollouts there are a few, but none where physics must be compiled."""
    policy, layout = require_psi(target), plane_of(env.spec)
    at = goal_of(env, goal)
    truth, straight = _truth(layout, tuple(at.tolist()), per_cell, env.spec.threshold)
    of: Any = target.config.__dict__ if target.config else target.about
    names = [str(of["method"]), *([] if of.get("seed") is None else [f"seed {of['seed']}"])] if of.get("method") else []
    field = psi_landscape(policy, layout, at, per_cell)
    arrows = directions(policy, goals_at(truth.points, at), at)
    without_episodes = View(
        label=", ".join(names) or target.label,
        env=env.spec.name,
        condition=CONDITIONS.name_of(type(policy.condition)),
        landscape=field,
        truth=truth,
        directions=arrows,
        basin=basin(field.distance, truth, env.spec.threshold),
        likeness=likeness(field.distance, arrows, truth, env.spec.threshold),
        straight_line=straight,
    )
    count = rollouts_for(env.spec, rollouts)
    if not count:
        return without_episodes
    length = (target.config.episode_length if target.config else None) or env.spec.episode_length
    episodes = tuple(play_toward(env, policy, at, count, length))
    visited = psi_distances(policy, np.concatenate([episode.path for episode in episodes]), at)
    return replace(without_episodes, episodes=episodes, visited=visited)


@lru_cache(maxsize=8)
def _truth(layout: MazeLayout, goal: tuple[float, ...], per_cell: int, threshold: float) -> tuple[MazeTruth, Likeness]:
    truth = true_landscape(layout, np.asarray(goal), per_cell)
    return truth, straight_line(truth, threshold)


def plane_of(spec: EnvSpec) -> MazeLayout:
    if spec.maze is None or not has_plane(spec):
        raise UserError(f"{spec.name} has no landscape: its goals are not points of a maze's plane")
    return spec.maze


def maze_env(target: Target, env: str | None = None) -> Environment:
    """Return the environment whose maze is drawn: the named one, else the one that the run was evaluated on."""
    require_psi(target)
    made = environment_of(target, env)
    plane_of(made.spec)
    return made


def goal_of(env: Environment, goal: Sequence[float] | np.ndarray | None) -> np.ndarray:
    """Return [G]: the given goal, else the centre of the goal cell that is farthest by path."""
    layout, size = plane_of(env.spec), env.spec.goal_size
    if goal is None:
        return np.append(layout.farthest_goal(), _rest(env)).astype(np.float64)
    if len(goal) not in (2, size):
        raise UserError(f"a goal of {env.spec.name} has {size} numbers, not {len(goal)}: give --goal X Y")
    require_free(layout, np.asarray(goal[:2]))
    rest = _rest(env) if len(goal) < size else np.asarray(goal[2:])
    return np.append(np.asarray(goal[:2], np.float64), rest)


def _rest(env: Environment) -> np.ndarray:
    """Return a goal's numbers besides its place in the plane, such as a height, from a goal that the environment draws.
    Under physics that takes half a minute, so call it once for many views."""
    if env.spec.goal_size == 2:
        return np.zeros(0)
    return np.asarray(env.spec.split(jax.jit(env.reset)(jax.random.key(0)).obs)[1])[2:]


def rollouts_for(spec: EnvSpec, rollouts: int | None) -> int:
    if rollouts is None:
        return ROLLOUTS if spec.physics == "none" and spec.goal_size == 2 else 0
    if rollouts < 0:
        raise UserError(f"--rollouts is {rollouts}: use 0 or more")
    if rollouts and spec.goal_size != 2:
        raise UserError(f"{spec.name} has goals with a height, and no rollouts toward one: leave out --rollouts")
    return rollouts


def with_paths_in_labels(views: Sequence[View], targets: Sequence[Target]) -> list[View]:
    """Add paths, the last 34 characters of them, to the labels of runs with the same label in the same place."""
    names = [(v.place, v.env, v.label) for v in views]
    return [
        replace(v, label=f"{v.label}\n{'…' * (len(t.label) > 34)}{t.label[-34:]}") if names.count(name) > 1 else v
        for v, t, name in zip(views, targets, names, strict=True)
    ]


def colour_ranges(views: Sequence[View], kind: str = "panel") -> list[tuple[float, float]]:
    """Return the 1st to the 99th percentile of distances. Kinds: along each view's own paths (paper), along all
    views' paths (common), over each view's free space (space), or as paper but over the free space for a run that
    hardly moved (panel): few distances would leave the rest two colours. Without paths: the free space."""
    over_space = [kind == "space" or v.visited is None or (kind == "panel" and hardly_moved(v)) for v in views]
    along = [
        v.landscape.distance.compressed() if space or v.visited is None else v.visited
        for v, space in zip(views, over_space, strict=True)
    ]
    if kind == "common":
        along = [np.concatenate(along)] * len(views)
    ranges = [tuple(np.percentile(each, [LOW, HIGH]).tolist()) for each in along]
    # An agent that never moved has seen only one distance.
    return [(low, high) if high - low > 1e-6 else (low - 0.5, high + 0.5) for low, high in ranges]


def hardly_moved(view: View) -> bool:
    """Return whether a run visited so few distances that colours over them show little of its field."""
    if view.visited is None:
        return False
    spans = [np.ptp(np.percentile(x, [LOW, HIGH])) for x in (view.visited, view.landscape.distance.compressed())]
    return bool(spans[0] < 0.25 * spans[1])
