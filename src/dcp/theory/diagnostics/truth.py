"""The true way to a goal, in the goal's own coordinates: along a maze's paths, else straight."""

from typing import Any, ClassVar, Protocol

import numpy as np

from dcp.envs.plane import has_plane, unit
from dcp.envs.pushing import things_of
from dcp.envs.true_paths import TruePaths
from dcp.types import EnvSpec, MazeLayout


class Truth(Protocol):
    name: ClassVar[str]

    def lengths(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """[K, G], [K, G] -> [K]: how far it is; inf where no way leads"""
        ...

    def directions(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """[K, G], [K, G] -> [K, G]: the unit vector that shortens the way fastest; nan where there is none"""
        ...

    def between(self, a: np.ndarray, b: np.ndarray, share: np.ndarray) -> np.ndarray:
        """[K, G], [K, G], [K] -> [K, G]: the point after this share of the way; nan where none leads"""
        ...


class PathTruth:
    """Shortest paths of a point without size through the maze. What goals have besides the plane is not compared."""

    name: ClassVar[str] = "path"

    def __init__(self, layout: MazeLayout):
        self.paths = TruePaths(layout)

    def lengths(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.paths.lengths(a[:, :2], b[:, :2])

    def directions(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        in_plane = self.paths.directions(a[:, :2], b[:, :2])
        return np.concatenate([in_plane, np.zeros((len(a), a.shape[1] - 2))], axis=1)

    def between(self, a: np.ndarray, b: np.ndarray, share: np.ndarray) -> np.ndarray:
        routes = self.paths.routes(a[:, :2], b[:, :2])
        nowhere = np.full(2, np.nan)
        points = [route.at(s) if len(route.points) else nowhere for route, s in zip(routes, share, strict=True)]
        rest = a[:, 2:] + share[:, None] * (b - a)[:, 2:]
        return np.concatenate([np.stack(points), rest], axis=1)


class StraightTruth:
    name: ClassVar[str] = "straight"

    def lengths(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.linalg.norm(b - a, axis=1)

    def directions(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        far = self.lengths(a, b)[:, None] > 0.0
        return np.where(far, unit(np.asarray(b - a, float)), np.nan)

    def between(self, a: np.ndarray, b: np.ndarray, share: np.ndarray) -> np.ndarray:
        return a + share[:, None] * (b - a)


def leads_through_things(env: Any) -> bool:
    """Whether the true way takes no notice of something that stands in it until it is pushed away."""
    return has_plane(env.spec) and any(not thing.acts for thing in things_of(env))


def truth_of(spec: EnvSpec) -> Truth:
    return PathTruth(spec.maze) if spec.maze is not None and has_plane(spec) else StraightTruth()
