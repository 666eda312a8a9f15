"""Draw the sweeps and figures of docs/theory.md into docs/theory/: `python -m tools.theory.figures`."""

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tools.theory.control_systems import Curved, Terms, feedback, point_with_inertia, unit, velocity
from tools.theory.counterexamples import cost_when_slowed, tiny_neighbourhood
from tools.theory.theorems import Gap, Ripple, controllable_share, gap, orientation_errors, sharpest_ripple, slack
from tools.theory.unicycle import Unicycle

BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"
INK, PALE = "#2B2B2B", "#9A9A9A"
CURVATURES = {"saddle-like": (-0.3, GREEN), "flat": (0.0, BLUE), "sphere-like": (0.9, VERMILION)}


# Theorem 2's two sides over orders of magnitude of eps and delta


class Scene(NamedTuple):
    system: Curved
    s: np.ndarray  # [2]
    z: np.ndarray  # [2]: exactly on the way
    g: np.ndarray  # [2]


def scene(curvature: float, bend: float = 0.25, share: float = 0.4) -> Scene:
    """A planar system with state-dependent G and R, and a waypoint on its way."""
    system = Curved(
        B=np.array([[0.5, 0.1], [0.0, 0.45]]),
        curvature=curvature,
        bend=bend,
        R0=np.array([[1.5, 0.4], [0.4, 0.8]]),
        R_swing=0.3,
        c0=0.5,
    )
    s, g = np.array([-0.7, -0.5]), np.array([0.9, 0.8])
    return Scene(system, s, system.on_path(s, g, share), g)


def off_path(at: Scene, sideways: float) -> np.ndarray:
    """[2]: z moved off the way."""
    way = unit(at.g - at.s)
    return at.z + sideways * np.array([-way[1], way[0]])


def with_slack(at: Scene, eps: float) -> np.ndarray:
    """[2]: z moved sideways until the way over it is longer by eps."""
    low, high = 0.0, 4.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if slack(at.system, at.s, off_path(at, middle), at.g) < eps else (low, middle)
    return off_path(at, high)


def opposed_ripples(at: Scene, delta: float, curvature: float) -> tuple[Ripple, Ripple]:
    """Errors that turn z's direction and g's direction away from each other as far as their curvature lets them."""
    way = unit(at.system.gradient(at.s, at.g))
    across = np.array([-way[1], way[0]])
    return sharpest_ripple(delta, curvature, across, at.s), sharpest_ripple(delta, curvature, -across, at.s)


def over_eps(at: Scene, slacks: np.ndarray) -> list[Gap]:
    return [gap(at.system, at.s, with_slack(at, eps), at.g) for eps in slacks]


def over_delta(at: Scene, deltas: np.ndarray, curvature: float = 1.0) -> list[Gap]:
    """The sharpest errors that (B2) lets through: their slope grows as the square root of their size."""
    return [gap(at.system, at.s, at.z, at.g, *opposed_ripples(at, delta, curvature)) for delta in deltas]


def over_delta_smooth(at: Scene, deltas: np.ndarray, wave: float = 2.0) -> list[Gap]:
    """Errors of one fixed shape, scaled: their slope grows with their size itself."""
    return [gap(at.system, at.s, at.z, at.g, *opposed_ripples(at, delta, delta * wave**2)) for delta in deltas]


def over_both(at: Scene, slacks: np.ndarray, deltas: np.ndarray, curvature: float = 1.0) -> list[list[Gap]]:
    """[eps][delta]"""
    gaps = []
    for eps in slacks:
        z = with_slack(at, eps)
        row = [opposed_ripples(at, delta, curvature) for delta in deltas]
        gaps.append([gap(at.system, at.s, z, at.g, *pair) for pair in row])
    return gaps


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """Of log y over log x, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


# The figures


def plane_figure() -> Figure:
    """Theorems 1 and 2: level sets of d*, the direction and the action, for two goals on one way."""
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
        _arrow(axes, at.s, move, INK if wide else PALE, f"where a* to {name} moves", 5 if wide else 2.5)
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


def sweep_figure() -> Figure:
    """Theorem 2: both sides over eps and delta, with the slopes of the measured points."""
    figure = Figure(figsize=(13.5, 4.4), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    sizes = np.geomspace(1e-7, 1e-1, 13)
    for label, (curvature, colour) in CURVATURES.items():
        gaps = over_eps(scene(curvature), sizes)
        _measured(first, sizes, gaps, colour, label)
    _bounds(first, sizes, gaps, " (sphere-like)")
    first.set(xlabel="detour over z: ε, the way over z minus the way", title="Waypoint off the way, exact distance")
    at = scene(0.0)
    sharp, smooth = over_delta(at, sizes), over_delta_smooth(at, sizes)
    _measured(second, sizes, sharp, BLUE, "sharpest error allowed")
    _measured(second, sizes, smooth, GREEN, "error of one fixed shape")
    _bounds(second, sizes, sharp)
    second.set(xlabel="error of the learned distance: δ", title="Waypoint on the way, distance off by δ")
    for axes in (first, second):
        axes.set(xscale="log", yscale="log", ylabel="|direction to z \u2212 direction to g|")
        axes.legend(fontsize=8, loc="lower right")
    _ratios(third, at)
    figure.suptitle("Theorem 2: how far the direction to a waypoint is from the direction to the goal")
    return figure


def _measured(axes: Axes, sizes: np.ndarray, gaps: list[Gap], colour: str, label: str) -> None:
    values = np.array([each.measured for each in gaps])
    small = sizes <= 1e-3  # beyond, a direction cannot turn in proportion any more
    axes.plot(sizes, values, "o", color=colour, ms=4, label=f"{label}: slope {slope(sizes[small], values[small]):.2f}")


def _bounds(axes: Axes, sizes: np.ndarray, gaps: list[Gap], note: str = "") -> None:
    axes.plot(sizes, [each.paper for each in gaps], "-", color="black", lw=1.5, label="the paper's bound" + note)
    axes.plot(sizes, [each.proven for each in gaps], "--", color=GREY, lw=1.5, label="the bound we prove" + note)
    axes.axhline(2, color="#CCCCCC", lw=1)
    axes.text(sizes[0], 2.2, "2: opposite directions", fontsize=8, color=GREY)


def _ratios(axes: Axes, at: Scene) -> None:
    sizes = np.geomspace(1e-7, 1e-2, 11)
    ratios = np.array([[each.measured / each.paper for each in row] for row in over_both(at, sizes, sizes)])
    mesh = axes.pcolormesh(sizes, sizes, ratios, vmin=0, vmax=0.5, cmap="viridis", shading="nearest")
    axes.set(
        xscale="log", yscale="log", xlabel="δ", ylabel="ε", title="Measured / the paper's bound (1 would be tight)"
    )
    axes.grid(False)
    axes.figure.colorbar(mesh, ax=axes)
    axes.text(1.5e-7, 1.3e-7, f"largest: {ratios.max():.2f}", color="white", fontsize=9)


def car_figure() -> Figure:
    """Theorem 3: a car that cannot move sideways."""
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


def limits_figure() -> Figure:
    """What the hypotheses are for: a price of time, a neighbourhood of a size, states rather than places."""
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
    gaps = [tiny_neighbourhood(delta, radius) for radius in radii]
    axes.plot(
        radii, [each.measured for each in gaps], color=BLUE, label="measured |direction to z \u2212 direction to g|"
    )
    axes.plot(radii, [each.bound for each in gaps], color="black", lw=1.5, label="the paper's bound")
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


FIGURES = {"plane": plane_figure, "sweep": sweep_figure, "car": car_figure, "limits": limits_figure}
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "savefig.dpi": 100,
}


def theorem_figures(folder: Path) -> list[Path]:
    """Draw every figure into the folder, as PNG without a date inside: the same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with matplotlib.rc_context(_STYLE):
        for name, draw in FIGURES.items():
            paths.append(folder / f"{name}.png")
            draw().savefig(paths[-1], metadata={"Software": None})
    return paths


if __name__ == "__main__":
    for path in theorem_figures(Path(__file__).parents[2] / "docs" / "theory"):
        print(path)
