"""Make the tables and the figure of docs/learns.md, from learns.csv.

python -m tools.docs.learns collect RUNS_DIR     # the runs of learns_*.toml -> docs/results/learns.csv
python -m tools.docs.learns                      # the tables and the figure of success over minutes
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dcp.lab.statistics import t_interval
from dcp.lab.style import colours, house_style, save
from tools.docs.cells import Cell, Curve, Runs, Seeds, collect, markdown, read
from tools.docs.pages import RESULTS, put

DATA = RESULTS / "learns.csv"
TASKS = (
    *("so101_push", "so101_lift", "fetch_reach", "fetch_push", "fetch_pick_and_place", "fetch_slide"),
    *("pusher_easy", "pusher_hard", "ant_u_maze"),
)
OF_TASK = ("control", "randomize")  # besides the environment
KEYS = (*OF_TASK, "method", "command", "condition")
COLUMNS = ("env_steps", "updates", "success_once", "time_near_goal", "wall_seconds")
MINUTES = (5, 10, 15, 30, 60)
ACROSS = 3  # panels in a row of the figure


def at_minute(curve: Curve, minute: float) -> int | None:
    """Return the last evaluation that a run had done by then; None before its first, or after its end by far."""
    done = np.flatnonzero(curve["wall_seconds"] <= 60 * minute)
    ends = curve["wall_seconds"][-1] / 60
    return int(done[-1]) if len(done) and minute < 2 * ends else None


def success_over_minutes(all_runs: Mapping[str, Runs]) -> str:
    """Return success in percent at each of `MINUTES`, with 95% t-intervals over seeds."""
    rows = []
    for env, runs in all_runs.items():
        for cell, seeds in runs.items():
            cells = []
            for minute in MINUTES:
                at = {seed: at_minute(curve, minute) for seed, curve in seeds.items()}
                values = [100 * float(seeds[seed]["success_once"][i]) for seed, i in at.items() if i is not None]
                cells.append(str(t_interval(values)) if len(values) == len(seeds) else "")
            rows.append([task(env, cell), method(cell), str(len(seeds)), *cells, *_ends(seeds)])
    minutes = [f"{minute} min" for minute in MINUTES]
    return markdown(["task", "method", "seeds", *minutes, "at the end", "steps near", "took"], rows)


def task(env: str, cell: Cell) -> str:
    control, randomize = cell[: len(OF_TASK)]
    how = f", by {'the tool' if control == 'tool' else 'joints'}" if env.startswith("so101_") else ""
    return f"{env}{how}{', randomized' if randomize != str(None) else ''}"


def method(cell: Cell) -> str:
    """Return the method's name, with the parts that the run set besides."""
    name, *parts = cell[len(OF_TASK) :]
    return ", ".join([f"`{name}`", *(part for part in parts if part != str(None))])


def _ends(seeds: Seeds) -> list[str]:
    """Return success and steps near the goal at the last evaluation, and the minutes of the slowest run."""
    success = t_interval([100 * float(curve["success_once"][-1]) for curve in seeds.values()])
    near = t_interval([float(curve["time_near_goal"][-1]) for curve in seeds.values()])
    slowest = max(float(curve["wall_seconds"][-1]) for curve in seeds.values()) / 60
    return [str(success), str(near), f"{slowest:.0f} min"]


def figure(all_runs: Mapping[str, Runs]) -> Figure:
    """Draw each seed's success over minutes: a panel per task, a colour per method."""
    panels: dict[str, list[tuple[str, Seeds]]] = {}
    for env, runs in all_runs.items():
        for cell, seeds in runs.items():
            panels.setdefault(task(env, cell), []).append((method(cell).replace("`", ""), seeds))
    colour_of = colours(list(dict.fromkeys(name for lines in panels.values() for name, _ in lines)))
    rows = -(-len(panels) // ACROSS)
    with house_style():
        drawn = Figure(figsize=(2.8 * min(ACROSS, len(panels)), 2.3 * rows + 0.4), layout="constrained")
        grid = drawn.subplots(rows, min(ACROSS, len(panels)), sharey=True, squeeze=False)
        entries = {}
        for axes, (title, lines) in zip(grid.flat, panels.items(), strict=False):
            for name, seeds in lines:
                for curve in seeds.values():
                    minutes, success = curve["wall_seconds"] / 60, 100 * curve["success_once"]
                    (entries[name],) = axes.plot(minutes, success, color=colour_of[name])
            axes.set(title=title, xlabel="minutes", ylim=(-2, 102))
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes in grid[:, 0]:
            axes.set_ylabel("success (%)")
        drawn.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=min(4, len(entries)))
    return drawn


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["collect"]:
        collect(Path(arguments[1]), DATA, KEYS, COLUMNS, TASKS)
        return
    all_runs = read(DATA, KEYS, COLUMNS, same_length=("env", *OF_TASK))
    put("learns", success_over_minutes(all_runs))
    save(figure(all_runs), RESULTS / "learns.png")


if __name__ == "__main__":
    main(sys.argv[1:])
