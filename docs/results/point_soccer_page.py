"""The tables and the figure of docs/results_point_soccer*.md, from two CSV files beside this one alone."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from make import put
from matplotlib.figure import Figure

from dcp.lab.curves import Columns, plot_methods
from dcp.lab.run_collection import METRICS
from dcp.lab.statistics import holm, paired_test, t_interval
from dcp.lab.style import house_style, save

HERE = Path(__file__).parent
RANDOM = "random actions"
PAIRS = (
    ("dcp", "crl"),
    ("dcp, seeded pool", "dcp"),
    ("dcp, seeded pool and critic", "dcp"),
    ("dcp, seeded pool and critic", "dcp, seeded pool"),
    ("crl-commanded", "crl"),
    ("dcp", "crl-commanded"),
    ("dcp", "dcp_no_pool"),
)
FIRST = 1_200_000  # environment steps of the first budget
STEPS, COMMON = (1, 50), "cosine, common places"  # of the controllability

Runs = dict[str, dict[str, list[Columns]]]  # study -> arm -> one record per seed


def read() -> Runs:
    rows: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    for row in csv.DictReader((HERE / "point_soccer.csv").open()):
        rows[row["study"], row["arm"], row["seed"]].append(row)
    runs: Runs = defaultdict(lambda: defaultdict(list))
    for (study, arm, _), found in rows.items():
        names = [name for name in found[0] if name not in ("study", "arm", "seed") and found[0][name]]
        runs[study][arm].append({name: np.array([float(row[name]) for row in found]) for name in names})
    return runs


def last(runs: list[Columns], metric: str, scale: float = 1.0) -> np.ndarray:
    return scale * np.array([run[metric][-1] for run in runs])


def whole(runs: list[Columns], metric: str, scale: float = 1.0) -> np.ndarray:
    return scale * np.array([run[metric].mean() for run in runs])


def early(runs: list[Columns], metric: str, scale: float = 1.0) -> np.ndarray:
    """At the end of the first budget"""
    return scale * np.array([run[metric][np.argmax(run["env_steps"] >= FIRST)] for run in runs])


def results_table(arms: dict[str, list[Columns]]) -> str:
    """Success at the end of the first budget too, where a run went on after it."""
    longer = any(run["env_steps"][-1] > 2 * FIRST for runs in arms.values() for run in runs)
    columns = {"success at 1.2M steps (%)": (early, "success_once", 100.0, 1)} if longer else {}
    columns |= {
        "success, last (%)": (last, "success_once", 100.0, 1),
        "success, mean over the run (%)": (whole, "success_once", 100.0, 1),
        "time near goal, last": (last, "time_near_goal", 1.0, 1),
        "distance at the end of the last episodes": (last, "final_distance", 1.0, 2),
    }
    lines = [_line(["", *columns]), "|---" * (len(columns) + 1) + "|"]
    for arm, runs in arms.items():
        cells = [_interval(of(runs, metric, scale), digits) for of, metric, scale, digits in columns.values()]
        lines.append(_line([arm, *cells]))
    return "\n".join(lines)


def paired_table(arms: dict[str, list[Columns]]) -> str:
    """Holm's correction is over all tests of the table."""
    ways = {"last": last, "mean over the run": whole}
    pairs = [pair for pair in PAIRS if set(pair) <= set(arms)]
    tests = []
    for ours, theirs in pairs:
        for of in ways.values():
            sides = [dict(enumerate(of(arms[arm], "success_once", 100.0))) for arm in (ours, theirs)]
            tests.append(paired_test(*sides))
    corrected = holm([test.p_value for test in tests])
    cells = iter([f"{t.difference}, p {_p(t.p_value)} ({_p(p)})" for t, p in zip(tests, corrected, strict=True)])
    lines = [_line(["difference", *ways]), "|---" * (len(ways) + 1) + "|"]
    for ours, theirs in pairs:
        lines.append(_line([f"{ours} less {theirs}", *(next(cells) for _ in ways)]))
    return "\n".join(lines)


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def diagnosis_table(study: str) -> str:
    """Means over seeds of what `dcp diagnose` measured at the states that each agent visits."""
    rows = [row for row in csv.DictReader((HERE / "point_soccer_diagnosis.csv").open()) if row["study"] == study]
    head = ["", *(f"{what}, k = {k}" for what in ("movable", "share", "cosine") for k in STEPS), COMMON]
    lines = [_line(head), "|---" * len(head) + "|"]
    for arm in dict.fromkeys(row["arm"] for row in rows):
        mine = [row for row in rows if row["arm"] == arm]
        cells = [arm]
        for name in head[1:]:
            values = np.array([float(row[name]) for row in mine if row[name]])
            cells.append(_interval(values, 2) if len(values) else "")
        lines.append(_line(cells))
    return "\n".join(lines)


def curves_figure(arms: dict[str, list[Columns]]) -> Figure:
    with house_style():
        figure = Figure(figsize=(9.2, 3.4), layout="constrained")
        for axes, metric in zip(figure.subplots(1, len(METRICS)), METRICS, strict=True):
            plot_methods(axes, {arm: runs for arm, runs in arms.items() if arm != RANDOM}, metric)
            axes.set_title("point_soccer")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def make() -> None:
    runs = read()
    arms = runs["point_soccer"]
    save(curves_figure(arms), HERE / "point_soccer.png")
    put("soccer", results_table(arms))
    put("soccer_paired", paired_table(arms))
    put("slick_paired", paired_table(runs["point_soccer_slick"]))
    put("soccer_diagnosis", diagnosis_table("point_soccer"))
    put("slick_diagnosis", diagnosis_table("point_soccer_slick"))
    for name, study in (("push", "point_push"), ("slick", "point_soccer_slick")):
        put(name, results_table(runs[study]))


def _interval(values: np.ndarray, digits: int) -> str:
    """Two seeds make no interval worth the name: both numbers are given instead."""
    if len(values) < 3:
        return ", ".join(f"{value:.{digits}f}" for value in values)
    found = t_interval(values)
    return f"{found.mean:.{digits}f} ± {found.half_width:.{digits}f}"


def _line(cells) -> str:
    return "| " + " | ".join(cells) + " |"
