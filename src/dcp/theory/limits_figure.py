"""What the hypotheses are for, as a figure: a price of time, a neighbourhood of a size, states rather than places."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dcp.theory.limits import cost_when_slowed, tiny_neighbourhood
from dcp.theory.linear import point_with_inertia
from dcp.theory.sweep import scene

BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"


def limits_figure() -> Figure:
    figure = Figure(figsize=(13.5, 4.4), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    _price_of_time(first)
    _neighbourhood(second)
    _inertia(third)
    figure.suptitle("Where theorem 2 ends")
    return figure


def _price_of_time(axes: Axes) -> None:
    at, slower = scene(0.9), np.geomspace(0.25, 64, 17)
    for c0, colour, label in ((0.0, VERMILION, "c0 = 0, as printed"), (1.0, BLUE, "c0 = 1")):
        costs = [cost_when_slowed(at.system, at.s, at.g, k, c0, points=60) for k in slower]
        axes.plot(slower, costs, "o-", ms=3, color=colour, label=label)
    axes.set(
        xscale="log", yscale="log", xlabel="how many times slower the same way is gone", ylabel="cost of the way",
        title="Without a price of time slower is always cheaper:\nd* = 0 everywhere, and there is no direction",
    )  # fmt: skip
    axes.legend(fontsize=8)


def _neighbourhood(axes: Axes) -> None:
    delta, radii = 1e-4, np.geomspace(2e-5, 1e-1, 30)
    found = [tiny_neighbourhood(delta, radius) for radius in radii]
    axes.plot(
        radii, [each.measured for each in found], color=BLUE, label="measured |direction to z \u2212 direction to g|"
    )
    axes.plot(radii, [each.bound for each in found], color="black", lw=1.5, label="the paper's bound")
    axes.axvline(np.sqrt(delta), color=GREY, ls="--", lw=1)
    axes.text(1.1 * np.sqrt(delta), 0.6, "√(δ/L): the ball\nthe proof needs", fontsize=8, color=GREY)
    axes.set(
        xscale="log", yscale="log", xlabel="radius in which |d_ψ \u2212 d*| ≤ δ = 0.0001 is asked for",
        title="“A neighbourhood” is not enough:\na tiny one lets the direction turn anywhere",
    )  # fmt: skip
    axes.legend(fontsize=8, loc="lower left")


def _inertia(axes: Axes) -> None:
    body = point_with_inertia(2)
    s, g = np.array([0.0, 0.0, 0.0, 1.0]), np.array([2.0, 0.0])
    z = body.on_path(s, g, 0.5)[:2]
    ways = ((z, VERMILION, "best way to the place z", 0.02), (g, BLUE, "best way to the place g, through z", 0.008))
    for goal, colour, label, width in ways:
        path = np.array([body.on_path(s, goal, share)[:2] for share in np.linspace(0.01, 1, 40)])
        axes.plot(*path.T, color=colour, label=f"{label}: {body.distance(s, goal):.2f}")
        axes.plot(*goal, "o", color=colour, ms=8)
        pull = -body.gradient(s, goal)[2:]
        axes.quiver(0, 0, *(0.25 * pull), color=colour, angles="xy", scale_units="xy", scale=1, width=width, zorder=4)
    axes.quiver(0, 0, 0, 0.35, color=GREY, angles="xy", scale_units="xy", scale=1, width=0.006)
    axes.text(-0.15, 0.5, "moving north", fontsize=8, color=GREY)
    axes.plot(0, 0, "ok", ms=8)
    for name, place in (("s", (0.0, 0.0)), ("z", z), ("g", g)):
        axes.annotate(name, (place[0], place[1]), xytext=(6, 6), textcoords="offset points", fontsize=13)
    axes.set(
        aspect="equal", ylim=(-0.75, 1.2), xlim=(-0.2, 2.2),
        title="With inertia a place is not a state: z on the\nway asks for a larger action (arrows)",
    )  # fmt: skip
    axes.legend(fontsize=8, loc="upper right")
