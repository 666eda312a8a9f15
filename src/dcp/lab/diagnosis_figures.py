"""Draw the figures of a diagnosis: one overview, and each panel by itself.

Each panel asks a question in its title and says how to read the answer.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from dcp.lab.maze_drawing import arrows_per_cell, draw_arrows, draw_maze
from dcp.lab.style import BLUE, GOAL_COLOUR, GREEN, INK, ORANGE, PURPLE, SKY, house_style
from dcp.types import MazeLayout

PALE = "#B8BEC4"
AGREEMENT = "coolwarm_r"  # red: against the true direction; blue: along it
KIND_NAMES = {"scorer": "chosen by\nthe scorer", "random": "random\nvisited state", "oracle": "on the\ntrue way"}
KIND_COLOURS = {"scorer": BLUE, "random": ORANGE, "oracle": GREEN}
PLACES = {"at the goal": PURPLE, "on the way, in between": GREEN, "where it is": SKY, "off the way": PALE}
RIGHT_ANGLE = 2.0**0.5


def directions(axes: Axes, content: dict[str, Any]) -> None:
    """Draw the maze with the learned and the true arrows; without a maze, a histogram of cosines."""
    drawn = content["drawn"]["alignment"]
    if "maze" not in drawn:
        return _cosines(axes, drawn, content["alignment"]["visited"])
    layout = MazeLayout(tuple(drawn["maze"]), float(drawn["scale"]))
    draw_maze(axes, layout)
    points, shown, true = (_array(drawn[name]).reshape(-1, 2) for name in ("points", "learned", "true"))
    length = 0.8 * layout.scale / arrows_per_cell(layout)
    cosine = np.clip(_array(drawn["cosine"]), -1.0, 1.0)
    scale = ScalarMappable(Normalize(-1.0, 1.0), AGREEMENT)
    draw_arrows(axes, points, shown, length, color=scale.to_rgba(np.nan_to_num(cosine)), width=0.0085)
    draw_arrows(axes, points, true, length, color=INK, width=0.0028, alpha=0.75)
    x, y = drawn["goal"][:2]
    axes.plot([y], [x], "*", markersize=16, color=GOAL_COLOUR, markeredgecolor="white", zorder=6)
    bar = axes.figure.colorbar(scale, cax=axes.inset_axes((1.02, 0.0, 0.03, 1.0)), ticks=[-1, 0, 1])
    bar.ax.set_yticklabels(["opposite", "across", "the same"], fontsize=8)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    axes.set_xlabel("")
    axes.set_ylabel("")
    axes.set_xticks([])
    axes.set_yticks([])
    found = content["alignment"]["maze"]
    mean, straight, chance = (found[name]["mean"] for name in ("pulled_back", "straight_line", "another_goal"))
    note = "Thick, coloured: learned; thin, black: true. Star: the goal."
    note += f"\nMean cosine over goals {mean:.2f}; straight line {straight:.2f}; chance {chance:.2f}"
    _titled(axes, "Does the learned direction follow the maze?", note)


def _cosines(axes: Axes, drawn: dict[str, Any], said: dict[str, Any]) -> None:
    cosine = _array(drawn["visited"])
    axes.hist(cosine[np.isfinite(cosine)], bins=np.linspace(-1.0, 1.0, 21).tolist(), color=BLUE, edgecolor="white")
    axes.axvline(0.0, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xlim(-1.0, 1.0)
    axes.set_xticks([-1.0, 0.0, 1.0], ["opposite", "across", "the same"])
    axes.set_ylabel("visited states")
    mean, chance = (said[name]["mean"] for name in ("pulled_back", "another_goal"))
    note = "" if mean is None or chance is None else f", mean {mean:.2f}; chance {chance:.2f}"
    _titled(axes, "Does the learned direction lead to the goal?", f"Its cosine with the straight way{note}")


def gaps(axes: Axes, content: dict[str, Any]) -> None:
    kinds = content["gaps"]["kinds"]
    for at, (kind, each) in enumerate(kinds.items()):
        _bar(axes, at, each["state"], KIND_COLOURS[kind])
    axes.axhline(RIGHT_ANGLE, color=INK, linewidth=0.8, linestyle=":")
    axes.text(len(kinds) - 0.5, RIGHT_ANGLE + 0.03, "a right angle", ha="right", va="bottom", fontsize=8)
    axes.set_xticks(range(len(kinds)), [_kind_name(kind, content) for kind in kinds])
    axes.set_ylim(0.0, 2.0)
    axes.set_ylabel("difference of the directions")
    has_pool = content["gaps"]["has_pool"]
    use = "In training a waypoint replaces the goal." if has_pool else "This method trains without waypoints."
    _titled(axes, "Does a waypoint show the goal's direction?", f"{use} 0: same direction; 2: opposite")


def _kind_name(kind: str, content: dict[str, Any]) -> str:
    return KIND_NAMES[kind] if kind != "scorer" or content["gaps"]["has_pool"] else "a scorer\nwould choose"


def waypoints(axes: Axes, content: dict[str, Any]) -> None:
    """Draw where the scorer's z are: at the goal, on the way, or off it."""
    kinds = [(kind, content["gaps"]["kinds"][kind]) for kind in ("random", "scorer")]
    for at, (_, each) in enumerate(kinds):
        goal, midway, on = (each[name]["mean"] or 0.0 for name in ("at_goal", "on_path_midway", "on_path"))
        shares, left = (goal, midway, max(on - goal - midway, 0.0), 1.0 - on), 0.0
        for share, (name, colour) in zip(shares, PLACES.items(), strict=True):
            axes.barh(at, 100.0 * share, 0.62, 100.0 * left, color=colour, label=name if at == 0 else None)
            if share > 0.07:
                axes.text(100.0 * (left + share / 2), at, f"{share:.0%}", ha="center", va="center", fontsize=9)
            left += share
    axes.set_yticks(range(len(kinds)), [_kind_name(kind, content) for kind, _ in kinds])
    axes.set_xlim(0.0, 100.0)
    axes.set_ylim(-1.35, len(kinds) - 0.5)
    axes.set_xlabel("% of waypoints")
    axes.legend(loc="lower left", fontsize=9, ncols=2)
    axes.grid(False)
    _titled(axes, "Where do the waypoints lie?", "On the way: the detour is shorter than the goal's radius")


def detours(axes: Axes, content: dict[str, Any]) -> None:
    rows = content["gaps"]["by_slack"]
    for at, row in enumerate(rows):
        _bar(axes, at, row["gap"], PURPLE)
    names = [
        f"{row['low']:.3g} to\n{row['high']:.3g}" if row["high"] else f"more than\n{row['low']:.3g}" for row in rows
    ]
    axes.set_xticks(range(len(rows)), names)
    axes.set_ylim(0.0, 2.0)
    axes.set_xlabel("detour by way of the waypoint")
    axes.set_ylabel("difference of the directions")
    order = content["gaps"]["slack_and_gap"]["mean"]
    said = "" if order is None else f" Rank correlation {order:.2f}"
    _titled(axes, "Do detours change the direction?", f"Theory: no detour, no difference.{said}")


def calibration(axes: Axes, content: dict[str, Any], key: str = "hindsight") -> None:
    names = {"hindsight": "steps between two visited states", "true_way": "length of the true way"}
    drawn, said = content["drawn"]["calibration"][key], content["calibration"][key]
    x, y = _array(drawn["x"]), _array(drawn["d_psi"])
    axes.plot(x, y, ".", markersize=4, alpha=0.4, color=BLUE)
    if len(x) >= 20:
        edges = np.unique(np.nanquantile(x, np.linspace(0.0, 1.0, 9)))
        which = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
        groups = [which == i for i in range(len(edges) - 1) if np.any(which == i)]
        middle, height = ([float(np.median(values[group])) for group in groups] for values in (x, y))
        axes.plot(middle, height, "o-", color=INK, markersize=4, label="median")
        axes.legend(fontsize=8, loc="lower right")
    axes.set_xlim(left=0.0)
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel(names[key])
    axes.set_ylabel("learned distance")
    order = said["rank_correlation"]["mean"]
    question = "Is the learned distance a measure of time?"
    if key == "true_way":
        question = "Does the learned distance know the way's length?"
    note = "no pairs" if order is None else f"Rank correlation {order:.2f} (1: the same order, 0: none)"
    _titled(axes, question, note)


def controllability(axes: Axes, content: dict[str, Any]) -> None:
    steps = content["controllability"]["steps"]
    bars = {
        "share": ("movable part, learned direction", BLUE),
        "true_share": ("movable part, true direction", PALE),
        "progress": ("progress: movable part times cosine", GREEN),
    }
    for i, (name, (label, colour)) in enumerate(bars.items()):
        for at, each in enumerate(steps.values()):
            _bar(axes, at + 0.27 * (i - 1), each[name], colour, 0.25, label if at == 0 else None)
    axes.axhline(0.0, color=INK, linewidth=0.8)
    axes.set_xticks(range(len(steps)), [f"{k} step{'s' if k != '1' else ''}" for k in steps])
    axes.set_ylim(min(0.0, *(each["progress"]["low"] or 0.0 for each in steps.values())) - 0.02, 1.4)
    axes.set_yticks(np.linspace(0.0, 1.0, 6))
    axes.set_ylabel("of a direction of length 1")
    axes.legend(fontsize=7.5, loc="upper left", ncols=1)
    note = "Within k steps. 0: actions cannot move along it at all; 1: along all of it"
    _titled(axes, "Can actions follow the learned direction?", note)


def spectrum(axes: Axes, content: dict[str, Any]) -> None:
    said = content["conditioning"]
    values = np.maximum(_array(said["psi_singular_values"]), 1e-12)
    shares = values / values.sum()
    axes.bar(np.arange(1, len(shares) + 1), 100.0 * shares, color=BLUE)
    axes.axvline(said["psi_rank"], color=INK, linewidth=0.8, linestyle=":")
    axes.set_xlim(0.0, min(len(shares), max(16, 3 * said["psi_rank"])) + 1)
    axes.set_xlabel("dimension of the representation, strongest first")
    axes.set_ylabel("% of the spread")
    note = f"{said['psi_rank']:.1f} of {said['psi_size']} (effective rank, dotted)"
    _titled(axes, "How many dimensions does the representation use?", note)


def _array(values: Any) -> np.ndarray:
    return np.asarray(values, float)


def _bar(
    axes: Axes, at: float, estimate: dict[str, Any], colour: str, width: float = 0.62, label: str | None = None
) -> None:
    """Draw a bar with its interval and its number; nothing for an unknown value."""
    mean, low, high = (estimate[name] for name in ("mean", "low", "high"))
    axes.bar(at, mean or 0.0, width, color=colour, label=label)
    if mean is None:
        return
    if low is not None and high is not None:
        axes.plot([at, at], [low, high], color=INK, linewidth=1.2)
    axes.text(at, max(mean, high or mean, 0.0) + 0.02, f"{mean:.2f}", ha="center", va="bottom", fontsize=8)


def _titled(axes: Axes, question: str, note: str) -> None:
    axes.set_title(question, loc="left", fontweight="bold", pad=10 + 11 * (note.count("\n") + 1))
    axes.text(0.0, 1.02, note, transform=axes.transAxes, fontsize=8.5, va="bottom", color="#5A5A5A")


Panel = Callable[[Axes, dict[str, Any]], None]
OVERVIEW = "overview"
# name -> the part that it needs, and the function that draws it
PANELS: dict[str, tuple[str, Panel]] = {
    "directions": ("alignment", directions),
    "gaps": ("gaps", gaps),
    "waypoints": ("gaps", waypoints),
    "controllability": ("controllability", controllability),
    "calibration": ("calibration", calibration),
    "detours": ("gaps", detours),
    "true_way": ("calibration", partial(calibration, key="true_way")),
    "spectrum": ("conditioning", spectrum),
}
IN_OVERVIEW = ("directions", "gaps", "waypoints", "controllability", "calibration", "detours")


def figures(content: dict[str, Any]) -> dict[str, Callable[[], Figure]]:
    """Return name -> function that draws it, for every figure with numbers."""
    there = {name: panel for name, (part, panel) in PANELS.items() if content.get(part)}
    alone = {name: partial(_alone, content, panel) for name, panel in there.items()}
    shown = [there[name] for name in IN_OVERVIEW if name in there]
    return {OVERVIEW: partial(overview, content, shown), **alone} if shown else alone


def _alone(content: dict[str, Any], panel: Panel) -> Figure:
    with house_style():
        figure = Figure(figsize=(5.2, 4.4), layout="constrained")
        panel(figure.add_subplot(), content)
        return figure


def overview(content: dict[str, Any], shown: list[Panel]) -> Figure:
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    with house_style():
        figure = Figure(figsize=(4.9 * columns, 4.3 * rows + 0.6), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
        for at, panel in enumerate(shown):
            panel(figure.add_subplot(rows, columns, at + 1), content)
        figure.suptitle(_title(content), x=0.012, ha="left", fontsize=13)
        return figure


def _title(content: dict[str, Any]) -> str:
    about = content.get("about") or {}
    who = about.get("method") or content["policy"]
    seed = "" if about.get("seed") is None else f", seed {about['seed']}"
    reach = f"{content['episodes_that_reach']} of {content['episodes']} episodes reach their goal"
    return f"{who}{seed} on {content['env']}: what its representation knows ({reach})"
