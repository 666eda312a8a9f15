"""Set how every figure looks: light, legible, clear to colour-blind readers (Okabe and Ito's colours); draw mazes."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from dcp.methods.table import METHODS
from dcp.policies.policy_file import write_whole
from dcp.types import MazeLayout

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
PALETTE = (ORANGE, GREEN, BLUE, PURPLE, VERMILION, SKY, "#7F7F7F", "#000000")
WALL, INK, FREE = "#6E757D", "#2B2B2B", "#FFFFFF"
BORDER = 0.25  # how much of a maze's outermost wall is drawn, in cells
START_COLOUR, GOAL_COLOUR = GREEN, VERMILION

# The same, lighter, for dark backgrounds.
_LIGHTER = ("#F0B73F", "#35C295", "#4DA6E0", "#E09CC2", "#F08A4B", "#8CCBF0", "#A8A8A8", "#E8E8E8")
ON_DARK: dict[str, str] = dict(zip(PALETTE, _LIGHTER, strict=True))

_METHOD_COLOURS = dict(zip(METHODS, PALETTE, strict=False))

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8A8A8A",
    "axes.labelcolor": INK,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.color": "#8A8A8A",
    "ytick.color": "#8A8A8A",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "savefig.dpi": 160,
    "figure.facecolor": "white",
    "text.parse_math": False,  # a dollar in a run's name is a dollar
    "pdf.fonttype": 42,  # TrueType: journals refuse Matplotlib's default, Type 3
}
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}


@contextmanager
def house_style() -> Iterator[None]:
    """Apply the style to figures that are made and saved inside this context."""
    with matplotlib.rc_context(STYLE):
        yield


def colours(labels: list[str]) -> dict[str, str]:
    """Return a colour per label: a method has the same one in every figure, others get the remaining ones in order."""
    taken = {label: _METHOD_COLOURS[label] for label in labels if label in _METHOD_COLOURS}
    left = [colour for colour in PALETTE if colour not in taken.values()]
    others = [label for label in labels if label not in taken]
    return taken | {label: left[i % len(left)] for i, label in enumerate(others)}


def human_count(number: float, _: object = None) -> str:
    """Format ticks of environment steps: 500000 -> 500k, 1500000 -> 1.5M."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{unit}"
    return f"{number:.4g}"


def step_axis(axes: Axes) -> None:
    """Set up the horizontal axis of a learning curve."""
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(human_count))
    axes.set_xlabel("Environment steps")


def save(figure: Figure, path: Path) -> Path:
    """Save a figure without timestamp or version, so that the same figure gives the same bytes."""
    content = BytesIO()
    with house_style():  # ticks are made while drawing
        figure.savefig(content, format=path.suffix[1:], metadata=_METADATA.get(path.suffix))
    write_whole(path, content.getvalue())  # follows no link of this name
    return path


def draw_maze(axes: Axes, layout: MazeLayout) -> None:
    """Draw walls as solid cells, as in the layout's text: x (row) runs downwards, y (column) to the right."""
    scale = layout.scale
    for i, j in np.argwhere(layout.walls):
        corner = ((j - 0.5) * scale, (i - 0.5) * scale)
        axes.add_patch(Rectangle(corner, scale, scale, facecolor=WALL, linewidth=0, antialiased=False, zorder=3))
    rows, columns = layout.walls.shape
    near, far = 0.5 - BORDER, 1.5 - BORDER  # only the inner edge of the outer walls is shown
    axes.set_xlim(near * scale, (columns - far) * scale)
    axes.set_ylim((rows - far) * scale, near * scale)
    axes.set_aspect("equal")
    axes.xaxis.set_major_locator(MultipleLocator(scale * max(1, columns // 10)))
    axes.yaxis.set_major_locator(MultipleLocator(scale * max(1, rows // 10)))
    axes.set_xlabel("y (column)")
    axes.set_ylabel("x (row, downwards)")
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0)


def draw_arrows(axes: Axes, points: np.ndarray, ways: np.ndarray, length: float, **look: Any) -> None:
    """Draw unit vectors [K, 2] about points [K, 2]; x (row) runs downwards."""
    head = {"headwidth": 4.2, "headlength": 4.2, "headaxislength": 3.8, "zorder": 4}
    placed = {"angles": "xy", "scale_units": "xy", "scale": 1.0, "pivot": "mid"}
    axes.quiver(points[:, 1], points[:, 0], length * ways[:, 1], length * ways[:, 0], **placed, **head, **look)


def arrows_per_cell(layout: MazeLayout) -> int:
    """Return the number of arrows per cell side: fewer in a large maze, to keep them apart."""
    return 4 if max(layout.walls.shape) <= 6 else 2
