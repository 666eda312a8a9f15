"""d* of the unicycle a second time, by optimising the actions themselves: no costate, no gradient of d*.

The actions are constant over a number of equal pieces, so that each piece is an arc; the least length of a path made of
arcs is never below d*, and comes down to it with more pieces.
"""

import numpy as np
from scipy.optimize import minimize

from dcp.theory.unicycle import Unicycle, seen_from


def best_found(car: Unicycle, s: np.ndarray, g: np.ndarray, pieces: int = 20, tries: int = 4) -> float:
    """The least cost over `tries` random starts. At a constant cost rate, d* is sqrt(2 c0) times the length."""
    goal = seen_from(s, g)
    prices = np.array([car.drive_price, car.turn_price])
    rng = np.random.default_rng(0)

    def squared_length(actions: np.ndarray) -> float:
        return float(np.sum(prices * actions.reshape(-1, 2) ** 2) / pieces)

    found = []
    for _ in range(tries):
        result = minimize(
            squared_length,
            rng.normal(size=2 * pieces),
            jac=lambda actions: (2 * prices * actions.reshape(-1, 2) / pieces).ravel(),
            constraints={"type": "eq", "fun": lambda actions: _end(actions) - goal},
            method="SLSQP",
            options={"maxiter": 300},
        )
        if result.success:
            found.append(np.sqrt(2 * car.c0 * result.fun))
    return float(min(found))


def _end(actions: np.ndarray) -> np.ndarray:
    """[2 pieces] -> [3]: where unit time under them leads from the origin."""
    drive, turn = actions.reshape(-1, 2).T
    time = 1 / len(drive)
    heading = np.concatenate([[0.0], np.cumsum(turn) * time])
    middle = (heading[:-1] + heading[1:]) / 2  # an arc's chord points there
    chord = drive * time * np.sinc(turn * time / 2 / np.pi)
    return np.array([np.sum(chord * np.cos(middle)), np.sum(chord * np.sin(middle)), heading[-1]])
