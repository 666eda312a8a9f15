"""Theorem 3 as a figure: a car that cannot move sideways."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dcp.theory.controllability import controllable_share, orientation_errors
from dcp.theory.system import Terms, feedback
from dcp.theory.unicycle import Unicycle

BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"


def car_figure() -> Figure:
    figure = Figure(figsize=(13.5, 4.4), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    car = Unicycle()
    _parking(first, car)
    _shares(second, car)
    _fragility(third)
    figure.suptitle("Theorem 3: a car drives and turns, but the gradient of its distance points sideways")
    return figure


def _parking(axes: Axes, car: Unicycle) -> None:
    shots = car.solve(np.zeros(3), np.array([0.0, 0.3, 0.0]))
    best = shots.parameters[shots.cost < shots.cost[0] + 1e-6]
    for parameters, colour, label in (
        (best[np.cos(best[:, 0]).argmax()], BLUE, "forward first"),
        (best[np.cos(best[:, 0]).argmin()], VERMILION, "backward first"),
    ):
        path = car.shoot(parameters, keep=True)
        axes.plot(path[:, 0], path[:, 1], color=colour, label=f"{label}: {2 * car.c0 * parameters[2]:.2f}")
        for x, y, heading in path[::4]:
            axes.arrow(x, y, 0.05 * np.cos(heading), 0.05 * np.sin(heading), color=colour, width=0.003, head_width=0.02)
    axes.plot([0, 0], [0, 0.3], "ok", ms=7)
    axes.annotate("s", (0, 0), xytext=(-4, -16), textcoords="offset points", fontsize=13)
    axes.annotate("g", (0, 0.3), xytext=(-4, 8), textcoords="offset points", fontsize=13)
    axes.set(title="Parking: two best ways, so d* has a kink", aspect="equal", ylim=(-0.12, 0.62))
    axes.legend(fontsize=8, loc="upper center", title="cost of the way")


def _shares(axes: Axes, car: Unicycle) -> None:
    bearings, sizes = np.linspace(2, 88, 12), []
    for far, colour in ((0.6, GREEN), (0.2, VERMILION)):
        shares = []
        for bearing in np.radians(bearings):
            p = car.gradient(np.zeros(3), np.array([far * np.cos(bearing), far * np.sin(bearing), 0.0]))
            shares.append(controllable_share(car.terms(np.zeros(3)).G, p))
            sizes.append(np.linalg.norm(feedback(car.terms(np.zeros(3)), p)))
        axes.plot(bearings, shares, "o-", ms=3, color=colour, label=f"share \u03c1 of the gradient, goal {far} away")
    axes.plot(np.tile(bearings, 2), sizes, ":", color=GREY, label="size of the best action, either goal")
    axes.set(
        title="Beside the goal little of the gradient counts,\nyet the best action is as large as ever",
        xlabel="where the goal lies: 0° ahead, 90° beside", ylim=(0, 1.12),
    )  # fmt: skip
    axes.legend(fontsize=8, loc="center right", bbox_to_anchor=(1.0, 0.75))


def _fragility(axes: Axes) -> None:
    """An error of fixed size in the unit direction, and what it does to the action."""
    shares = np.geomspace(0.01, 1, 25)
    terms = Terms(np.zeros(3), np.eye(3)[:, :2], np.eye(2), 1.0)
    rng = np.random.default_rng(0)
    for noise, colour in ((0.1, VERMILION), (0.01, BLUE)):
        errors = noise * rng.normal(size=(400, 3)) / np.sqrt(3)
        gradients = [np.array([rho, 0.0, np.sqrt(1 - rho**2)]) for rho in shares]
        turned = [np.degrees(np.median(orientation_errors(terms, p, errors))) for p in gradients]
        axes.plot(shares, turned, color=colour, label=f"direction off by {noise:.0%}")
    axes.axhline(90, color=GREY, ls="--", lw=1)
    axes.text(0.011, 95, "90°: chance", fontsize=8, color=GREY)
    axes.set(
        xscale="log", yscale="log", xlabel="share \u03c1 of the gradient that actions can move", ylabel="degrees",
        title="How far a small error of the direction\nturns the action (median)",
    )  # fmt: skip
    axes.legend(fontsize=8)
