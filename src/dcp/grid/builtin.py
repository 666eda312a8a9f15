"""Grids that need no file."""

from difflib import get_close_matches
from typing import Any

from dcp.analysis.paper_values import ENVIRONMENTS, METHODS
from dcp.errors import UserError
from dcp.grid.file import GridFile, parse_grid

# As a file would say it.
GRIDS: dict[str, dict[str, Any]] = {
    "paper": {
        "preset": "paper",
        "product": {"env": list(ENVIRONMENTS), "method": list(METHODS), "seed": [0, 1, 2, 3, 4]},
    },
    "smoke": {
        "preset": "smoke",
        "set": {"env": "point_u_maze"},
        "product": {"method": ["crl", "dcp"], "seed": [0, 1, 2, 3]},
    },
}
PURPOSES = {
    "paper": "the paper's nine environments, three methods and five seeds: 135 runs",
    "smoke": "eight tiny runs of a point maze: shows that everything runs, learns nothing",
}


def builtin_grid(name: str) -> GridFile:
    if name not in GRIDS:
        close = get_close_matches(name, GRIDS, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(GRIDS)}, or name a grid file"
        raise UserError(f"unknown grid {name!r}: {hint}")
    return parse_grid(GRIDS[name], f"--preset {name}")
