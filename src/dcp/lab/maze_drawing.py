"""Draw a maze from above: on Matplotlib's axes for figures, and with Pillow for moving pictures."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MultipleLocator
from PIL import Image, ImageDraw

from dcp.envs.point_tasks import Thing
from dcp.lab.style import BLUE, BORDER, FREE, GOAL_COLOUR, GREEN, ORANGE, PURPLE, SKY, WALL
from dcp.types import MazeLayout

SMOOTH = 3  # drawn this many times larger, then reduced
POINT_RADIUS = 0.085  # cells
ARROW, ARROW_HEAD = 0.38, 0.12  # cells


def draw_maze(axes: Axes, layout: MazeLayout) -> None:
    """Draw walls as solid cells, as in the layout's text: x (row) runs downwards, y (column) to the right."""
    scale = layout.scale
    for i, j in np.argwhere(layout.walls):
        corner = ((j - 0.5) * scale, (i - 0.5) * scale)
        axes.add_patch(Rectangle(corner, scale, scale, facecolor=WALL, linewidth=0, antialiased=False, zorder=3))
    rows, columns = layout.walls.shape
    near, far = 0.5 - BORDER, 1.5 - BORDER  # only the inner edge of the outer walls is shown
    axes.set_xlim(near * scale, (columns - far) * scale)
    axes.set_ylim((rows - far) * scale, near * scale)
    axes.set_aspect("equal")
    axes.xaxis.set_major_locator(MultipleLocator(scale * max(1, columns // 10)))
    axes.yaxis.set_major_locator(MultipleLocator(scale * max(1, rows // 10)))
    axes.set_xlabel("y (column)")
    axes.set_ylabel("x (row, downwards)")
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0)


def draw_arrows(axes: Axes, points: np.ndarray, ways: np.ndarray, length: float, **look: Any) -> None:
    """Draw unit vectors [K, 2] about points [K, 2]; x (row) runs downwards."""
    head = {"headwidth": 4.2, "headlength": 4.2, "headaxislength": 3.8, "zorder": 4}
    placed = {"angles": "xy", "scale_units": "xy", "scale": 1.0, "pivot": "mid"}
    axes.quiver(points[:, 1], points[:, 0], length * ways[:, 1], length * ways[:, 0], **placed, **head, **look)


def arrows_per_cell(layout: MazeLayout) -> int:
    """Return the number of arrows per cell side: fewer in a large maze, to keep them apart."""
    return 4 if max(layout.walls.shape) <= 6 else 2


class MazeCanvas:
    """Draw the walls once, and copies with whatever moves. Rows run downwards, as in the maze's text."""

    def __init__(self, layout: MazeLayout, threshold: float, width: int, height: int):
        """Make it as large as fits into this many pixels."""
        self.layout, self.threshold = layout, threshold
        rows, columns = layout.walls.shape
        rim = 2.0 * (1.0 - BORDER)  # cells of the outer walls that are cut away
        self.cell = round(SMOOTH * min(width / (columns - rim), height / (rows - rim)))
        self.size = tuple(SMOOTH * round((n - rim) * self.cell / SMOOTH) for n in (columns, rows))
        self.maze = Image.new("RGB", self.size, FREE)
        draw = ImageDraw.Draw(self.maze)
        for i, j in np.argwhere(layout.walls):
            corner, opposite = ((np.array((i, j)) + side) * layout.scale for side in (-0.5, 0.5))
            draw.rectangle((*self._pixel(corner), *self._pixel(opposite)), fill=WALL)

    def picture(
        self,
        goal: np.ndarray,
        trail: np.ndarray,
        subgoal: np.ndarray | None = None,
        direction: np.ndarray | None = None,
        things: Sequence[tuple[Thing, np.ndarray]] = (),
    ) -> Image.Image:
        """goal [2]; trail [K, 2], which ends where the point is; subgoal [2]; direction [2], a unit vector or zero.

        things: each with its place [2]; without any, a point where the trail ends.
        """
        large = self.maze.copy()
        draw = ImageDraw.Draw(large)
        self._disc(draw, goal, self.threshold / self.layout.scale, GOAL_COLOUR)
        if subgoal is not None:
            self._disc(draw, subgoal, 0.8 * self.threshold / self.layout.scale, PURPLE)
        if len(trail) > 1:
            line = [self._pixel(point) for point in trail]
            draw.line(line, fill=SKY, width=max(2 * SMOOTH, self.cell // 24), joint="curve")
        for thing, place in things:
            self._thing(draw, thing, place)
        if things:  # what is pushed may cover the goal
            self._disc(draw, goal, self.threshold / self.layout.scale, None, GOAL_COLOUR)
        if direction is not None and np.any(direction):
            self._arrow(draw, trail[-1], direction)
        if not things:
            self._disc(draw, trail[-1], POINT_RADIUS, BLUE)
        return large.resize((self.size[0] // SMOOTH, self.size[1] // SMOOTH), Image.Resampling.BOX)

    def _pixel(self, point: np.ndarray) -> tuple[float, float]:
        x, y = np.asarray(point) / self.layout.scale - (0.5 - BORDER)  # cells from the picture's upper left corner
        return float(y) * self.cell, float(x) * self.cell

    def _disc(
        self, draw: ImageDraw.ImageDraw, centre: np.ndarray, radius: float, colour: str | None, rim: str | None = None
    ) -> None:
        """Return the disc's radius in cells. A goal's disc is exactly the area in which it counts as reached."""
        draw.ellipse(self._around(centre, radius), fill=colour, outline=rim, width=max(SMOOTH, self.cell // 40))

    def _thing(self, draw: ImageDraw.ImageDraw, thing: Thing, place: np.ndarray) -> None:
        size, colour = thing.size / self.layout.scale, BLUE if thing.acts else ORANGE
        if thing.shape == "square":
            draw.rectangle(self._around(place, size), fill=colour)
        else:
            self._disc(draw, place, size, colour)

    def _around(self, centre: np.ndarray, half: float) -> tuple[float, float, float, float]:
        """Return the square of this many cells each way, in pixels."""
        u, v = self._pixel(centre)
        return u - half * self.cell, v - half * self.cell, u + half * self.cell, v + half * self.cell

    def _arrow(self, draw: ImageDraw.ImageDraw, start: np.ndarray, direction: np.ndarray) -> None:
        along = np.asarray(direction)[::-1]  # on the page: right, down
        across = np.array([-along[1], along[0]])
        foot = np.array(self._pixel(start))
        tip, neck = foot + ARROW * self.cell * along, foot + (ARROW - ARROW_HEAD) * self.cell * along
        side = 0.6 * ARROW_HEAD * self.cell * across
        draw.line([tuple(foot), tuple(neck)], fill=GREEN, width=max(2 * SMOOTH, self.cell // 18))
        draw.polygon([tuple(tip), tuple(neck + side), tuple(neck - side)], fill=GREEN)
