"""Success over minutes of one core, from the runs of success_per_minute.toml.

    python docs/results/success_per_minute.py RUNS_DIR [--minutes 90] [--out docs/results/success_per_minute.png]

RUNS_DIR holds <updates>x<batch>/<env>/<method>/seed_<n>/. Prints a table: for each setting the mean over its seeds of
`success_once` and `time_near_goal`, averaged over the evaluations of the last third of the time.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from dcp.analysis.style import house_style, save
from dcp.errors import UserError

MEASURES = {"success_once": "success", "time_near_goal": "steps near the goal"}
Curve = dict[str, np.ndarray]  # a column of metrics.csv by its name


def read(folder: Path, minutes: float) -> dict[str, list[Curve]]:
    """-> setting -> a curve per seed, up to so many minutes"""
    curves: dict[str, list[Curve]] = defaultdict(list)
    for path in sorted(folder.glob("*x*/*/*/seed_*/metrics.csv")):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        within = [row for row in rows if float(row["wall_seconds"]) <= 60.0 * minutes]
        if within:
            columns = ("wall_seconds", "env_steps", *MEASURES)
            curve = {name: np.array([float(row[name]) for row in within]) for name in columns}
            curves[path.parents[3].name].append(curve)
    if not curves:
        raise UserError(f"{folder} holds no runs of this grid: name the --runs-dir that `dcp grid` was given")
    return curves


def draw(curves: dict[str, list[Curve]], out: Path) -> None:
    with house_style():
        figure = Figure(figsize=(8.0, 3.2), layout="constrained")
        for axes, (measure, label) in zip(figure.subplots(1, 2), MEASURES.items(), strict=True):
            for number, (setting, seeds) in enumerate(curves.items()):
                for seed in seeds:
                    name = setting if seed is seeds[0] else None
                    axes.plot(seed["wall_seconds"] / 60.0, seed[measure], color=f"C{number}", label=name)
            axes.set_xlabel("minutes of one core")
            axes.set_title(label)
        axes.legend(title="updates x batch")
        save(figure, out)


def table(curves: dict[str, list[Curve]], minutes: float) -> str:
    lines = [
        "| updates x batch | seeds | steps | minutes | success | steps near the goal |",
        "|---|---|---|---|---|---|",
    ]
    for setting, seeds in curves.items():
        late = [seed["wall_seconds"] >= 40.0 * minutes for seed in seeds]
        means = [
            np.mean([np.mean(s[m][where]) if where.any() else s[m][-1] for s, where in zip(seeds, late, strict=True)])
            for m in MEASURES
        ]
        steps = np.mean([seed["env_steps"][-1] for seed in seeds]) / 1e6
        reached = np.mean([seed["wall_seconds"][-1] for seed in seeds]) / 60.0
        cells = [setting.replace("x", " x "), len(seeds), f"{steps:.1f}M", f"{reached:.0f}"]
        cells += [f"{means[0]:.2f}", f"{means[1]:.0f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".png"))
    args = parser.parse_args()
    curves = read(args.folder, args.minutes)
    draw(curves, args.out)
    print(table(curves, args.minutes))


if __name__ == "__main__":
    main()
