"""What one picture shows, whichever way it is drawn; and the colours of what is drawn into it."""

from typing import NamedTuple

import numpy as np

from dcp.analysis.style import GOAL_COLOUR, GREEN, PURPLE, SKY

SUBGOAL_COLOUR, DIRECTION_COLOUR, TRAIL_COLOUR = PURPLE, GREEN, SKY
COLOURS = {"goal": GOAL_COLOUR, "subgoal": SUBGOAL_COLOUR, "direction": DIRECTION_COLOUR, "trail": TRAIL_COLOUR}


class Moment(NamedTuple):
    """One step of an episode. Coordinates are the goal's: x, y and, where goals have a height, z."""

    achieved: np.ndarray  # [G]
    goal: np.ndarray  # [G]
    q: np.ndarray | None = None  # [Q]: the bodies' pose, under simulated physics; or the places of things in a plane
    trail: np.ndarray | None = None  # [K, G]: what was achieved so far
    direction: np.ndarray | None = None  # [2]: a unit vector in the plane, or zero
    subgoal: np.ndarray | None = None  # [G]
    watched: np.ndarray | None = None  # [3]: what a tracking camera looks at; else the body itself
