"""Make the tables of docs/results_others.md on point_soccer with data, from soccer_data.csv.

python -m tools.docs.soccer_data collect RUNS_DIR   # the runs of soccer_alone.toml and soccer_data.toml
python -m tools.docs.soccer_data                    # the tables
"""

import sys
from pathlib import Path

from dcp.lab.statistics import t_interval
from tools.docs.cells import Cell, Curve, Seeds, collect, crossed, differences, differences_table, read
from tools.docs.pages import RESULTS, put

DATA = RESULTS / "soccer_data.csv"
KEYS = ("method", "data")
COLUMNS = ("env_steps", "updates", "success_once", "time_near_goal")
FORMS = {"alone": "alone", "kicks": "with kicks"}


def last(curve: Curve) -> float:
    """Return success at the last evaluation, in percent."""
    return 100 * float(curve["success_once"][-1])


def shown(cell: Cell, seeds: Seeds) -> str:
    """Return success and steps near the goal at the last evaluation, with 95% t-intervals over seeds."""
    near = [float(curve["time_near_goal"][-1]) for curve in seeds.values()]
    return f"{t_interval([last(curve) for curve in seeds.values()])}, {t_interval(near)}"


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["collect"]:
        collect(Path(arguments[1]), DATA, KEYS, COLUMNS, ["point_soccer"])
        return
    runs = {
        env: {(method, "alone" if data == "None" else "kicks"): seeds for (method, data), seeds in cells.items()}
        for env, cells in read(DATA, KEYS, COLUMNS).items()
    }
    put("soccer_data", crossed("method", runs, FORMS, shown))
    put("soccer_data_gain", differences_table("method", differences(runs, {"kicks - alone": ("kicks", "alone")}, last)))


if __name__ == "__main__":
    main(sys.argv[1:])
