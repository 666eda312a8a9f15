"""Make the figure and print the tables of Ant U4 in docs/results_others.md, from three CSV files alone.

    python -m tools.docs.ant_u4 collect RUNS_DIR     # the page's runs -> ant_u4.csv
    python -m tools.docs.ant_u4 layouts RUNS_DIR     # the last policies on all and on far goals -> ant_u4_layouts.csv
    python -m tools.docs.ant_u4                      # the figure; prints the tables

ant_u4_published.csv has the first ten million steps of ChronoSRL's own curves at depth 4 (its site's bench.json, four
seeds, steps near the goal after each million).
"""

import csv
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dcp.lab.style import colours, house_style, save
from dcp.lab.trial import evaluate
from tools.docs.pages import RESULTS

OURS, PUBLISHED, LAYOUTS = RESULTS / "ant_u4.csv", RESULTS / "ant_u4_published.csv", RESULTS / "ant_u4_layouts.csv"
COLUMNS = ("env_steps", "updates", "time_near_goal", "success_once")
METHODS = {"crl": "CRL", "chronosrl": "ChronoSRL", "chronosrl_direction": "ChronoSRL, direction"}
GOALS = {"all": "ant_u4_maze", "far": "ant_u4_maze_eval"}
EPISODES = 256


def folders(runs: Path) -> dict[str, Path]:
    return {method: runs / f"ant_u4_maze/{method}-residual/seed_0" for method in METHODS}


def collect(runs: Path) -> None:
    rows = []
    for method, folder in folders(runs).items():
        with (folder / "metrics.csv").open(newline="") as file:
            rows += [
                {"method": method} | {name: f"{float(row[name]):.6g}" for name in COLUMNS}
                | {"env_steps": int(float(row["env_steps"]))}
                for row in csv.DictReader(file)
            ]  # fmt: skip
    _write(OURS, rows)


def layouts(runs: Path) -> None:
    """Evaluate each run's last policy on both layouts. The weights are the same, the goals are not."""
    rows = []
    for method, folder in folders(runs).items():
        for goals, env in GOALS.items():
            summary = evaluate(folder, env, episodes=EPISODES).all.summary()
            near, success = summary["time_near_goal"], summary["success_once"]
            rows.append({"method": method, "goals": goals, "time_near_goal": near, "success_once": success})
            print(rows[-1], flush=True)
    _write(LAYOUTS, rows)


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def ours() -> dict[str, dict[str, np.ndarray]]:
    rows = _read(OURS)
    return {
        method: {name: np.array([float(row[name]) for row in rows if row["method"] == method]) for name in COLUMNS}
        for method in METHODS
    }


def published() -> dict[str, np.ndarray]:
    """Return the published seeds by method: [seeds, millions of steps]."""
    rows = _read(PUBLISHED)
    millions = [str(number) for number in range(1, 11)]
    return {
        method: np.array([[float(row[m]) for m in millions] for row in rows if row["method"] == method])
        for method in dict.fromkeys(row["method"] for row in rows)
    }


def figure() -> Figure:
    colour_of = colours(list(METHODS))
    runs, theirs = ours(), published()
    longest = max(run["env_steps"][-1] for run in runs.values())
    with house_style():
        drawn = Figure(figsize=(8.8, 3.4), layout="constrained")
        near, success = drawn.subplots(1, 2)
        for method, seeds in theirs.items():
            steps = np.arange(1, seeds.shape[1] + 1) * 1e6
            shown = steps <= longest + 1e6
            near.plot(steps[shown], seeds.T[shown], color=colour_of[method], linewidth=0.8, alpha=0.5, linestyle=":")
        for method, label in METHODS.items():
            run = runs[method]
            near.plot(run["env_steps"], run["time_near_goal"], color=colour_of[method], label=label)
            success.plot(run["env_steps"], 100 * run["success_once"], color=colour_of[method], label=label)
        near.set_ylabel("Time near goal (steps)")
        success.set_ylabel("Success at least once (%)")
        for axes in (near, success):
            axes.set_xlabel("Environment steps (millions)")
            axes.xaxis.set_major_formatter(lambda steps, _: f"{steps / 1e6:.3g}")
            axes.set_xlim(0, 1.02 * longest)
        near.set_title("dotted: ChronoSRL's published seeds")
        success.set_title("ant_u4_maze, all goals, depth 4, one seed each")
        handles, labels = near.get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=3)
    return drawn


def curve_table() -> str:
    runs, theirs = ours(), published()
    common = min(len(run["env_steps"]) for run in runs.values())
    head = [
        "environment steps",
        *(f"{label}: {what}" for label in METHODS.values() for what in ("near", "success (%)")),
    ]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    steps = runs["crl"]["env_steps"][:common]
    for at in (int(np.argmin(abs(steps - near))) for near in (1e6, 2e6, 1e9)):  # as published, and the last
        cells = [f"{int(runs['crl']['env_steps'][at]):,}"]
        for run in runs.values():
            cells += [f"{run['time_near_goal'][at]:.0f}", f"{100 * run['success_once'][at]:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    for million in (1, 2, 3, 10):
        cells = [f"published, {million},000,000"]
        for method in METHODS:
            seeds = theirs.get(method)
            cells += ["", ""] if seeds is None else [", ".join(f"{v:.0f}" for v in seeds[:, million - 1]), ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def layout_table() -> str:
    rows = {(row["method"], row["goals"]): row for row in _read(LAYOUTS)}
    steps = {method: int(run["env_steps"][-1]) for method, run in ours().items()}
    lines = [
        "| run | steps | near, all goals | near, far goals | success (%), all | success (%), far |",
        "|---" * 6 + "|",
    ]
    for method, label in METHODS.items():
        both = [rows[method, goals] for goals in GOALS]
        near = [f"{float(row['time_near_goal']):.1f}" for row in both]
        success = [f"{100 * float(row['success_once']):.1f}" for row in both]
        lines.append(f"| {label} | {steps[method]:,} | " + " | ".join(near + success) + " |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["collect"]:
        collect(Path(arguments[1]))
    elif arguments[:1] == ["layouts"]:
        layouts(Path(arguments[1]))
    else:
        save(figure(), RESULTS / "ant_u4.png")
        print(f"{curve_table()}\n\n{layout_table()}")


if __name__ == "__main__":
    main(sys.argv[1:])
