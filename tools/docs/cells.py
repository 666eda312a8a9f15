"""Collect the runs of a grid file, and make tables and figures of them: rows x columns of cells, seeds in each cell."""

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from dcp.files.run_folder import load_run
from dcp.lab.statistics import PairedTest, holm, paired_test
from dcp.lab.style import colours, house_style

Curve = dict[str, np.ndarray]  # a column of metrics.csv by its name; nan where it was not logged
Seeds = dict[int, Curve]
Cell = tuple[str, ...]  # (row, column) in tables
Runs = dict[Cell, Seeds]
Tests = dict[tuple[str, str], dict[str, PairedTest | None]]  # (maze, row) -> what is compared -> the test
SIGNIFICANT = 0.05


def collect(folder: Path, data: Path, keys: Sequence[str], columns: Sequence[str], mazes: Sequence[str]) -> None:
    """Write every evaluation of the folder's runs as a row; rows of runs that it does not have are kept.

    keys: the settings that tell cells apart, besides the environment.
    """
    of_run = ["env", *keys, "seed"]
    rows = _read(data) if data.is_file() else []
    collected = []
    for path in sorted(folder.glob("**/seed_*/metrics.csv")):
        if not path.stat().st_size:  # no evaluation yet
            continue
        run = load_run(path.parent)
        about = {name: str(run.config[name]) for name in of_run}
        logged = {name: run.metrics[name] for name in columns if name in run.metrics}
        for at in range(len(next(iter(run.metrics.values())))):
            values = {name: float(values[at]) for name, values in logged.items()}
            collected.append(about | {name: f"{x:.6g}" for name, x in values.items() if math.isfinite(x)})
    new = {tuple(row[name] for name in of_run) for row in collected}
    rows = [row for row in rows if tuple(row[name] for name in of_run) not in new] + collected
    rows.sort(key=lambda row: (mazes.index(row["env"]), *(row[name] for name in (*keys, "seed"))))
    with data.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*of_run, *columns])
        writer.writeheader()
        writer.writerows(rows)


def read(
    data: Path, keys: Sequence[str], columns: Sequence[str], same_length: Sequence[str] = ("env",)
) -> dict[str, Runs]:
    """-> maze -> the keys' values -> seed -> its curve, of the runs that have all evaluations.

    same_length: runs that agree in these have equally many; one with fewer was cut off.
    """
    rows: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in _read(data):
        rows[tuple(row[name] for name in ("env", *keys, "seed"))].append(row)
    of_group = [("env", *keys).index(name) for name in same_length]
    most: dict[tuple[str, ...], int] = defaultdict(int)
    for run, records in rows.items():
        group = tuple(run[i] for i in of_group)
        most[group] = max(most[group], len(records))
    curves: dict[str, Runs] = defaultdict(lambda: defaultdict(dict))
    for run, records in rows.items():
        env, *cell, seed = run
        if len(records) == most[tuple(run[i] for i in of_group)]:
            curve = {name: np.array([float(record[name] or "nan") for record in records]) for name in columns}
            curves[env][tuple(cell)][int(seed)] = curve
    return curves


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    line, *lines = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return "\n".join([line, "|---" * len(head) + "|", *lines])


def crossed(
    corner: str,
    all_runs: Mapping[str, Runs],
    columns: Mapping[str, str],
    text: Callable[[Cell, Seeds], str],
) -> str:
    """Return a table of what `text` says of each cell; rows without any text are left out."""
    rows = []
    for env, runs in all_runs.items():
        for row in dict.fromkeys(row for row, _ in runs):
            cells = [text((row, column), seeds) if (seeds := runs.get((row, column))) else "" for column in columns]
            if any(cells):
                rows.append([env, f"`{row}`", *cells])
    head = ["maze", corner, *columns.values()]
    skipped = 1 if len(all_runs) == 1 else 0
    return markdown(head[skipped:], [row[skipped:] for row in rows])


def differences(
    all_runs: Mapping[str, Runs], pairs: Mapping[str, tuple[str, str]], value: Callable[[Curve], float]
) -> Tests:
    """Test pairs of columns of the same row against each other, by seed, in every maze."""
    tests: Tests = {}
    for env, runs in all_runs.items():
        for row in dict.fromkeys(row for row, _ in runs):
            of_row = {}
            for name, pair in pairs.items():
                ours, theirs = (
                    {seed: value(curve) for seed, curve in runs.get((row, column), {}).items()} for column in pair
                )
                of_row[name] = paired_test(ours, theirs)
            if any(of_row.values()):
                tests[env, row] = of_row
    return tests


def differences_table(corner: str, tests: Tests) -> str:
    """Return the differences with their 95% t-intervals; bold: p < 0.05 by Holm's correction for the whole table."""
    cells = [(place, name) for place, row in tests.items() for name, test in row.items() if test is not None]
    p_values = holm([tests[place][name].p_value for place, name in cells])  # pyright: ignore[reportOptionalMemberAccess]
    corrected = dict(zip(cells, p_values, strict=True))

    def shown(place: tuple[str, str], name: str, test: PairedTest | None) -> str:
        if test is None:
            return ""
        return f"**{test.difference}**" if corrected[place, name] < SIGNIFICANT else str(test.difference)

    rows = [[place[0], f"`{place[1]}`", *(shown(place, *one) for one in row.items())] for place, row in tests.items()]
    return markdown(["maze", corner, *next(iter(tests.values()))], rows)


def figure(
    all_runs: Mapping[str, Runs], panels: Sequence[str], lines: Mapping[str, str], measure: str, label: str
) -> Figure:
    """Draw the mean over seeds of a share, in percent, over updates: a row per maze, a panel per row of the tables."""
    colour_of = colours(list(lines))
    with house_style():
        drawn = Figure(figsize=(2.6 * len(panels), 2.3 * len(all_runs)), layout="constrained")
        grid = drawn.subplots(len(all_runs), len(panels), sharex=True, sharey=True, squeeze=False)
        for row, (env, runs) in zip(grid, all_runs.items(), strict=True):
            for axes, panel in zip(row, panels, strict=True):
                for column, name in lines.items():
                    seeds = list(runs.get((panel, column), {}).values())
                    if seeds:
                        mean = 100 * np.mean([seed[measure] for seed in seeds], axis=0)
                        axes.plot(seeds[0]["updates"] / 1e3, mean, color=colour_of[column], label=name)
                axes.set_title(f"{env}\n{panel}")
                axes.set_ylim(-2, 102)
            row[0].set_ylabel(label)
        for axes in grid[-1]:
            axes.set_xlabel("updates (thousands)")
        entries: dict[str, Artist] = {}
        for axes in grid[0]:
            handles, names = axes.get_legend_handles_labels()
            entries |= dict(zip(names, handles, strict=True))
        drawn.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=len(lines))
    return drawn
