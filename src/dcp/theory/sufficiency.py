"""Theorem 1: the optimal action depends on the goal through the gradient of d* alone, and how.

`hjb_action` finds the action from values of d* only, without its gradient and without the law, so that the two can be
held against each other.
"""

from collections.abc import Callable
from itertools import combinations

import numpy as np
from scipy.optimize import minimize

from dcp.theory.system import System, Terms, running_cost, velocity

STEP = 1e-4  # of the central difference along the motion


def hjb_action(system: System, s: np.ndarray, g: np.ndarray, largest: float | None = None) -> np.ndarray:
    """[m]: argmin_a c(s, a) + the rate at which d*(., g) changes along f(s, a); within a box, if `largest` is given."""
    terms = system.terms(s)

    def bracket(action: np.ndarray) -> float:
        motion = STEP * velocity(terms, action)
        change = system.distance(s + motion, g) - system.distance(s - motion, g)
        return running_cost(terms, action) + float(change) / (2 * STEP)

    m = terms.G.shape[1]
    if largest is None:
        return _newton(bracket, np.zeros(m))
    return minimize(bracket, np.zeros(m), method="Powell", bounds=[(-largest, largest)] * m).x


def _newton(objective: Callable[[np.ndarray], float], x: np.ndarray, step: float = 0.1) -> np.ndarray:
    """The minimum by Newton's method on values alone: the differences are wide, because the values are rounded."""
    m = len(x)
    unit_steps = step * np.eye(m)
    for _ in range(20):
        ahead, behind = (np.array([objective(x + sign * e) for e in unit_steps]) for sign in (1, -1))
        here = objective(x)
        hessian = np.diag(ahead + behind - 2 * here)
        for i, j in combinations(range(m), 2):
            both = objective(x + unit_steps[i] + unit_steps[j])
            hessian[i, j] = hessian[j, i] = both - ahead[i] - ahead[j] + here
        move = -step * np.linalg.solve(hessian, (ahead - behind) / 2)
        x = x + move
        if np.linalg.norm(move) < 1e-6:
            break
    return x


def magnitude_from_direction(terms: Terms, direction: np.ndarray) -> float:
    """|grad d*|, from its unit direction u alone: HJB, c0 + r u'f0 - r^2 u'Du/2 = 0, has one positive root if c0 > 0.

    So with a price of time the direction says everything: the magnitude that theorem 1 asks for besides is no news.
    """
    along, stiff = direction @ terms.f0, direction @ terms.D @ direction
    return float((along + np.sqrt(along**2 + 2 * terms.c0 * stiff)) / stiff)
