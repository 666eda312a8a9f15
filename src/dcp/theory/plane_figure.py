"""Theorems 1 and 2 as a picture: level sets of d*, the direction and the action, for two goals on one way."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dcp.theory.sweep import Scene, scene, with_slack
from dcp.theory.system import feedback, unit, velocity

BLUE, VERMILION, INK, GREY = "#0072B2", "#D55E00", "#2B2B2B", "#9A9A9A"


def plane_figure() -> Figure:
    figure = Figure(figsize=(11.5, 6.4), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    at = scene(0.9, bend=0.9)
    _panel(left, at, at.z, "z on the way to g: one direction, one action")
    off = with_slack(at, 0.03)
    _panel(right, at, off, "z off the way (ε = 0.03): two directions, two actions")
    figure.suptitle(
        "Where the level sets through s touch, z and g are the same command (G and R change from place to place)"
    )
    return figure


def _panel(axes: Axes, at: Scene, z: np.ndarray, title: str) -> None:
    x = np.linspace(-1.4, 1.4, 161)
    states = np.stack(np.meshgrid(x, x, indexing="ij"), -1)
    for goal, colour, name in ((at.g, BLUE, "g"), (z, VERMILION, "z")):
        distance = at.system.distance(states, goal)
        here = float(at.system.distance(at.s, goal))
        levels = np.sort(np.append(here * np.array([0.25, 0.5, 0.75]), here))
        axes.contour(x, x, distance.T, levels=levels, colors=colour, linewidths=[0.6, 0.6, 0.6, 2.0], alpha=0.8)
        way = np.array([at.system.on_path(at.s, goal, share) for share in np.linspace(0, 1, 60)])
        axes.plot(*way.T, color=colour, lw=1.2, ls=(0, (4, 3)))
        p = at.system.gradient(at.s, goal)
        wide = name == "g"
        _arrow(axes, at.s, -0.5 * unit(p), colour, f"direction to {name}: \u2212∇d* / |∇d*|", 7 if wide else 3.5)
        terms = at.system.terms(at.s)
        move = 0.5 * unit(velocity(terms, feedback(terms, p)))
        _arrow(axes, at.s, move, INK if wide else GREY, f"where a* to {name} moves", 5 if wide else 2.5)
        axes.plot(*goal, "o", color=colour, ms=9)
        axes.annotate(name, (goal[0], goal[1]), xytext=(9, -4), textcoords="offset points", fontsize=13, color=colour)
    axes.plot(*at.s, "o", color="black", ms=9)
    axes.annotate("s", (at.s[0], at.s[1]), xytext=(-16, -5), textcoords="offset points", fontsize=13)
    axes.set(title=title, aspect="equal", xlim=(-1.4, 1.4), ylim=(-1.4, 1.3))
    axes.set_xlabel("thick lines: states as far from the goal as s.  dashed: the best way.")
    axes.grid(False)
    axes.legend(loc="lower right", fontsize=8)


def _arrow(axes: Axes, start: np.ndarray, move: np.ndarray, colour: str, label: str, width: float) -> None:
    axes.quiver(
        *start, *move, color=colour, label=label, angles="xy", scale_units="xy", scale=1, width=width * 1e-3, zorder=5
    )
