"""Compare two runs: how they differ and what each reached, as tables and a figure."""

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dcp.errors import UserError
from dcp.files.run_folder import CONFIG_FILE, read_config_file
from dcp.files.validation import read_text
from dcp.lab.curves import curve
from dcp.lab.result_tables import DASH, Cell, Row, Table, absent, between, number
from dcp.lab.run_collection import METRICS, EvalRecord, Run, collect
from dcp.lab.statistics import Paired, paired_episodes, success_difference_error
from dcp.lab.style import BLUE, INK, ORANGE, colours, house_style, step_axis

EPISODE_SETTINGS = ("eval_env", "physics", "episode_length", "randomize")  # that say what an evaluation measures
MOST_POINTS = 12
Difference = tuple[str, str, str]  # name, of a, of b


class Shared(NamedTuple):
    """One metric at the evaluations that both runs have, in shown units (percent, steps)."""

    steps: np.ndarray  # [K]
    a: np.ndarray  # [K]
    b: np.ndarray  # [K]


class PairedEval(NamedTuple):
    """Results of `dcp eval` with both policies on the same episodes."""

    name: str
    success: tuple[float, float]  # percent: a, b
    gain: Paired  # a minus b


@dataclass(frozen=True)
class Comparison:
    a: Run
    b: Run
    versions_of: tuple[Mapping[str, str], Mapping[str, str]]

    @property
    def runs(self) -> tuple[Run, Run]:
        return self.a, self.b

    @cached_property
    def names(self) -> tuple[str, str]:
        """Return what tells them apart: method, environment, seed; the folders if nothing does."""
        a, b = self.runs
        if a.method != b.method:
            return f"A: {a.method}", f"B: {b.method}"
        parts = [(x, y) for x, y in ((a.env, b.env), (f"seed {a.seed}", f"seed {b.seed}")) if x != y]
        of_a, of_b = zip(*(parts or [(str(a.folder), str(b.folder))]), strict=True)
        return f"A: {', '.join((a.method, *of_a))}", f"B: {', '.join((b.method, *of_b))}"

    @property
    def settings(self) -> list[Difference]:
        return differences(self.a.config, self.b.config)

    @property
    def versions(self) -> list[Difference]:
        return differences(*self.versions_of)

    @property
    def evaluated_apart(self) -> list[Difference]:
        """Return in what their evaluations differ; if in anything, their numbers cannot be compared."""
        configs = [{**run.config, "eval_env": run.config.get("eval_env") or run.config.get("env")} for run in self.runs]
        return [each for each in differences(*configs) if each[0] in EPISODE_SETTINGS]

    @property
    def metrics(self) -> list[str]:
        """Return the metrics that both recorded; none if one of them has no evaluation yet."""
        return [name for name in METRICS if all(run.num_evaluations and name in run.metrics for run in self.runs)]

    def shared(self, metric: str) -> Shared:
        """Return both at the same environment steps; empty if there are none."""
        (steps_a, values_a), (steps_b, values_b) = (curve(run.metrics, metric) for run in self.runs)
        steps, at_a, at_b = np.intersect1d(steps_a, steps_b, return_indices=True)
        return Shared(steps, values_a[at_a], values_b[at_b])

    @cached_property
    def paired_evals(self) -> list[PairedEval]:
        """Return the results of `dcp eval` that both have on the same episodes."""
        of_b = {record.path.name: record for record in self.b.evals}
        pairs = [_paired(record, of_b[record.path.name]) for record in self.a.evals if record.path.name in of_b]
        return [pair for pair in pairs if pair is not None]


def last(run: Run, metric: str) -> tuple[float, float]:
    """Return steps and value of the last evaluation."""
    steps, values = curve(run.metrics, metric)
    return float(steps[-1]), float(values[-1])


def best(run: Run, metric: str) -> tuple[float, float]:
    """Return steps and value of the first of the highest; nan if nothing was finite."""
    steps, values = curve(run.metrics, metric)
    if not np.isfinite(values).any():
        return math.nan, math.nan
    at = int(np.nanargmax(values))
    return float(steps[at]), float(values[at])


def compare(a: str | Path, b: str | Path) -> Comparison:
    """Compare two run folders, or folders with one run below."""
    runs = _only_run(a), _only_run(b)
    if runs[0].folder.resolve() == runs[1].folder.resolve():
        raise UserError(f"{a} and {b} are the same run: name two")
    versions = (read_config_file(run.folder / CONFIG_FILE)["versions"] for run in runs)
    of_a, of_b = (each if isinstance(each, dict) else {} for each in versions)
    return Comparison(*runs, (of_a, of_b))


def _only_run(path: str | Path) -> Run:
    runs = collect([path]).runs
    if len(runs) != 1:
        names = ", ".join(str(run.folder) for run in runs[:3])
        more = f"name one of {names}{' …' if len(runs) > 3 else ''}" if runs else "name a run's folder"
        raise UserError(f"{path} holds {len(runs)} runs: {more}")
    if runs[0].is_damaged:
        raise UserError(f"{runs[0].folder} is {runs[0].state}")
    return runs[0]


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Return only what differs, in a's order, then what only b has."""

    def text(values: Mapping[str, Any], name: str) -> str:
        value = values.get(name, DASH)
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)

    named = [(name, text(a, name), text(b, name)) for name in dict.fromkeys([*a, *b])]
    return [each for each in named if each[1] != each[2]]


def _paired(record_a: EvalRecord, record_b: EvalRecord) -> PairedEval | None:
    """Return None unless both have the same episodes under the same conditions, and kept each episode's result."""
    defaults = {"physics": "brax", "randomize": [], "episode_length": None}  # of what older files lack
    records = record_a, record_b
    if any(record_a.content.get(name, value) != record_b.content.get(name, value) for name, value in defaults.items()):
        return None
    goals_a, goals_b = (
        [seed.get("goal_set_sha256") if isinstance(seed, dict) else None for seed in record.content["seeds"]]
        for record in records
    )
    a, b = (_episodes(record.path.with_suffix(".csv")) for record in records)
    if goals_a != goals_b or None in goals_a or a is None or b is None or len(a[0]) != len(b[0]) or not len(a[0]):
        return None
    shares = 100.0 * float(a[0].mean()), 100.0 * float(b[0].mean())
    return PairedEval(record_a.path.stem, shares, paired_episodes(b, a))


def _episodes(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Return success and time near goal of every episode; None if the file is missing or not of `dcp eval`."""
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path), newline="")))
        success, time = (np.array([float(row[name]) for row in rows]) for name in ("success", "time_near_goal"))
        if not (np.isin(success, (0, 1)).all() and np.all((time >= 0) & (time < 2**31))):
            return None
        return success, time
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return None


# As tables.


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Return settings, versions, results, common evaluations and results of `dcp eval`; what is empty is left out."""
    tables = []
    for name, noun in (("settings", "setting"), ("versions", "package")):
        rows = tuple(Row(tuple(map(Cell, each))) for each in getattr(comparison, name))
        columns = (noun, *comparison.names)
        tables.append(Table(f"compare_{name}", f"{name.capitalize()} that differ", columns, rows))
    if comparison.metrics:
        tables += [_results_table(comparison), _points_table(comparison)]
    rows = []
    for each in comparison.paired_evals:
        success, time = each.gain.success_once, each.gain.time_near_goal
        gains = (
            between(*(100.0 * end for end in success[:3]), sign=True),
            number(time.mean, time.half_width, sign=True),
        )
        record = Cell(f"{each.gain.wins} / {each.gain.ties} / {each.gain.losses}")
        rows.append(Row((Cell(each.name), *map(number, each.success), *gains, record)))
    columns = ("dcp eval", "success of A (%)", "of B", "A - B", "time near goal, A - B", "A wins / ties / B wins")
    notes = ("Both on the same episodes: mean difference and 95% interval over episodes (success: Agresti and Min).",)
    tables.append(Table("compare_evals", "On the same episodes", columns, tuple(rows), notes))
    return [table for table in tables if table.rows]


def _results_table(comparison: Comparison) -> Table:
    """Return last and best of each run, and their means over the evaluations that both have."""
    a, b, rows = comparison.a, comparison.b, []
    for metric in comparison.metrics:
        label = METRICS[metric].label
        (at_a, last_a), (at_b, last_b) = last(a, metric), last(b, metric)
        gap, error = last_a - last_b, Cell("")
        if at_a == at_b and metric == "success_once" and math.isfinite(gap):
            episodes = [int(run.config["eval_episodes"]) for run in (a, b)]
            error = number(100.0 * success_difference_error(last_a / 100.0, last_b / 100.0, *episodes))
        last_gap = number(gap, sign=True) if at_a == at_b else absent("evaluated at different steps")
        rows.append(Row((Cell(f"{label}, last"), _at(at_a, last_a), _at(at_b, last_b), last_gap, error)))
        best_a, best_b = best(a, metric), best(b, metric)
        best_gap = number(best_a[1] - best_b[1], sign=True)
        rows.append(Row((Cell(f"{label}, best"), _at(*best_a), _at(*best_b), best_gap, Cell(""))))
        shared = comparison.shared(metric)
        if len(shared.steps):
            name = f"{label}, mean of the {len(shared.steps)} common evaluations"
            means = [number(float(np.mean(values))) for values in (shared.a, shared.b)]
            gap = number(float(np.mean(shared.a - shared.b)), sign=True)
            rows.append(Row((Cell(name), *means, gap, Cell(""))))
    notes = ["± : 95% interval from the number of episodes (Agresti and Caffo); it does not cover seeds."]
    for name, of_a, of_b in comparison.evaluated_apart:
        notes.append(f"A was evaluated with {name} {of_a} and B with {of_b}: their numbers cannot be compared.")
    notes.append("Each run is one seed, so a difference between them does not show what their settings do.")
    return Table("compare_results", "Results", ("", *comparison.names, "A - B", "±"), tuple(rows), tuple(notes))


def _at(steps: float, value: float) -> Cell:
    cell = number(value)
    return cell if math.isnan(steps) else Cell(f"{cell.text} at {steps:,.0f}", cell.value)


def _points_table(comparison: Comparison) -> Table:
    """Return the evaluations that both have: at most a dozen, evenly chosen, always with the last."""
    shared = {metric: comparison.shared(metric) for metric in comparison.metrics}
    steps = next(iter(shared.values())).steps
    shown = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_POINTS)).round().astype(int))
    columns, rows = ["environment steps"], []
    for metric in map(METRICS.__getitem__, comparison.metrics):
        columns += [f"{metric.label}: A", f"{metric.name}: B", f"{metric.name}: A - B"]  # distinct names for a CSV
    for at in shown if len(steps) else []:
        cells = [Cell(f"{steps[at]:,.0f}", float(steps[at]))]
        for each in shared.values():
            a, b = float(each.a[at]), float(each.b[at])
            cells += [number(a), number(b), number(a - b, sign=True)]
        rows.append(Row(tuple(cells)))
    notes = [f"{len(shown)} of {len(steps)} common evaluations are shown."] if len(shown) < len(steps) else []
    return Table("compare_points", "Evaluations at the same steps", tuple(columns), tuple(rows), tuple(notes))


# As a figure.


def comparison_figure(comparison: Comparison) -> Figure:
    """Draw both curves in one plot, and their difference below."""
    if not comparison.metrics:
        raise UserError("nothing to plot: one of the two runs has no evaluation yet")
    a, b = comparison.runs
    common = [(a.env, b.env), (a.method, b.method), (f"seed {a.seed}", f"seed {b.seed}")]
    known = colours([a.method, b.method])
    shades = (known[a.method], known[b.method]) if a.method != b.method else (BLUE, ORANGE)
    with house_style():
        figure = Figure(figsize=(4.6 * len(comparison.metrics), 4.3), layout="constrained")
        panels = figure.subplots(2, len(comparison.metrics), squeeze=False, height_ratios=[3, 1.2], sharex="col")
        for (above, below), metric in zip(panels.T, comparison.metrics, strict=True):
            _draw_curves(above, comparison, metric, shades)
            _draw_difference(below, comparison.shared(metric), shades)
        figure.suptitle(", ".join(x for x, y in common if x == y), fontsize=11)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def _draw_curves(axes: Axes, comparison: Comparison, metric: str, shades: tuple[str, str]) -> None:
    shown = METRICS[metric]
    marks = zip(comparison.runs, comparison.names, shades, ("o", "s"), ("-", "--"), strict=True)
    for run, name, colour, marker, line in marks:  # distinct in grey print too
        steps, values = curve(run.metrics, metric)
        axes.plot(steps, values, line, color=colour, marker=marker, markersize=3.8, label=name)
    axes.set_ylabel(shown.label)
    top = shown.top or max(axes.get_ylim()[1], 1e-9)
    axes.set_ylim(-0.02 * top, 1.02 * top)
    axes.set_xlim(left=0.0)


def _draw_difference(axes: Axes, shared: Shared, shades: tuple[str, str]) -> None:
    gap = shared.a - shared.b
    axes.axhline(0.0, color=INK, linewidth=0.8)
    axes.vlines(shared.steps, 0.0, gap, color=[shades[0] if value > 0 else shades[1] for value in gap], linewidth=3.0)
    if not len(shared.steps):
        axes.text(0.5, 0.5, "no common evaluation", transform=axes.transAxes, ha="center", va="center", fontsize=9)
    axes.set_ylabel("A - B")
    axes.margins(y=0.15)
    step_axis(axes)
