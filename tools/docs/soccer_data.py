"""Make the table of docs/results_others.md on point_soccer with data, from soccer_data.csv.

python -m tools.docs.soccer_data collect RUNS_DIR   # the runs of soccer_alone.toml and soccer_data.toml
python -m tools.docs.soccer_data                    # the table
"""

import sys
from collections.abc import Callable
from pathlib import Path

from dcp.lab.statistics import paired_test, t_interval
from tools.docs.cells import Curve, Runs, Seeds, collect, markdown, read
from tools.docs.pages import RESULTS, put

DATA = RESULTS / "soccer_data.csv"
KEYS = ("method", "data")
COLUMNS = ("env_steps", "updates", "success_once", "time_near_goal")
VALUES = {
    "mean success over the run (%)": lambda curve: 100 * float(curve["success_once"].mean()),
    "success, last (%)": lambda curve: 100 * float(curve["success_once"][-1]),
    "time near goal, last": lambda curve: float(curve["time_near_goal"][-1]),
}


def table(runs: Runs) -> str:
    """Return each method alone and with kicks, and the paired difference, with 95% t-intervals over seeds."""
    rows = []
    for method in dict.fromkeys(method for method, _ in runs):
        alone, mixed = (_seeds(runs, method, with_data) for with_data in (False, True))
        for name, seeds in ((f"`{method}`", alone), (f"`{method}`, kicks", mixed)):
            rows.append([name, *(_mean(seeds, value) for value in VALUES.values())])
        rows.append(["difference", *(_difference(mixed, alone, value) for value in VALUES.values())])
    return markdown(["", *VALUES], rows)


def _mean(seeds: Seeds, value: Callable[[Curve], float]) -> str:
    return str(t_interval([value(curve) for curve in seeds.values()]))


def _difference(mixed: Seeds, alone: Seeds, value: Callable[[Curve], float]) -> str:
    ours, theirs = ({seed: value(curve) for seed, curve in seeds.items()} for seeds in (mixed, alone))
    test = paired_test(ours, theirs)
    return "" if test is None else str(test.difference)


def _seeds(runs: Runs, method: str, with_data: bool) -> Seeds:
    return next(seeds for (name, data), seeds in runs.items() if name == method and (data != "None") == with_data)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["collect"]:
        collect(Path(arguments[1]), DATA, KEYS, COLUMNS, ["point_soccer"])
        return
    put("soccer_data", table(read(DATA, KEYS, COLUMNS)["point_soccer"]))


if __name__ == "__main__":
    main(sys.argv[1:])
