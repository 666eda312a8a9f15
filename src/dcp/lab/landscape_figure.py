"""Draw landscapes: several runs next to the maze's true distances, a single run, and the report's section."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from dcp.envs.mazes import has_plane
from dcp.envs.registry import ENVIRONMENTS, make_env
from dcp.errors import UserError
from dcp.files.run_folder import POLICY_FILE
from dcp.lab.episodes import Episode
from dcp.lab.psi_landscape import Landscape, Likeness, View, colour_ranges, maze_env, view
from dcp.lab.result_tables import Cell, FigureSpec, Row, Section, Table, absent, number
from dcp.lab.run_collection import Collection, Run
from dcp.lab.style import (
    BLUE,
    GOAL_COLOUR,
    INK,
    START_COLOUR,
    VERMILION,
    arrows_per_cell,
    draw_arrows,
    draw_maze,
    house_style,
)
from dcp.lab.targets import open_target

CONTOURS = 16
COLOURS = "YlGnBu"  # light is near; the order survives grey print and colour blindness
REGION = "#D6E8F2"
PSI_LABEL = r"$\Vert\psi_g(x, y) - \psi_g(g)\Vert$"
RHO = "\u03c1"
BASIN = "basin: downhill ends at g"
BELOW_STRAIGHT = (
    "Below the straight line's rank correlation: away from the ways that episodes took, psi says far and not how far, "
    "so a valley along these ways goes with a poor order over the whole maze"
)
MAX_COLUMNS = 5  # panels in a row, including the maze's own
PANEL, GAP, LEFT = 2.75, 0.16, 0.5  # inches: a panel with the gap next to it, and the space left of the first
TITLE, LINE, TICKS, BAR = 0.5, 0.17, 0.3, 0.62  # above a panel (and a line more), below it, and for a colour bar


def draw_landscape(
    axes: Axes, landscape: Landscape, episodes: Sequence[Episode] = (), limits: tuple[float, float] | None = None
) -> QuadContourSet:
    """Draw filled contours, walls, episodes up to their success, start cells and goal.

    Return what a colour bar needs. `limits`: the colours' range; values beyond it have the colour of its end.
    """
    low, high = limits or (0.0, max(float(landscape.distance.max()), 1e-6))
    levels = MaxNLocator(CONTOURS).tick_values(low, high) if limits is None else np.linspace(low, high, CONTOURS + 1)
    distance = np.ma.masked_invalid(landscape.distance)
    beyond = bool((distance < low).any()), bool((distance > high).any())
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[beyond]
    contours = axes.contourf(landscape.y, landscape.x, distance, levels=levels, cmap=COLOURS, extend=extend)
    axes.contour(landscape.y, landscape.x, distance, levels=levels, colors="white", linewidths=0.5, alpha=0.6)
    draw_maze(axes, landscape.layout)
    for episode in episodes:
        x, y = episode.path.T
        for colour, width in (("white", 2.8), (INK, 1.3)):  # a pale edge keeps the line legible on a dark background
            line = {"color": colour, "linewidth": width, "solid_joinstyle": "round", "solid_capstyle": "round"}
            axes.plot(y, x, zorder=5, **line)
    draw_ends(axes, landscape)
    return contours


def draw_ends(axes: Axes, landscape: Landscape, size: float = 1.0) -> None:
    """Mark where episodes start, and the goal."""
    starts = landscape.layout.cells("r")
    marks = {"markeredgecolor": "white", "markeredgewidth": 1.2, "linestyle": "none", "zorder": 6}
    axes.plot(starts[:, 1], starts[:, 0], marker="o", markersize=9 * size, color=START_COLOUR, label="start", **marks)
    x, y = landscape.goal[:2]
    axes.plot([y], [x], marker="*", markersize=18 * size, color=GOAL_COLOUR, label="goal g", **marks)


class Strip(NamedTuple):
    """One row of panels: views of one place. The first row of a place starts with its true distances."""

    views: list[View]
    ranges: list[tuple[float, float]]
    with_truth: bool

    @property
    def columns(self) -> int:
        return len(self.views) + self.with_truth

    @property
    def panel(self) -> float:
        """Return the height of a panel, in inches."""
        rows, columns = self.views[0].landscape.layout.walls.shape
        return (PANEL - GAP) * (rows - 1.5) / (columns - 1.5)

    def rows(self, with_directions: bool) -> list[tuple[float, float]]:
        """Return each row's space for titles and below its panels, in inches. Labels with paths have another line."""
        lines = max(each.label.count("\n") for each in self.views)
        return [(TITLE + LINE * lines, TICKS + BAR), *([(TITLE, TICKS)] if with_directions else [])]


def landscapes_figure(views: Sequence[View], colours: str = "panel", with_directions: bool = True) -> Figure:
    """Draw every view with the true distances of its maze at the left; below each, which way it points.

    `colours`: a kind of `colour_ranges`.
    """
    strips = _strips(views, colours)
    columns = max(strip.columns for strip in strips)
    width = LEFT + columns * PANEL
    handles, ncols = _handles(views, with_directions), 6 if columns > 3 else 3
    note = ""
    if any(each.is_below_straight_line for each in views):
        note = textwrap.fill(f"* {BELOW_STRAIGHT}.", round(15 * width))  # characters at that font size
    foot = 0.3 + 0.25 * -(-len(handles) // ncols) + 0.15 * (note.count("\n") + bool(note))
    height = foot + sum(strip.panel + sum(spaces) for strip in strips for spaces in strip.rows(with_directions))
    with house_style():
        figure = Figure(figsize=(width, height))
        top = height
        for strip in strips:
            panels = []  # of one size, whatever is drawn around them
            for above, below in strip.rows(with_directions):
                top -= above + strip.panel
                size = (PANEL - GAP) / width, strip.panel / height
                lefts = ((LEFT + column * PANEL) / width for column in range(columns))
                panels.append([figure.add_axes((left, top / height, *size)) for left in lefts])
                top -= below
            _draw_strip(figure, np.array(panels), strip)
        legend = figure.legend(handles=handles, loc="lower center", ncols=ncols, borderaxespad=0.3, fontsize=9.5)
        legend.set_title(note)
        legend.get_title().set_fontsize(8)
    return figure


def _strips(views: Sequence[View], colours: str) -> list[Strip]:
    strips = []
    ranges = dict(zip(map(id, views), colour_ranges(views, colours), strict=True))
    ordered = sorted(views, key=lambda v: [u.place for u in views].index(v.place))  # stable: by first appearance
    for _, group in groupby(ordered, key=lambda v: v.place):
        left, with_truth = list(group), True
        while left:
            room = MAX_COLUMNS - with_truth
            strips.append(Strip(left[:room], [ranges[id(v)] for v in left[:room]], with_truth))
            left, with_truth = left[room:], False
    return strips


def _draw_strip(figure: Figure, panels: np.ndarray, strip: Strip) -> None:
    """Fill panels [1 or 2, columns] with distances and, if there is a second row, directions."""
    first = strip.views[0]
    if strip.with_truth:
        lengths = np.ma.masked_invalid(first.truth.landscape.distance)
        contours = draw_landscape(panels[0, 0], first.truth.landscape, (), (0.0, float(lengths.max())))
        panels[0, 0].set_title(f"{first.env}\nstraight line: {_rho(first.straight_line)}", fontsize=9.5)
        _bar(figure, panels[0, 0], contours, "length of the shortest path to g")
    for axes, each, limits in zip(panels[0, strip.with_truth :], strip.views, strip.ranges, strict=False):
        contours = draw_landscape(axes, each.landscape, each.episodes, limits)
        below = " *" if each.is_below_straight_line else ""
        axes.set_title(f"{each.label}\n{_rho(each.likeness)}{below}", fontsize=9.5)
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
    for axes, each in zip(panels[strip.with_truth :], strip.views, strict=False):
        at, inside = each.landscape, each.basin.astype(float)
        axes.contourf(at.y, at.x, inside, levels=[0.5, 1.5], colors=[REGION], zorder=1)
        _arrows(axes, each.landscape, each.truth.points, each.directions, each.nearer)
        instead = "g" if each.condition == "raw_goal" else each.condition
        sees = "what its actor sees" if each.condition == "direction" else f"its actor sees {instead} instead"
        axes.set_title(f"{sees}\n{_shares(each.likeness)}", fontsize=9)


def _rho(likeness: Likeness) -> str:
    return f"{RHO} = {likeness.order:.2f}"


def _shares(likeness: Likeness) -> str:
    return f"nearer {likeness.nearer:.0%}, basin {likeness.basin:.0%}"


def _arrows(axes: Axes, landscape: Landscape, points: np.ndarray, ways: np.ndarray, nearer: np.ndarray) -> None:
    """Draw directions [K, 2] at points [K, 2]: blue where they lead nearer to the goal, else vermilion."""
    draw_maze(axes, landscape.layout)
    length = 0.8 * landscape.layout.scale / arrows_per_cell(landscape.layout)
    for which, colour in ((nearer, BLUE), (~nearer, VERMILION)):
        draw_arrows(axes, points[which], ways[which], length, color=colour, width=0.0075)
    draw_ends(axes, landscape, size=0.75)


def _plain(axes: Axes, leftmost: bool) -> None:
    """Show coordinates once per row, because all its panels share them."""
    axes.set_xlabel("")
    axes.set_ylabel("x (row)" if leftmost else "", fontsize=8)
    axes.tick_params(labelsize=7.5, labelleft=leftmost, pad=1)


def _bar(figure: Figure, axes: Axes, contours: QuadContourSet, label: str) -> None:
    low, high = np.asarray(contours.levels)[[0, -1]]
    ticks = [tick for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]
    height = axes.get_position().height * figure.get_figheight()  # in inches
    room = axes.inset_axes((0.07, -0.42 / height, 0.86, 0.11 / height))
    bar = figure.colorbar(contours, cax=room, orientation="horizontal", ticks=ticks)
    bar.set_label(label, color=INK, fontsize=8.5, parse_math=True)
    bar.outline.set_linewidth(0.4)  # pyright: ignore[reportCallIssue]
    bar.ax.tick_params(length=0, labelsize=8)


def _handles(views: Sequence[View], with_directions: bool) -> list[Line2D]:
    marks = [("o", 8, START_COLOUR, "start"), ("*", 14, GOAL_COLOUR, "goal g")]
    ways = [(">", 9, BLUE, "leads nearer"), (">", 9, VERMILION, "leads away"), ("s", 10, REGION, BASIN)]

    def handle(marker: str, size: float, colour: str, label: str) -> Line2D:
        style: dict[str, Any] = {"linestyle": "none", "markeredgecolor": "white"}
        return Line2D([], [], marker=marker, markersize=size, color=colour, label=label, **style)

    episodes = [Line2D([], [], color=INK, linewidth=1.3, label="episodes")] if any(v.episodes for v in views) else []
    return [*(handle(*mark) for mark in marks), *episodes, *(handle(*way) for way in ways if with_directions)]


# The report's section: the first seed with a policy of each method in each maze. No episode is played.

MOST_METHODS = 8  # and their variants, in one maze
TABLE_COLUMNS = ("environment", "goal", "run", "actor sees", "rank correlation", "basin (%)", "points nearer (%)")
REPORT_CAPTION = (
    "{env}: distances in psi-space to the goal that is farthest by path, next to the true ones. Colours: 1st to 99th "
    "percentile over the free space. Arrows: the direction that a direction-conditioned actor sees, in the plane."
)
TABLE_NOTES = (
    "Rank correlation: Spearman's, of the psi-distance and the length of the shortest path, over the free space.",
    "Basin: share of the free space from which going down the psi-distance ends at the goal g.",
    "Points nearer: where the direction that a direction-conditioned actor sees leads to a shorter path.",
    "A straight line ignores walls: a run below it has learned less about the maze than plain distance knows.",
    "One seed each: this shows single representations and does not compare methods.",
)


def landscape_sections(collection: Collection) -> list[Section]:
    figures, remarks = [], []
    shown: list[tuple[str, View]] = []
    for env in collection.environments:
        views, new = _first_views(collection, env)
        remarks += new
        if not views:
            continue
        make = partial(landscapes_figure, list(views.values()), "space")
        figures.append(FigureSpec(f"landscape_{env}", REPORT_CAPTION.format(env=env), make, env))
        shown += views.items()
    if not figures:
        return []
    text = " ".join(["The first seed of each method; `dcp landscape` draws any runs, with their episodes.", *remarks])
    return [Section("psi-distance landscapes", "landscapes", tuple(figures), (landscape_table(shown),), text)]


def landscape_table(views: Sequence[tuple[str, View]]) -> Table:
    """Return a row for each view, which comes with its method, and one for each place's straight line."""
    places = {view.place: view for _, view in reversed(views)}
    rows, with_episodes = [], any(view.episodes for _, view in views)
    for place, first in reversed(places.items()):
        goal = Cell(", ".join(f"{value:g}" for value in first.landscape.goal))
        lines = [(m, v.label.replace("\n", " "), v.actor_sees, v.likeness, v) for m, v in views if v.place == place]
        for method, label, sees, likeness, each in [*lines, ("", "straight line", "", first.straight_line, None)]:
            shares = (number(100.0 * share) for share in (likeness.basin, likeness.nearer))
            cells = [Cell(first.env), goal, Cell(label), Cell(sees), number(likeness.order, digits=3), *shares]
            reached = Cell(f"{each.num_reached} of {len(each.episodes)}") if each and each.episodes else absent()
            rows.append(Row((*cells, *([reached] if with_episodes else [])), first.env, method))
    columns = (*TABLE_COLUMNS, *(["episodes that reach g"] if with_episodes else []))
    return Table("landscapes", "Learned distances against the maze's own", columns, tuple(rows), TABLE_NOTES)


def _first_views(collection: Collection, env: str) -> tuple[dict[str, View], list[str]]:
    """Return method -> the view of its first seed with a policy, and a sentence for what is left out."""
    views, remarks = {}, []
    methods = [method for place, method in collection.groups if place == env]
    for method in methods[:MOST_METHODS]:
        run = next((run for run in collection.of(env, method) if (run.folder / POLICY_FILE).is_file()), None)
        if run is None or not _in_a_maze(run):
            continue
        try:
            target = open_target(run.folder)
            views[method] = replace(view(target, maze_env(target), rollouts=0), label=f"{method}, seed {run.seed}")
        except UserError as error:
            remarks.append(f"{run.folder} has no landscape: {error}.")
    if views and methods[MOST_METHODS:]:
        remarks.append(f"{env}: the landscapes of {', '.join(methods[MOST_METHODS:])} are left out.")
    return views, remarks


def _in_a_maze(run: Run) -> bool:
    """Return whether a report can draw it. A report neither runs a stranger's environment nor starts physics, which it
    would need for the height of a humanoid's goals; `dcp landscape` does."""
    name = run.config.get("eval_env") or run.config.get("env")
    if name not in ENVIRONMENTS:
        return False
    spec = make_env(str(name), run.config.get("fidelity", "paper")).spec
    return has_plane(spec) and spec.goal_size == 2
