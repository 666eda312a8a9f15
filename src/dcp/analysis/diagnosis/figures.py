"""The figures of a diagnosis: one overview, and each panel by itself."""

from collections.abc import Callable
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dcp.analysis.diagnosis import panels
from dcp.analysis.style import house_style

Panel = Callable[[Axes, dict[str, Any]], None]
OVERVIEW = "overview"
# name -> the part that it needs, and who draws it
PANELS: dict[str, tuple[str, Panel]] = {
    "directions": ("alignment", panels.directions),
    "gaps": ("gaps", panels.gaps),
    "waypoints": ("gaps", panels.waypoints),
    "controllability": ("controllability", panels.controllability),
    "calibration": ("calibration", panels.calibration),
    "detours": ("gaps", panels.detours),
    "true_way": ("calibration", partial(panels.calibration, key="true_way")),
    "spectrum": ("conditioning", panels.spectrum),
}
IN_OVERVIEW = ("directions", "gaps", "waypoints", "controllability", "calibration", "detours")


def figures(content: dict[str, Any]) -> dict[str, Callable[[], Figure]]:
    """Name -> who draws it, of every figure that there are numbers for."""
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
