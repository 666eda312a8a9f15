"""Goal, subgoal, direction and trail as geoms of MuJoCo's scene: they are in the picture and not in the model."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dcp.analysis.style import GOAL_COLOUR
from dcp.render.cameras import View
from dcp.render.model import rgb
from dcp.render.moment import DIRECTION_COLOUR, SUBGOAL_COLOUR, TRAIL_COLOUR, Moment

if TYPE_CHECKING:
    import mujoco

UPRIGHT = np.eye(3)
TRAIL_PIECES = 120
DISC, BEAM = 0.04, 3.0  # thresholds: the height of a mark on the floor, and that of the light above it
ARROW, ARROW_WIDTH, TRAIL_WIDTH = 0.1, 0.005, 0.004  # of the width of what is seen
EMISSION = 0.4  # what shines by itself shows its colour in the shade too


def add_overlays(scene: "mujoco.MjvScene", moment: Moment, radius: float, view: View) -> None:
    """`radius` is the threshold: within it a goal counts as reached."""
    if moment.trail is not None:
        _trail(scene, moment.trail, view)
    if moment.subgoal is not None:
        _place(scene, moment.subgoal, radius, view.floor, SUBGOAL_COLOUR)
    _place(scene, moment.goal, radius, view.floor, GOAL_COLOUR)
    if moment.direction is not None:
        _arrow(scene, moment, radius, view)


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


def _arrow(scene: Any, moment: Moment, radius: float, view: View) -> None:
    """From the body into the direction, just above it."""
    import mujoco

    assert moment.direction is not None
    if not np.any(moment.direction):
        return
    height = moment.achieved[2] + 1.2 * radius if len(moment.achieved) >= 3 else view.floor + 2.0 * radius
    start = np.array([*moment.achieved[:2], height])
    # MuJoCo draws an arrow half as long as it is told.
    end = start + 2.0 * ARROW * view.width * np.append(moment.direction, 0.0)
    geom = _geom(scene, mujoco.mjtGeom.mjGEOM_ARROW, [1.0] * 3, start, DIRECTION_COLOUR, 1.0)
    mujoco.mjv_connector(geom, mujoco.mjtGeom.mjGEOM_ARROW, ARROW_WIDTH * view.width, start, end)


def _trail(scene: Any, trail: np.ndarray, view: View) -> None:
    """Of flat boxes: round ones are a hundred times as many triangles."""
    import mujoco

    points, thick = trail[:: max(1, -(-len(trail) // TRAIL_PIECES)), :2], TRAIL_WIDTH * view.width
    for start, end in pairwise(points):
        length = float(np.linalg.norm(end - start))
        if length > 0.0:
            x, y = (end - start) / length
            turn = np.array([[x, -y, 0.0], [y, x, 0.0], [0.0, 0.0, 1.0]])
            place, size = [*(start + end) / 2, view.floor], [length / 2 + thick / 2, thick, thick]
            _geom(scene, mujoco.mjtGeom.mjGEOM_BOX, size, place, TRAIL_COLOUR, 1.0, turn)


def _geom(scene: Any, kind: Any, size: Any, pos: Any, colour: str, alpha: float, turn: np.ndarray = UPRIGHT) -> Any:
    import mujoco

    geom = scene.geoms[scene.ngeom]
    rgba = np.array([*rgb(colour), alpha], np.float32)
    mujoco.mjv_initGeom(geom, kind, np.asarray(size, float), np.asarray(pos, float), turn.ravel(), rgba)
    geom.emission, geom.specular, geom.transparent = EMISSION * (alpha < 1.0), 0.0, int(alpha < 1.0)
    geom.category = mujoco.mjtCatBit.mjCAT_DECOR
    scene.ngeom += 1
    return geom
