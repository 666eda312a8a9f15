"""Landscapes as figures: one run by itself, or several side by side with the maze's true distances."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from dcp.analysis.episodes import maze_of, paths_toward
from dcp.analysis.landscape import Landscape, psi_landscape
from dcp.analysis.landscape_view import View, colour_ranges
from dcp.analysis.maze_axes import REGION, draw_arrows, draw_ends, draw_landscape, draw_maze, draw_region
from dcp.analysis.path_likeness import Likeness, arrows_per_cell
from dcp.analysis.style import BLUE, GOAL_COLOUR, INK, START_COLOUR, VERMILION, house_style
from dcp.envs.base import Environment
from dcp.envs.geodesic import farthest_goal
from dcp.errors import UserError
from dcp.policies.policy import DeployedPolicy

PSI_LABEL = r"$\Vert\psi_g(x, y) - \psi_g(g)\Vert$"
RHO = "\u03c1"
COLUMNS = 5  # panels in a row, the maze's own among them
PANEL = 2.75  # inches


class Strip(NamedTuple):
    """One row of panels: views of one place, the first row of a place led by its truth."""

    views: list[View]
    ranges: list[tuple[float, float]]
    with_truth: bool

    @property
    def columns(self) -> int:
        return len(self.views) + self.with_truth


def landscapes_figure(views: Sequence[View], colours: str = "panel", with_directions: bool = True) -> Figure:
    """Every view with the true distances of its maze at the left; below each, which way it points.

    `colours`: a kind of `colour_ranges`.
    """
    strips = _strips(views, colours)
    heights = [height for strip in strips for height in _heights(strip, with_directions)]
    columns = max(strip.columns for strip in strips)
    with house_style():
        room = ConstrainedLayoutEngine(h_pad=0.1)
        figure = Figure(figsize=(PANEL * columns + 0.5, sum(heights) + 0.4), layout=room)
        panels = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
        for at, strip in enumerate(strips):
            _draw_strip(figure, panels[at * (1 + with_directions) :][: 1 + with_directions], strip)
        columns = 6 if columns > 3 else 3
        figure.legend(handles=_handles(views, with_directions), loc="outside lower center", ncols=columns)
        room.execute(figure)  # a first layout does not know yet how high titles will stand, and would cut them off
    return figure


def _strips(views: Sequence[View], colours: str) -> list[Strip]:
    strips = []
    ranges = dict(zip(map(id, views), colour_ranges(views, colours), strict=True))
    ordered = sorted(views, key=lambda v: [u.place for u in views].index(v.place))  # stable: by first appearance
    for _, group in groupby(ordered, key=lambda v: v.place):
        left, with_truth = list(group), True
        while left:
            room = COLUMNS - with_truth
            strips.append(Strip(left[:room], [ranges[id(v)] for v in left[:room]], with_truth))
            left, with_truth = left[room:], False
    return strips


def _heights(strip: Strip, with_directions: bool) -> list[float]:
    """Of its rows, in inches: the maze, titles, and under the first row a colour bar."""
    rows, columns = strip.views[0].landscape.layout.walls.shape
    panel = PANEL * (rows - 1.5) / (columns - 1.5)
    return [panel + 1.15, panel + 0.55] if with_directions else [panel + 1.15]


def _draw_strip(figure: Figure, panels: np.ndarray, strip: Strip) -> None:
    """panels [1 or 2, columns]: distances, and directions if there is room for them."""
    first = strip.views[0]
    if strip.with_truth:
        lengths = np.ma.masked_invalid(first.truth.landscape.distance)
        contours = draw_landscape(panels[0, 0], first.truth.landscape, (), (0.0, float(lengths.max())))
        panels[0, 0].set_title(f"{first.env}\nstraight line: {_rho(first.straight_line)}", fontsize=9.5)
        _bar(figure, panels[0, 0], contours, "length of the shortest path to g")
    for axes, view, limits in zip(panels[0, strip.with_truth :], strip.views, strip.ranges, strict=False):
        contours = draw_landscape(axes, view.landscape, view.paths, limits)
        axes.set_title(f"{view.label}\n{_rho(view.likeness)}", fontsize=9.5)
        _bar(figure, axes, contours, PSI_LABEL)
    if len(panels) > 1:
        _draw_directions(panels[1], strip)
    for row in panels:
        for at, axes in enumerate(row):
            axes.axis("off") if at >= strip.columns else _plain(axes, at == 0)


def _draw_directions(panels: np.ndarray, strip: Strip) -> None:
    truth = strip.views[0].truth
    if strip.with_truth:
        everywhere, straight = np.ones(len(truth.points), bool), strip.views[0].straight_line
        _arrows(panels[0], truth.landscape, truth.points, truth.directions, everywhere)
        panels[0].set_title(f"the shortest way\nstraight line: {_shares(straight)}", fontsize=9)
    for axes, view in zip(panels[strip.with_truth :], strip.views, strict=False):
        draw_region(axes, view.landscape, view.basin)
        _arrows(axes, view.landscape, view.truth.points, view.directions, view.nearer)
        sees = "what its actor sees" if view.sees_direction else "its actor sees g instead"
        axes.set_title(f"{sees}\n{_shares(view.likeness)}", fontsize=9)


def _rho(likeness: Likeness) -> str:
    return f"{RHO} = {likeness.order:.2f}"


def _shares(likeness: Likeness) -> str:
    return f"nearer {likeness.nearer:.0%}, basin {likeness.basin:.0%}"


def _arrows(axes: Axes, landscape: Landscape, points: np.ndarray, ways: np.ndarray, nearer: np.ndarray) -> None:
    draw_maze(axes, landscape.layout)
    length = 0.8 * landscape.layout.scale / arrows_per_cell(landscape.layout)
    draw_arrows(axes, points, ways, nearer, length)
    draw_ends(axes, landscape, size=0.75)


def _plain(axes: Axes, leftmost: bool) -> None:
    """Coordinates once a row: every panel of it has the same."""
    axes.set_xlabel("")
    axes.set_ylabel("x (row)" if leftmost else "", fontsize=8)
    axes.tick_params(labelsize=7.5, labelleft=leftmost, pad=1)


def _bar(figure: Figure, axes: Axes, contours: QuadContourSet, label: str) -> None:
    low, high = np.asarray(contours.levels)[[0, -1]]
    ticks = [tick for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]
    bar = figure.colorbar(contours, ax=axes, location="bottom", shrink=0.86, aspect=22, pad=0.03, ticks=ticks)
    bar.set_label(label, color=INK, fontsize=8.5, parse_math=True)
    bar.outline.set_linewidth(0.4)  # pyright: ignore[reportCallIssue]
    bar.ax.tick_params(length=0, labelsize=8)


def _handles(views: Sequence[View], with_directions: bool) -> list[Line2D]:
    marks: dict[str, Any] = {"linestyle": "none", "markeredgecolor": "white"}
    found = [
        Line2D([], [], marker="o", markersize=8, color=START_COLOUR, label="start", **marks),
        Line2D([], [], marker="*", markersize=14, color=GOAL_COLOUR, label="goal g", **marks),
    ]
    if any(view.paths for view in views):
        found.append(Line2D([], [], color=INK, linewidth=1.3, label="episodes"))
    if with_directions:
        found.append(Line2D([], [], marker=">", markersize=9, color=BLUE, label="leads nearer", **marks))
        found.append(Line2D([], [], marker=">", markersize=9, color=VERMILION, label="leads away", **marks))
        found.append(
            Line2D([], [], marker="s", markersize=10, color=REGION, label="basin: downhill ends at g", **marks)
        )
    return found


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
    landscape = psi_landscape(policy, layout, goal)
    with house_style():
        rows, columns = layout.walls.shape
        figure = Figure(figsize=(5.0 * max(1.0, columns / rows) + 0.9, 5.0), layout="constrained")
        axes = figure.add_subplot()
        contours = draw_landscape(axes, landscape, rollouts)
        if rollouts:
            reached = sum(path.reached is not None for path in rollouts)
            axes.plot([], [], color=INK, linewidth=1.3, label=f"rollouts ({reached} of {len(rollouts)} reach g)")
        bar = figure.colorbar(contours, ax=axes, shrink=0.9, ticks=MaxNLocator(6))
        bar.set_label(PSI_LABEL, color=INK, parse_math=True)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        bar.ax.tick_params(length=0)
        figure.suptitle(title, fontsize=11)
        figure.legend(loc="outside lower center", ncols=3)
    return figure
