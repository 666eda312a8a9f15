"""Make the tables and the figure of docs/learns.md, from learns.csv.

python -m tools.docs.learns collect RUNS_DIR     # the runs of learns_push.toml -> docs/results/learns.csv
python -m tools.docs.learns                      # the tables and the figure of success over minutes
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dcp.lab.statistics import t_interval
from dcp.lab.style import colours, house_style, save
from tools.docs.cells import Curve, Runs, Seeds, collect, markdown, read
from tools.docs.pages import RESULTS, put

DATA = RESULTS / "learns.csv"
TASKS = ("so101_push", "so101_lift", "pusher_easy", "pusher_hard", "fetch_push", "fetch_pick_and_place", "ant_u_maze")
KEYS = ("control", "method")
COLUMNS = ("env_steps", "updates", "success_once", "time_near_goal", "wall_seconds")
MINUTES = (5, 10, 15, 30, 60)


def at_minute(curve: Curve, minute: float) -> int | None:
    """Return the last evaluation that a run had done by then; None before its first, or after its end by far."""
    done = np.flatnonzero(curve["wall_seconds"] <= 60 * minute)
    ends = curve["wall_seconds"][-1] / 60
    return int(done[-1]) if len(done) and minute < 2 * ends else None


def success_over_minutes(all_runs: Mapping[str, Runs]) -> str:
    """Return success in percent at each of `MINUTES`, with 95% t-intervals over seeds."""
    rows = []
    for env, runs in all_runs.items():
        for (control, method), seeds in runs.items():
            cells = []
            for minute in MINUTES:
                at = {seed: at_minute(curve, minute) for seed, curve in seeds.items()}
                values = [100 * float(seeds[seed]["success_once"][i]) for seed, i in at.items() if i is not None]
                cells.append(str(t_interval(values)) if len(values) == len(seeds) else "")
            rows.append([_task(env, control), f"`{method}`", str(len(seeds)), *cells, *_ends(seeds)])
    minutes = [f"{minute} min" for minute in MINUTES]
    return markdown(["task", "method", "seeds", *minutes, "at the end", "steps near", "took"], rows)


def _task(env: str, control: str) -> str:
    return f"{env}, by the tool" if control == "tool" else f"{env}, by joints" if env.startswith("so101_") else env


def _ends(seeds: Seeds) -> list[str]:
    """Return success and steps near the goal at the last evaluation, and the minutes of the slowest run."""
    success = t_interval([100 * float(curve["success_once"][-1]) for curve in seeds.values()])
    near = t_interval([float(curve["time_near_goal"][-1]) for curve in seeds.values()])
    slowest = max(float(curve["wall_seconds"][-1]) for curve in seeds.values()) / 60
    return [str(success), str(near), f"{slowest:.0f} min"]


def figure(all_runs: Mapping[str, Runs]) -> Figure:
    """Draw each seed's success over minutes: a panel per task, a colour per method."""
    panels = [(env, control, runs) for env, runs in all_runs.items() for control in dict.fromkeys(c for c, _ in runs)]
    methods = list(dict.fromkeys(method for _, _, runs in panels for _, method in runs))
    colour_of = colours(methods)
    with house_style():
        drawn = Figure(figsize=(3.2 * len(panels), 2.6), layout="constrained")
        axes_of = drawn.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (env, control, runs) in zip(axes_of, panels, strict=True):
            for (of_control, method), seeds in runs.items():
                for curve in seeds.values() if of_control == control else ():
                    minutes, success = curve["wall_seconds"] / 60, 100 * curve["success_once"]
                    axes.plot(minutes, success, color=colour_of[method], label=method)
            axes.set(title=_task(env, control), xlabel="minutes", ylim=(-2, 102))
        axes_of[0].set_ylabel("success (%)")
        entries = {}
        for axes in axes_of:
            entries |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        drawn.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=len(entries))
    return drawn


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["collect"]:
        collect(Path(arguments[1]), DATA, KEYS, COLUMNS, TASKS)
        return
    all_runs = read(DATA, KEYS, COLUMNS)
    put("learns", success_over_minutes(all_runs))
    save(figure(all_runs), RESULTS / "learns.png")


if __name__ == "__main__":
    main(sys.argv[1:])
