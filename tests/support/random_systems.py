"""Systems drawn at random from a seed, with states at which their d* is smooth."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from tools.theory.control_systems import Curved, Linear, Terms

SEEDS = st.integers(0, 2**32 - 1)


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


def positive_definite(matrix: np.ndarray) -> np.ndarray:
    """M'M + 1: from any square matrix one that serves as R, never close to singular."""
    return matrix.T @ matrix + np.eye(len(matrix))


def curved(rng: np.random.Generator, curvature: float | None = None) -> Curved:
    """Two or three dimensions, curvature -0.3 to 0.6: the states below keep off the far side of the sphere."""
    n = int(rng.integers(2, 4))
    turned, _ = np.linalg.qr(rng.normal(size=(n, n)))
    return Curved(
        B=turned * rng.uniform(0.25, 0.6, n),
        curvature=rng.uniform(-0.3, 0.6) if curvature is None else curvature,
        bend=rng.uniform(-0.5, 0.5),
        R0=positive_definite(rng.normal(size=(n, n))),
        R_swing=rng.uniform(-0.5, 0.5),
        c0=rng.uniform(0.2, 3.0),
    )


def linear(rng: np.random.Generator) -> Linear:
    """Two states, two actions, with drift of either kind."""
    return Linear(
        A=rng.uniform(-0.5, 0.5, (2, 2)),
        G=np.eye(2) + rng.uniform(-0.3, 0.3, (2, 2)),
        R=positive_definite(rng.uniform(-1, 1, (2, 2))),
        c0=rng.uniform(0.5, 2.0),
        wind=rng.uniform(-0.5, 0.5, 2),
        longest=8.0,
    )


def ends(rng: np.random.Generator, n: int, apart: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """s and g, not too close: d* has a corner at its goal."""
    while True:
        s, g = rng.uniform(-1, 1, (2, n))
        if np.linalg.norm(s - g) > apart:
            return s, g


def random_terms(rng: np.random.Generator, n: int = 5, m: int = 3, rank: int = 3) -> Terms:
    """A system at one state, underactuated and with drift."""
    G = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, m))  # noqa: N806
    return Terms(rng.normal(size=n), G, positive_definite(rng.normal(size=(m, m))), float(rng.uniform(0.2, 3.0)))
