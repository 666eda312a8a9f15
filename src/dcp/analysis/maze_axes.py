"""A maze on Matplotlib's axes: walls, contours over the free space, paths, start and goal, arrows."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, MultipleLocator

from dcp.analysis.episodes import Path
from dcp.analysis.landscape import Landscape
from dcp.analysis.style import BLUE, BORDER, GOAL_COLOUR, INK, START_COLOUR, VERMILION, WALL
from dcp.types import MazeLayout

CONTOURS = 16
REGION = "#D6E8F2"
COLOURS = "YlGnBu"  # light is near: the order survives grey print and every kind of colour blindness


def draw_maze(axes: Axes, layout: MazeLayout) -> None:
    """Walls as solid cells, as in the layout's text: x (row) runs downwards, y (column) to the right."""
    scale = layout.scale
    for i, j in np.argwhere(layout.walls):
        corner = ((j - 0.5) * scale, (i - 0.5) * scale)
        axes.add_patch(Rectangle(corner, scale, scale, facecolor=WALL, linewidth=0, antialiased=False, zorder=3))
    rows, columns = layout.walls.shape
    near, far = 0.5 - BORDER, 1.5 - BORDER  # only the inner rim of the outermost cells is shown
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


def draw_landscape(
    axes: Axes, landscape: Landscape, rollouts: Sequence[Path] = (), limits: tuple[float, float] | None = None
) -> QuadContourSet:
    """Filled contours, walls, rollouts up to their success, start cells and goal. -> what a colour bar describes

    `limits`: the colours' range; what lies beyond has the colour at its end.
    """
    low, high = limits or (0.0, max(float(landscape.distance.max()), 1e-6))
    levels = MaxNLocator(CONTOURS).tick_values(low, high) if limits is None else np.linspace(low, high, CONTOURS + 1)
    distance = np.ma.masked_invalid(landscape.distance)
    extend = _beyond(distance, low, high)
    contours = axes.contourf(landscape.y, landscape.x, distance, levels=levels, cmap=COLOURS, extend=extend)
    axes.contour(landscape.y, landscape.x, distance, levels=levels, colors="white", linewidths=0.5, alpha=0.6)
    draw_maze(axes, landscape.layout)
    draw_paths(axes, rollouts)
    draw_ends(axes, landscape)
    return contours


def _beyond(distance: np.ma.MaskedArray, low: float, high: float) -> str:
    """At which ends of the colours there are distances beyond."""
    under, over = bool((distance < low).any()), bool((distance > high).any())
    return {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[under, over]


def draw_paths(axes: Axes, rollouts: Sequence[Path]) -> None:
    for path in rollouts:
        points = path.points if path.reached is None else path.points[: path.reached + 1]
        for colour, width in (("white", 2.8), (INK, 1.3)):  # a pale rim keeps the line legible on dark ground
            line = {"color": colour, "linewidth": width, "solid_joinstyle": "round", "solid_capstyle": "round"}
            axes.plot(points[:, 1], points[:, 0], zorder=5, **line)


def draw_ends(axes: Axes, landscape: Landscape, size: float = 1.0) -> None:
    """Where episodes start, and the goal."""
    starts = landscape.layout.cells("r")
    marks = {"markeredgecolor": "white", "markeredgewidth": 1.2, "linestyle": "none", "zorder": 6}
    axes.plot(starts[:, 1], starts[:, 0], marker="o", markersize=9 * size, color=START_COLOUR, label="start", **marks)
    x, y = landscape.goal[:2]
    axes.plot([y], [x], marker="*", markersize=18 * size, color=GOAL_COLOUR, label="goal g", **marks)


def draw_region(axes: Axes, landscape: Landscape, inside: np.ndarray) -> None:
    """A pale ground over the points [X, Y] of a region."""
    axes.contourf(landscape.y, landscape.x, inside.astype(float), levels=[0.5, 1.5], colors=[REGION], zorder=1)


def draw_arrows(axes: Axes, points: np.ndarray, ways: np.ndarray, nearer: np.ndarray, length: float) -> None:
    """Unit vectors [K, 2] about points [K, 2]: blue where they lead nearer to the goal, else vermilion."""
    for which, colour in ((nearer, BLUE), (~nearer, VERMILION)):
        x, y = points[which].T
        u, v = length * ways[which].T
        axes.quiver(
            y,
            x,
            v,
            u,
            color=colour,
            angles="xy",
            scale_units="xy",
            scale=1.0,
            pivot="mid",
            width=0.0075,
            headwidth=4.2,
            headlength=4.2,
            headaxislength=3.8,
            zorder=4,
        )
