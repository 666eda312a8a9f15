"""The figures of docs/theory.md, computed from scratch."""

from pathlib import Path
from typing import Any

import matplotlib

from dcp.theory.car_figure import car_figure
from dcp.theory.limits_figure import limits_figure
from dcp.theory.plane_figure import plane_figure
from dcp.theory.sweep_figure import sweep_figure

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
    """Draws every figure into the folder, as PNG without a date inside: the same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with matplotlib.rc_context(_STYLE):
        for name, draw in FIGURES.items():
            paths.append(folder / f"{name}.png")
            draw().savefig(paths[-1], metadata={"Software": None})
    return paths
