"""Theorem 2 as a figure: both sides over eps and delta, with the slopes of the measured points."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dcp.theory.invariance import Gap
from dcp.theory.sweep import Scene, over_both, over_delta, over_delta_smooth, over_eps, scene, slope

BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"
CURVATURES = {"saddle-like": (-0.3, GREEN), "flat": (0.0, BLUE), "sphere-like": (0.9, VERMILION)}


def sweep_figure() -> Figure:
    figure = Figure(figsize=(13.5, 4.4), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    sizes = np.geomspace(1e-7, 1e-1, 13)
    for label, (curvature, colour) in CURVATURES.items():
        found = over_eps(scene(curvature), sizes)
        _measured(first, sizes, found, colour, label)
    _bounds(first, sizes, found, " (sphere-like)")
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


def _measured(axes: Axes, sizes: np.ndarray, found: list[Gap], colour: str, label: str) -> None:
    values = np.array([each.measured for each in found])
    small = sizes <= 1e-3  # beyond, a direction cannot turn in proportion any more
    axes.plot(sizes, values, "o", color=colour, ms=4, label=f"{label}: slope {slope(sizes[small], values[small]):.2f}")


def _bounds(axes: Axes, sizes: np.ndarray, found: list[Gap], note: str = "") -> None:
    axes.plot(sizes, [each.paper for each in found], "-", color="black", lw=1.5, label="the paper's bound" + note)
    axes.plot(sizes, [each.proven for each in found], "--", color=GREY, lw=1.5, label="the bound we prove" + note)
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
