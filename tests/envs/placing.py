"""Random places for a point and what it pushes."""

import numpy as np

from dcp.envs.pushing import POINT_RADIUS, PointPushing


def placed(env: PointPushing, rng: np.random.Generator, count: int) -> np.ndarray:
    """q [K, 6]: any free places for both that do not overlap, many of them close to each other; any goal"""
    found: list[np.ndarray] = []
    cells = env.layout.cells("rg.")
    while len(found) < count:
        thing = rng.choice(cells) + rng.uniform(-1, 1, 2) * (0.499 - env.size)
        point = rng.choice(cells) + rng.uniform(-1, 1, 2) * (0.499 - POINT_RADIUS)
        away = np.abs(thing - point)
        apart = np.linalg.norm(np.maximum(away - env.size, 0.0) if env.shape == "square" else away)
        if apart > POINT_RADIUS + (env.size if env.shape == "disc" else 0.0) and (np.max(away) < 1.3 or len(found) % 4):
            found.append(np.concatenate([point, thing, rng.choice(cells)]))
    return np.asarray(found, np.float32)
