"""The picture of point_soccer and point_push: walls, starts and goals from above, to scale.

    python docs/environments/plans.py

Green: start. Vermilion: goals. Blue: what acts. Orange: what is pushed.
"""

from pathlib import Path

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Annulus, Circle, Rectangle

from dcp.envs.point_tasks import BALL_DISTANCE, CENTRE, TARGET_DISTANCE, PointPush, PointSoccer
from dcp.lab.style import BLUE, GOAL_COLOUR, ORANGE, START_COLOUR, WALL, house_style, save

HERE = Path(__file__).parent


def plan(axes: Axes, env: PointSoccer | PointPush) -> None:
    """x (row) downwards, y (column) to the right, as mazes lie."""
    name = env.spec.name
    body, goal = env.spec.split(np.asarray(env.reset(jax.random.key(3)).obs))
    rows, columns = env.layout.walls.shape
    for i, j in np.argwhere(env.layout.walls):
        axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=WALL, linewidth=0))
    if name == "point_soccer":
        _mark_soccer(axes, env.spec.threshold)
    else:
        for centre in env.layout.cells("g"):
            axes.add_patch(Circle(centre[::-1], env.spec.threshold, facecolor=GOAL_COLOUR, linewidth=0))
    for thing in env.things:
        x, y = body[list(thing.dims)]
        colour = BLUE if thing.acts else ORANGE
        if thing.shape == "disc":
            axes.add_patch(Circle((y, x), thing.size, facecolor=colour, linewidth=0, zorder=4))
        else:
            corner = (y - thing.size, x - thing.size)
            axes.add_patch(Rectangle(corner, 2 * thing.size, 2 * thing.size, facecolor=colour, linewidth=0, zorder=4))
    axes.add_patch(Circle(body[:2][::-1], 0.3, fill=False, edgecolor=START_COLOUR, linewidth=1.8, zorder=5))
    if name == "point_soccer":
        axes.add_patch(Circle(goal[::-1], env.spec.threshold, facecolor=GOAL_COLOUR, linewidth=0, zorder=3))
    axes.set(xlim=(0.25, columns - 1.25), ylim=(rows - 1.25, 0.25), aspect="equal", title=name, xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.grid(False)


def _mark_soccer(axes: Axes, threshold: float) -> None:
    band = {"facecolor": GOAL_COLOUR, "alpha": 0.2, "zorder": 2}
    axes.add_patch(Annulus(CENTRE, TARGET_DISTANCE + threshold, 2 * threshold, **band))
    for radius, colour in ((TARGET_DISTANCE, GOAL_COLOUR), (BALL_DISTANCE, ORANGE)):
        axes.add_patch(Circle(CENTRE, radius, fill=False, edgecolor=colour, linewidth=1.2, zorder=2))


def figure_of_both() -> Figure:
    with house_style():
        figure = Figure(figsize=(6.4, 3.0), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[5.5, 6.5])
        plan(left, PointSoccer())
        plan(right, PointPush())
    return figure


if __name__ == "__main__":
    print(save(figure_of_both(), HERE / "pushing.png"))
