"""What the representation learned of a maze: |psi_g(x, y) - psi_g(g)| over its free space."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, MultipleLocator

from dcp.analysis.episodes import Path, maze_of, paths_toward
from dcp.analysis.style import BORDER, GOAL_COLOUR, INK, START_COLOUR, WALL, house_style
from dcp.deploy.policy import DeployedPolicy
from dcp.envs.base import Environment
from dcp.envs.geodesic import farthest_goal
from dcp.errors import UserError
from dcp.methods.interface import Representation
from dcp.types import Array, MazeLayout

POINTS_PER_CELL = 16


class Landscape(NamedTuple):
    layout: MazeLayout
    goal: np.ndarray  # [2]
    x: np.ndarray  # [X]: along the rows
    y: np.ndarray  # [Y]: along the columns
    distance: np.ma.MaskedArray  # [X, Y], masked inside walls


def psi_landscape(
    representation: Representation, layout: MazeLayout, goal: np.ndarray, per_cell: int = POINTS_PER_CELL
) -> Landscape:
    """Distances in the critic's space to one goal. Points on a wall's face belong to the free cell beside it."""
    x, y = (layout.scale * (np.arange(n * per_cell + 1) / per_cell - 0.5) for n in layout.walls.shape)
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).astype(np.float32)  # [X, Y, 2]

    @jax.jit
    def distance_to(goal: Array, points: Array) -> Array:
        psi_goal, psi = representation.encode_goal(goal[None]), representation.encode_goal(points)  # [1, D], [X * Y, D]
        return representation.distance(psi, psi_goal)

    distance = np.asarray(distance_to(np.asarray(goal, np.float32), points.reshape(-1, 2))).reshape(points.shape[:2])
    return Landscape(layout, np.asarray(goal), x, y, np.ma.masked_array(distance, inside_walls(layout, per_cell)))


def inside_walls(layout: MazeLayout, per_cell: int) -> np.ndarray:
    """[X, Y]: True where every cell that touches the point is a wall, or lies outside."""
    walls = np.pad(layout.walls, 1, constant_values=True)

    def touching(n: int) -> tuple[np.ndarray, np.ndarray]:
        at = np.arange(n * per_cell + 1)
        return (at + per_cell - 1) // per_cell, at // per_cell + 1  # the cells on either side, in the padded grid

    sides = touching(layout.walls.shape[0]), touching(layout.walls.shape[1])
    return np.logical_and.reduce([walls[np.ix_(i, j)] for i in sides[0] for j in sides[1]])


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


def draw_landscape(axes: Axes, landscape: Landscape, rollouts: Sequence[Path] = ()) -> QuadContourSet:
    """Filled contours, walls, rollouts up to their success, start cells and goal. -> what a colour bar describes"""
    layout, top = landscape.layout, float(landscape.distance.max())
    levels = MaxNLocator(16).tick_values(0.0, max(top, 1e-6))
    contours = axes.contourf(landscape.y, landscape.x, landscape.distance, levels=levels, cmap="YlGnBu")
    axes.contour(landscape.y, landscape.x, landscape.distance, levels=levels, colors="white", linewidths=0.5, alpha=0.6)
    draw_maze(axes, layout)
    for path in rollouts:
        points = path.points if path.reached is None else path.points[: path.reached + 1]
        for colour, width in (("white", 2.8), (INK, 1.3)):  # a pale rim keeps the line legible on dark ground
            line = {"color": colour, "linewidth": width, "solid_joinstyle": "round", "solid_capstyle": "round"}
            axes.plot(points[:, 1], points[:, 0], zorder=5, **line)
    starts = layout.cells("r")
    marks = {"markeredgecolor": "white", "markeredgewidth": 1.2, "linestyle": "none", "zorder": 6}
    axes.plot(starts[:, 1], starts[:, 0], marker="o", markersize=9, color=START_COLOUR, label="start", **marks)
    x, y = landscape.goal
    axes.plot([y], [x], marker="*", markersize=18, color=GOAL_COLOUR, label="goal g", **marks)
    return contours


def landscape_figure(
    policy: DeployedPolicy,
    env: Environment,
    title: str,
    goal: np.ndarray | None = None,
    num_rollouts: int = 6,
    episode_length: int | None = None,
) -> Figure:
    """The landscape of a policy, with its own deterministic episodes. Default goal: the farthest by path."""
    layout = maze_of(env.spec)
    if policy.spec.goal_size != env.spec.goal_size or policy.spec.state_size != env.spec.state_size:
        raise UserError(f"this policy was trained on {policy.spec.name}: {env.spec.name} has other sizes")
    goal = farthest_goal(layout) if goal is None else np.asarray(goal, np.float32)
    length = episode_length or env.spec.episode_length
    rollouts = paths_toward(env, policy, goal, num_rollouts, length) if num_rollouts else []
    landscape = psi_landscape(policy.representation, layout, goal)
    with house_style():
        rows, columns = layout.walls.shape
        figure = Figure(figsize=(5.0 * max(1.0, columns / rows) + 0.9, 5.0), layout="constrained")
        axes = figure.add_subplot()
        contours = draw_landscape(axes, landscape, rollouts)
        if rollouts:
            reached = sum(path.reached is not None for path in rollouts)
            axes.plot([], [], color=INK, linewidth=1.3, label=f"rollouts ({reached} of {len(rollouts)} reach g)")
        colour_bar(figure, axes, contours)
        figure.suptitle(title, fontsize=11)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def colour_bar(figure: Figure, axes: Axes, contours: QuadContourSet) -> None:
    bar = figure.colorbar(contours, ax=axes, shrink=0.9, ticks=MaxNLocator(6))
    bar.set_label(r"$\Vert\psi_g(x, y) - \psi_g(g)\Vert$", color=INK)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
