"""A run's landscape with all that is drawn and said of it: the maze's own, its directions, its episodes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dcp.analysis.episodes import Path, paths_toward
from dcp.analysis.landscape import Landscape, directions, psi_distances, psi_landscape
from dcp.analysis.path_likeness import Likeness, Truth, basin, leads_nearer, likeness, straight_line, true_landscape
from dcp.envs.base import Environment
from dcp.envs.fine_grid import POINTS_PER_CELL, require_free
from dcp.envs.geodesic import farthest_goal
from dcp.envs.plane import has_plane
from dcp.errors import UserError
from dcp.evaluation.targets import Target, environment_of
from dcp.methods.conditions import Direction
from dcp.policies.policy import DeployedPolicy
from dcp.types import EnvSpec, MazeLayout

ROLLOUTS = 6
LOW, HIGH = 1.0, 99.0  # percentiles of the colours' range: the paper's


@dataclass(frozen=True)
class View:
    """One run seen from one goal."""

    label: str
    env: str
    sees_direction: bool  # the condition of the run's actor
    landscape: Landscape
    truth: Truth
    directions: np.ndarray  # [K, 2]: at the truth's points
    basin: np.ndarray  # [X, Y]: where going down the field ends at the goal
    likeness: Likeness
    straight_line: Likeness  # of the maze: what any run is to be held against
    paths: tuple[Path, ...] = ()
    visited: np.ndarray | None = None  # [V]: psi-distances along the drawn paths; None without any

    @property
    def nearer(self) -> np.ndarray:
        """[K]: where the direction leads to a shorter path"""
        return leads_nearer(self.directions, self.truth)

    @property
    def place(self) -> tuple[Any, ...]:
        """Views of one place share their truth, and stand in one row."""
        return self.landscape.layout.walls.tobytes(), self.landscape.layout.scale, tuple(self.landscape.goal.tolist())


def plane_of(spec: EnvSpec) -> MazeLayout:
    if spec.maze is None or not has_plane(spec):
        raise UserError(f"{spec.name} has no landscape: its goals are not points of a maze's plane")
    return spec.maze


def view(
    target: Target,
    env: Environment,
    goal: Sequence[float] | np.ndarray | None = None,
    rollouts: int | None = None,
    per_cell: int = POINTS_PER_CELL,
) -> View:
    """`rollouts` None: as many as cost little, so none where physics would have to be compiled first."""
    policy, layout = landscaped(target), plane_of(env.spec)
    at = goal_of(env, goal)
    truth, straight = _truth(layout, tuple(at.tolist()), per_cell, env.spec.threshold)
    field = psi_landscape(policy, layout, at, per_cell)
    shown = directions(policy, truth.points, at)
    found = View(
        label=name_of(target),
        env=env.spec.name,
        sees_direction=isinstance(policy.condition, Direction),
        landscape=field,
        truth=truth,
        directions=shown,
        basin=basin(field.distance, truth, env.spec.threshold),
        likeness=likeness(field.distance, shown, truth, env.spec.threshold),
        straight_line=straight,
    )
    count = rollouts_for(env.spec, rollouts)
    if not count:
        return found
    length = (target.config.episode_length if target.config else None) or env.spec.episode_length
    paths = tuple(drawn(path) for path in paths_toward(env, policy, at, count, length))
    visited = psi_distances(policy, np.concatenate([path.points for path in paths]), at)
    return replace(found, paths=paths, visited=visited)


@lru_cache(maxsize=8)
def _truth(layout: MazeLayout, goal: tuple[float, ...], per_cell: int, threshold: float) -> tuple[Truth, Likeness]:
    truth = true_landscape(layout, np.asarray(goal), per_cell)
    return truth, straight_line(truth, threshold)


def drawn(path: Path) -> Path:
    """Up to its success: what an agent does at the goal says nothing of the way there."""
    return path if path.reached is None else Path(path.points[: path.reached + 1], path.goal, path.reached)


def landscaped(target: Target) -> DeployedPolicy:
    if not isinstance(target.policy, DeployedPolicy):
        raise UserError(f"{target.label} holds no psi to look at: name the run's folder or its policy.safetensors")
    return target.policy


def maze_env(target: Target, env: str | None = None) -> Environment:
    """The environment whose maze is drawn: the one named, else the one that the run was evaluated on."""
    landscaped(target)
    found = environment_of(target, env)
    plane_of(found.spec)
    return found


def goal_of(env: Environment, goal: Sequence[float] | np.ndarray | None) -> np.ndarray:
    """[G]: the one asked for, else the centre of the goal cell that is farthest by path."""
    layout, size = plane_of(env.spec), env.spec.goal_size
    if goal is None:
        return np.append(farthest_goal(layout), _rest(env)).astype(np.float64)
    if len(goal) not in (2, size):
        raise UserError(f"a goal of {env.spec.name} has {size} numbers, not {len(goal)}: give --goal X Y")
    require_free(layout, np.asarray(goal[:2]))
    rest = _rest(env) if len(goal) < size else np.asarray(goal[2:])
    return np.append(np.asarray(goal[:2], np.float64), rest)


def _rest(env: Environment) -> np.ndarray:
    """What a goal has besides its place in the plane, such as a height: as in a goal that the environment draws.
    Under physics that takes half a minute, so whoever draws many views asks once."""
    if env.spec.goal_size == 2:
        return np.zeros(0)
    import jax

    return np.asarray(env.spec.split(jax.jit(env.reset)(jax.random.key(0)).obs)[1])[2:]


def rollouts_for(spec: EnvSpec, rollouts: int | None) -> int:
    if rollouts is None:
        return ROLLOUTS if spec.physics == "none" and spec.goal_size == 2 else 0
    if rollouts < 0:
        raise UserError(f"--rollouts is {rollouts}: use 0 or more")
    if rollouts and spec.goal_size != 2:
        raise UserError(f"{spec.name} has goals with a height, and no rollouts toward one: leave out --rollouts")
    return rollouts


def name_of(target: Target) -> str:
    """Method and seed where they are known."""
    method = target.config.method if target.config else target.about.get("method")
    seed = target.config.seed if target.config else target.about.get("seed")
    if method is None:
        return target.label
    return str(method) if seed is None else f"{method}, seed {seed}"


def told_apart(views: Sequence[View], targets: Sequence[Target]) -> list[View]:
    """Runs of one name in one place bear their paths too."""
    names = [(v.place, v.env, v.label) for v in views]
    return [
        replace(v, label=f"{v.label}\n{_short(t.label)}") if names.count(name) > 1 else v
        for v, t, name in zip(views, targets, names, strict=True)
    ]


def _short(path: str, width: int = 34) -> str:
    return path if len(path) <= width else f"…{path[1 - width :]}"


def colour_ranges(views: Sequence[View], kind: str = "panel") -> list[tuple[float, float]]:
    """The 1st to the 99th percentile of distances. Kinds: along each view's own paths (panel, the paper's), along all
    views' paths (common), over each view's free space (space); without paths, over the free space."""
    along = [v.landscape.distance.compressed() if v.visited is None or kind == "space" else v.visited for v in views]
    if kind == "common":
        along = [np.concatenate(along)] * len(views)
    return [_widened(*np.percentile(each, [LOW, HIGH])) for each in along]


def _widened(low: float, high: float) -> tuple[float, float]:
    """An agent that never moved has seen one distance alone."""
    return (float(low), float(high)) if high - low > 1e-6 else (float(low) - 0.5, float(high) + 0.5)


def hardly_moved(view: View) -> bool:
    """Whether the distances that a run visited are so few that colours over them show little of its field."""
    (low, high), space = colour_ranges([view])[0], colour_ranges([view], "space")[0]
    return view.visited is not None and high - low < 0.25 * (space[1] - space[0])
