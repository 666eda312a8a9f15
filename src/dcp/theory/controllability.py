"""Theorem 3: only the part of the gradient that lies in im G(s) reaches the action."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from dcp.theory.system import Terms, feedback, unit


def controllable_part(G: np.ndarray, p: np.ndarray) -> np.ndarray:  # noqa: N803
    """[n, m], [n] -> [n]: the projection of p onto im G."""
    return G @ np.linalg.pinv(G) @ p


def controllable_share(G: np.ndarray, p: np.ndarray) -> float:  # noqa: N803
    """rho: how much of the gradient's norm actions can move, 0 to 1."""
    return float(np.linalg.norm(controllable_part(G, p)) / np.linalg.norm(p))


def action_bounds(terms: Terms, p: np.ndarray) -> tuple[float, float]:
    """What the projection's norm says of |a*|: (iii)'s lower bound with its constant written out, and (ii)'s upper."""
    part = np.linalg.norm(controllable_part(terms.G, p))
    gains = np.linalg.svd(terms.G, compute_uv=False)
    weakest = gains[gains > 1e-12 * gains[0]][-1]
    prices = np.linalg.eigvalsh(terms.R)
    return float(weakest / prices[-1] * part), float(gains[0] / prices[0] * part)


def regret(terms: Terms, p: np.ndarray, action: np.ndarray) -> float:
    """How much worse than a* an action is in HJB's bracket: |a - a*|^2 in R, halved."""
    gap = action - feedback(terms, p)
    return float(gap @ terms.R @ gap / 2)


def orientation_errors(terms: Terms, p: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """[K, n] -> [K]: the angle by which a* turns when the unit direction of p is off by each row of `noise`."""
    true = unit(feedback(terms, unit(p)))
    seen = np.array([unit(feedback(terms, unit(p) + error)) for error in noise])
    return np.arccos(np.clip(seen @ true, -1, 1))


def minimising_action(
    cost: Callable[[np.ndarray], float], motion: Callable[[np.ndarray], np.ndarray], p: np.ndarray, m: int
) -> np.ndarray:
    """[m]: argmin_a cost(a) + p'f(a), for any cost and dynamics: part (i) does not ask for a quadratic one."""
    return minimize(lambda a: cost(a) + p @ motion(a), np.full(m, 0.1), method="BFGS", options={"gtol": 1e-9}).x
