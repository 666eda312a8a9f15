"""Goal, subgoal, direction and trail as geoms of MuJoCo's scene: they are in the picture and not in the model."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dcp.analysis.style import GOAL_COLOUR
from dcp.render.model import rgb
from dcp.render.moment import DIRECTION_COLOUR, SUBGOAL_COLOUR, TRAIL_COLOUR, Moment

if TYPE_CHECKING:
    import mujoco

UPRIGHT = np.eye(3)
TRAIL_PIECES = 120
# In thresholds: the mark's height on the floor, that of the light above it, and an arrow's length and thickness.
DISC, BEAM = 0.04, 3.0
ARROW, ARROW_WIDTH = 3.0, 0.12
# A mark shines by itself, so that its colour does not depend on the lamp.
EMISSION = 0.5


def add_overlays(scene: "mujoco.MjvScene", moment: Moment, radius: float, floor: float) -> None:
    """`radius` is the threshold: within it a goal counts as reached."""
    if moment.trail is not None:
        _trail(scene, moment.trail, radius, floor)
    if moment.subgoal is not None:
        _place(scene, moment.subgoal, radius, floor, SUBGOAL_COLOUR)
    _place(scene, moment.goal, radius, floor, GOAL_COLOUR)
    if moment.direction is not None:
        _arrow(scene, moment, radius, floor)


def _place(scene: Any, goal: np.ndarray, radius: float, floor: float, colour: str) -> None:
    """A goal with a height is reached within a ball; one without, anywhere above its disc."""
    import mujoco

    if len(goal) >= 3:
        _geom(scene, mujoco.mjtGeom.mjGEOM_SPHERE, [radius] * 3, goal[:3], colour, 0.55)
        return
    x, y = goal[:2]
    cylinder, thickness, height = mujoco.mjtGeom.mjGEOM_CYLINDER, DISC * radius, BEAM * radius
    _geom(scene, cylinder, [radius, radius, thickness], [x, y, floor + thickness], colour, 1.0)
    _geom(scene, cylinder, [radius, radius, height / 2], [x, y, floor + height / 2], colour, 0.25)


def _arrow(scene: Any, moment: Moment, radius: float, floor: float) -> None:
    """From the body into the direction, just above it."""
    import mujoco

    assert moment.direction is not None
    if not np.any(moment.direction):
        return
    height = moment.achieved[2] if len(moment.achieved) >= 3 else floor + 2.0 * radius
    start = np.array([*moment.achieved[:2], height])
    end = start + ARROW * radius * np.append(moment.direction, 0.0)
    geom = _geom(scene, mujoco.mjtGeom.mjGEOM_ARROW, [radius] * 3, start, DIRECTION_COLOUR, 1.0)
    mujoco.mjv_connector(geom, mujoco.mjtGeom.mjGEOM_ARROW, ARROW_WIDTH * radius, start, end)


def _trail(scene: Any, trail: np.ndarray, radius: float, floor: float) -> None:
    import mujoco

    points = trail[:: max(1, -(-len(trail) // TRAIL_PIECES))]
    points = np.column_stack([points[:, :2], np.full(len(points), floor + 0.02 * radius)]).astype(np.float64)
    for start, end in pairwise(points):
        geom = _geom(scene, mujoco.mjtGeom.mjGEOM_CAPSULE, [radius] * 3, start, TRAIL_COLOUR, 1.0)
        mujoco.mjv_connector(geom, mujoco.mjtGeom.mjGEOM_CAPSULE, 0.08 * radius, start, end)


def _geom(scene: Any, kind: Any, size: Any, pos: Any, colour: str, alpha: float) -> Any:
    import mujoco

    geom = scene.geoms[scene.ngeom]
    rgba = np.array([*rgb(colour), alpha], np.float32)
    mujoco.mjv_initGeom(geom, kind, np.asarray(size, float), np.asarray(pos, float), UPRIGHT.ravel(), rgba)
    geom.emission, geom.specular, geom.transparent = EMISSION, 0.0, int(alpha < 1.0)
    geom.category = mujoco.mjtCatBit.mjCAT_DECOR
    scene.ngeom += 1
    return geom
