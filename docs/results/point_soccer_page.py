"""The tables and the figure of docs/results.md's section on point_soccer, from two CSV files beside this one alone."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from make import PAGE, put
from matplotlib.figure import Figure

from dcp.analysis.comparing import holm, paired_test
from dcp.analysis.curves import METRICS, Columns, plot_methods
from dcp.analysis.statistics import t_interval
from dcp.analysis.style import house_style, save

HERE = Path(__file__).parent
RANDOM = "random actions"
PAIRS = (
    ("dcp", "crl"),
    ("dcp, seeded pool", "dcp"),
    ("dcp, seeded pool and critic", "dcp"),
    ("dcp, seeded pool and critic", "dcp, seeded pool"),
)
STEPS = (1, 10, 50)  # of the controllability

Runs = dict[str, dict[str, list[Columns]]]  # study -> arm -> one record a seed


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


def results_table(arms: dict[str, list[Columns]]) -> str:
    head = [
        "",
        "success, last (%)",
        "success, mean over the run (%)",
        "time near goal, last",
        "ball to goal, at the end",
    ]
    lines = [_line(head), "|---" * len(head) + "|"]
    for arm, runs in arms.items():
        cells = [last(runs, "success_once", 100), whole(runs, "success_once", 100), last(runs, "time_near_goal")]
        cells += [last(runs, "final_distance")]
        digits = (1, 1, 1, 2)
        lines.append(_line([arm, *(_interval(values, d) for values, d in zip(cells, digits, strict=True))]))
    return "\n".join(lines)


def paired_table(arms: dict[str, list[Columns]]) -> str:
    head = ["difference", "success, last (points)", "p (Holm)", "success, mean over the run (points)", "p (Holm)"]
    tests = []
    for values in (last, whole):
        sides = {arm: dict(enumerate(values(runs, "success_once", 100))) for arm, runs in arms.items()}
        found = [paired_test(sides[ours], sides[theirs]) for ours, theirs in PAIRS]
        tests.append(list(zip(found, holm([test.p_value for test in found if test]), strict=True)))
    lines = [_line(head), "|---" * len(head) + "|"]
    for at, (ours, theirs) in enumerate(PAIRS):
        cells = [f"{ours} less {theirs}"]
        for column in tests:
            test, corrected = column[at]
            assert test is not None
            cells += [str(test.difference), f"{test.p_value:.3f} ({corrected:.2f})"]
        lines.append(_line(cells))
    return "\n".join(lines)


def diagnosis_table() -> str:
    """Means over seeds of what `dcp diagnose` measured at the states that each agent visits."""
    rows = list(csv.DictReader((HERE / "point_soccer_diagnosis.csv").open()))
    head = ["", *(f"{what}, k = {k}" for what in ("movable", "share", "cosine") for k in STEPS)]
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
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def make() -> None:
    runs = read()
    arms = runs["point_soccer"]
    save(curves_figure(arms), HERE / "point_soccer.png")
    page = PAGE.read_text()
    page = put(page, "soccer", results_table(arms))
    page = put(page, "soccer_paired", paired_table(arms))
    if (HERE / "point_soccer_diagnosis.csv").exists():
        page = put(page, "soccer_diagnosis", diagnosis_table())
    page = put(page, "push", results_table(runs["point_push"]).replace("ball to goal", "point to goal"))
    PAGE.write_text(page)


def _interval(values: np.ndarray, digits: int) -> str:
    found = t_interval(values)
    if not np.isfinite(found.half_width):
        return f"{found.mean:.{digits}f}"
    return f"{found.mean:.{digits}f} ± {found.half_width:.{digits}f}"


def _line(cells) -> str:
    return "| " + " | ".join(cells) + " |"
