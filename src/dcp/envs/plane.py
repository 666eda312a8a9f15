"""Goals as points of a maze's plane, and vectors in it."""

import numpy as np

from dcp.types import EnvSpec


def has_plane(spec: EnvSpec) -> bool:
    """Whether goals lie in a maze's plane; they may have a height besides."""
    return spec.maze is not None and spec.maze_dims == spec.goal_dims[:2]


def goals_at(points: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """[K, 2] -> [K, G]: what else a goal has, such as a height, is the goal's own everywhere."""
    rest = np.broadcast_to(np.asarray(goal)[2:], (len(points), len(goal) - 2))
    return np.concatenate([points, rest], axis=1).astype(np.float32)


def unit(vectors: np.ndarray) -> np.ndarray:
    """[..., G] of length one; zero stays zero."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0.0)
