"""Show where the pusher's goals are: on the near arc, which means pulling the object back, or on the far one."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Circle, Rectangle

from dcp.lab.result_tables import Cell, FigureSpec, Row, Section, Table, number
from dcp.lab.run_collection import Collection
from dcp.lab.statistics import success_interval, t_interval
from dcp.lab.style import BLUE, INK, VERMILION, WALL, house_style
from dcp.machine.compiling import QUICK_COMPILE
from dcp.types import Array

NAMES = ("pusher_easy", "pusher_hard", "pusher_hard_far")
DRAWS = 1000
SHOWN = 400  # goals in a panel
OBJECT_RADIUS = 0.04  # as it is drawn
_ARM_LINKS = 7


class Draws(NamedTuple):
    """First states of one environment, in the world's coordinates (x, y)."""

    name: str
    base: np.ndarray  # [2]: the arm's
    object_range: np.ndarray  # [2, 2]: low and high corner
    goal_range: np.ndarray  # [2, 2]
    objects: np.ndarray  # [K, 2]
    goals: np.ndarray  # [K, 2]

    @property
    def margin(self) -> np.ndarray:
        """Return how much farther from the arm's base goals are than objects: [K], negative on the near arc."""
        return np.linalg.norm(self.goals - self.base, axis=1) - np.linalg.norm(self.objects - self.base, axis=1)

    @property
    def near(self) -> np.ndarray:
        """Return whether goals are nearer to the arm's base than objects, which must be pulled from behind: [K]."""
        return self.margin < 0.0


@lru_cache(maxsize=8)
def draw_goals(name: str, fidelity: str = "paper", count: int = DRAWS, seed: int = 0) -> Draws:
    """Draw first states by the environment's own reset, up to where physics would begin."""
    from dcp.envs.pusher import BASE, GOAL_RANGES, OBJECT_RANGE, Pusher

    env = Pusher(name, fidelity)

    @partial(jax.jit, compiler_options=QUICK_COMPILE)
    def draw(keys: Array) -> Array:
        return jax.vmap(lambda key: env.draw(key)[0])(keys)  # [K, Q]

    q = np.asarray(draw(jax.random.split(jax.random.key(seed), count)))[:, _ARM_LINKS:]
    base, objects, goals = (in_world(np.asarray(each)) for each in (BASE, OBJECT_RANGE, GOAL_RANGES[name]))
    return Draws(name, base, objects, goals, in_world(q[:, :2]), in_world(q[:, 2:]))


def in_world(slides: np.ndarray) -> np.ndarray:
    """Return places (x, y) of slides [..., 2], which are (y, x) from the bodies' place (0.45, -0.05)."""
    return np.stack([0.45 + slides[..., 1], -0.05 + slides[..., 0]], axis=-1)


def pusher_figure(draws: Sequence[Draws]) -> Figure:
    """Draw a panel per environment, all on one scale: the arm's base, the object's range, the goals that were drawn."""
    with house_style():
        figure = Figure(figsize=(3.3 * len(draws) + 0.3, 4.25), layout="constrained")
        panels = figure.subplots(1, len(draws), sharex=True, sharey=True, squeeze=False)[0]
        for axes, each in zip(panels, draws, strict=True):
            _draw_panel(axes, each)
        panels[0].set_ylabel("y (m)")
        figure.legend(handles=panels[0].get_legend_handles_labels()[0], loc="outside lower center", ncols=3)
    return figure


def _draw_panel(axes: Axes, draws: Draws) -> None:
    goals, near = draws.goals[:SHOWN], draws.near[:SHOWN]
    share = round(100 * draws.near.mean())
    axes.set_title(f"{draws.name}\n{share}% near arc, {100 - share}% far arc", fontsize=10)
    kinds = ((near, VERMILION, "o", "goal nearer to the arm than its object"), (~near, BLUE, "^", "goal farther away"))
    for which, colour, marker, label in kinds:  # distinct in grey print too
        look: dict[str, Any] = {"color": colour, "marker": marker, "alpha": 0.65, "linewidth": 0, "label": label}
        axes.scatter(*goals[which].T, s=13, zorder=3, **look)
    ranges = ((draws.goal_range, "-", "where goals are drawn"), (draws.object_range, "--", "where objects are drawn"))
    for (low, high), line, label in ranges:
        style: dict[str, Any] = {"fill": False, "edgecolor": INK, "linestyle": line, "linewidth": 1.0, "label": label}
        axes.add_patch(Rectangle(tuple(low), *(high - low), **style))
    middle = draws.object_range.mean(axis=0)
    radius = float(np.linalg.norm(middle - draws.base))
    axes.add_patch(Arc(tuple(draws.base), 2 * radius, 2 * radius, theta1=-12, theta2=102, color=INK, linestyle=":"))
    axes.add_patch(Circle(tuple(middle), OBJECT_RADIUS, facecolor="white", edgecolor=INK, linewidth=1.4, zorder=5))
    square: dict[str, Any] = {"marker": "s", "markersize": 10, "color": WALL, "markeredgecolor": "white", "zorder": 5}
    axes.plot(*draws.base, linestyle="none", label="the arm's base", **square)
    axes.set_xlim(-0.2, 1.0)
    axes.set_ylim(-0.8, 0.4)
    axes.set_aspect("equal")
    axes.set_xlabel("x (m)")
    axes.grid(False)


def geometry_table(draws: Sequence[Draws]) -> Table:
    rows = []
    for each in draws:
        share, margin = success_interval(each.near), t_interval(each.margin)
        spread = 50.0 * (share.high - share.low)
        cells = (Cell(each.name), number(100.0 * share.mean, spread), number(float(margin.mean), digits=2))
        gap = np.linalg.norm(each.goals - each.objects, axis=1)
        rows.append(Row((*cells, number(float(gap.mean()), digits=2)), each.name))
    columns = ("environment", "goals on the near arc (%)", "goal's radius minus object's (m)", "object to goal (m)")
    notes = (
        f"{len(draws[0].goals)} first states each, drawn by the environment's own reset; ± by Wilson's interval.",
        "Near arc: the goal is nearer to the arm's base than the object, which then has to be pulled back from behind.",
    )
    return Table("pusher_goals", "The pusher's goal geometry", columns, tuple(rows), notes)


def pusher_sections(collection: Collection) -> list[Section]:
    """Return the section of reports with a pusher among their environments."""
    return geometry_sections() if any(str(run.config.get("env")) in NAMES for run in collection.runs) else []


def geometry_sections() -> list[Section]:
    """Return the figure and the table of where goals are; no run is needed."""
    draws = [draw_goals(name) for name in NAMES]
    caption = (
        f"The pusher's goals, {SHOWN} of {DRAWS} drawn. Dotted: the shown object's distance from the arm's base. Goals "
        "inside need a pull from behind, goals outside a push. Each goal is coloured by the object drawn with it. "
        "White: an object in the middle of its range."
    )
    figure = FigureSpec("pusher_goals", caption, partial(pusher_figure, draws))
    return [Section("The pusher's goals", "pusher-goals", (figure,), (geometry_table(draws),))]
