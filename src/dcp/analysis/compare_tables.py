"""A comparison of two runs as tables, for the terminal and for a report."""

import math

import numpy as np

from dcp.analysis.compare_runs import Comparison, Difference, Side
from dcp.analysis.curves import METRICS, curve
from dcp.analysis.tables import Cell, Row, Table, absent, number
from dcp.statistics import success_difference_error

BARS = "▁▂▃▄▅▆▇█"
MOST_POINTS = 12


def comparison_tables(found: Comparison) -> list[Table]:
    """Settings, versions, results, the evaluations that both had, results of `dcp eval`; what is empty is left out."""
    a, b = found.names
    tables = [_difference_table("settings", "Settings that differ", ("setting", a, b), found.settings)]
    tables.append(_difference_table("versions", "Versions that differ", ("package", a, b), found.versions))
    if found.a.has_results and found.b.has_results and found.metrics:
        tables += [results_table(found), points_table(found)]
    tables.append(_evals_table(found))
    return [table for table in tables if table.rows]


def _difference_table(name: str, title: str, columns: tuple[str, str, str], found: list[Difference]) -> Table:
    return Table(f"compare_{name}", title, columns, tuple(Row(tuple(map(Cell, each))) for each in found))


def results_table(found: Comparison) -> Table:
    """Last and best of each run, and what they have in common."""
    rows = []
    for metric in found.metrics:
        label = METRICS[metric].label
        rows.append(_row(f"{label}, last", last_of(found.a, metric), last_of(found.b, metric), metric, found))
        rows.append(_row(f"{label}, best", best_of(found.a, metric), best_of(found.b, metric), metric, None))
        shared = found.shared(metric)
        if len(shared.steps):
            name = f"{label}, mean of the {len(shared.steps)} common evaluations"
            gap = float(np.mean(shared.a - shared.b))
            means = (number(float(np.mean(shared.a))), number(float(np.mean(shared.b))))
            rows.append(Row((Cell(name), *means, number(gap, sign=True), Cell(""))))
    notes = ["± : 95% interval by the number of episodes alone (Agresti and Caffo); it knows nothing of seeds."]
    if found.elsewhere:
        notes.append(f"{found.elsewhere}: a difference between them is none between what was learned.")
    if found.same_episodes:
        notes.append("Equal seeds and evaluation settings: evaluations of one number are on the same episodes.")
    notes.append("Two runs are one seed each: a difference between them is no statement about what they differ in.")
    return Table("compare_results", "Results", ("", *found.names, "A - B", "±"), tuple(rows), tuple(notes))


def last_of(side: Side, metric: str) -> tuple[float, float]:
    """-> steps, value"""
    steps, values = curve(side.run.metrics, metric)
    return float(steps[-1]), float(values[-1])


def best_of(side: Side, metric: str) -> tuple[float, float]:
    """The first of the highest; nan if nothing was finite."""
    steps, values = curve(side.run.metrics, metric)
    if not np.isfinite(values).any():
        return math.nan, math.nan
    at = int(np.nanargmax(values))
    return float(steps[at]), float(values[at])


def _row(name: str, a: tuple[float, float], b: tuple[float, float], metric: str, judged: Comparison | None) -> Row:
    same = a[0] == b[0]
    gap = number(a[1] - b[1], sign=True) if same or judged is None else absent("evaluated at different steps")
    error = Cell("")
    if judged is not None and same and metric == "success_once" and math.isfinite(a[1] - b[1]):
        episodes = [int(side.run.config["eval_episodes"]) for side in (judged.a, judged.b)]
        error = number(100.0 * success_difference_error(a[1] / 100.0, b[1] / 100.0, *episodes))
    return Row((Cell(name), _at(*a), _at(*b), gap, error))


def _at(steps: float, value: float) -> Cell:
    cell = number(value)
    if math.isnan(steps):
        return cell
    return Cell(f"{cell.text} at {steps:,.0f}", cell.value)


def points_table(found: Comparison) -> Table:
    """The evaluations that both had; at most a dozen, evenly chosen, the last always."""
    shared = {metric: found.shared(metric) for metric in found.metrics}
    steps = next(iter(shared.values())).steps
    shown = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_POINTS)).round().astype(int))
    columns, rows = ["environment steps"], []
    for metric in found.metrics:
        short = METRICS[metric].label.split(" (")[0]
        columns += [f"{METRICS[metric].label}: A", f"{short}: B", f"{short}: A - B"]  # no two alike: a CSV's names
    for at in shown if len(steps) else []:
        cells = [Cell(f"{steps[at]:,.0f}", float(steps[at]))]
        for each in shared.values():
            a, b = float(each.a[at]), float(each.b[at])
            cells += [number(a), number(b), number(a - b, sign=True)]
        rows.append(Row(tuple(cells)))
    left = [f"{len(shown)} of {len(steps)} common evaluations are shown."] if len(shown) < len(steps) else []
    return Table("compare_points", "Evaluations at the same steps", tuple(columns), tuple(rows), tuple(left))


def _evals_table(found: Comparison) -> Table:
    rows = [
        Row(
            (
                Cell(each.name),
                number(each.success[0]),
                number(each.success[1]),
                number(each.gain.mean, each.gain.half_width, sign=True),
                number(each.time_gain.mean, each.time_gain.half_width, sign=True),
                Cell(f"{each.wins} / {each.ties} / {each.losses}"),
            )
        )
        for each in found.paired_evals
    ]
    columns = ("dcp eval", "success of A (%)", "of B", "A - B", "time near goal, A - B", "A wins / ties / B wins")
    notes = ("The same episodes by both: mean difference and 95% t-interval over episodes.",)
    return Table("compare_evals", "On the same episodes", columns, tuple(rows), notes)


def sparkline(side: Side, metric: str, top: float) -> str:
    """A curve in one line of text; a gap where nothing was measured."""
    _, values = curve(side.run.metrics, metric)
    levels = np.clip(values / max(top, 1e-9), 0.0, 1.0) * (len(BARS) - 1)
    return "".join(" " if math.isnan(level) else BARS[round(level)] for level in levels.tolist())


def curves_in_text(found: Comparison) -> list[str]:
    """Both metrics of both runs, on one scale each."""
    lines = []
    for metric in found.metrics:
        sides = ((found.names[0], found.a), (found.names[1], found.b))
        highest = max(float(np.nanmax([*curve(side.run.metrics, metric)[1], 0.0])) for _, side in sides)
        top = METRICS[metric].top or highest
        width = max(len(name) for name in found.names)
        lines.append(f"{METRICS[metric].label}, 0 to {top:.4g}")
        lines += [f"  {name:<{width}}  {sparkline(side, metric, top)}" for name, side in sides]
    return lines
