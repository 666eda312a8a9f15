"""Write the page of a search: the best settings as a command, a figure per searched setting, the table of trials."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dcp.errors import printable
from dcp.files.writing import require_no_links_out
from dcp.lab.build_report import FIGURES_DIR, draw, with_safe_names
from dcp.lab.report_html import Names, make_page
from dcp.lab.result_tables import Cell, FigureSpec, Row, Section, Table, absent, to_csv, writing_to
from dcp.lab.style import BLUE, VERMILION, house_style
from dcp.policies.policy_file import write_whole

PAGE, TABLE_FILE = "trials.html", "trials.csv"
LOOKS = {"complete": (BLUE, "o"), "pruned": (VERMILION, "x")}
NOTES = (
    "Minutes are those of all runs of the trial together, from their metrics.csv.",
    "A pruned trial has the score that it had when it was stopped.",
)


@dataclass(frozen=True)
class TrialRow:
    number: int
    state: str  # complete, pruned, failed, running
    score: float | None
    minutes: float | None
    settings: Mapping[str, Any]
    why: str = ""


def write_trials_page(
    trials: Sequence[TrialRow], out: Path, metric: str, command: str | None, logarithmic: Sequence[str] = ()
) -> Path:
    """Write trials.html, trials.csv and figures/ into `out`. `command`: trains the best; None before one is complete.
    `logarithmic`: the settings that were searched on a log scale."""
    for name in (PAGE, TABLE_FILE, FIGURES_DIR):
        require_no_links_out(out / name, of=out)
    names = list(dict.fromkeys(name for trial in trials for name in trial.settings))
    table = trials_table(trials, names, metric)
    make = {name: partial(scatter, trials, name, metric, name in logarithmic) for name in names}
    figures = tuple(FigureSpec(name, f"{metric} by {name}", drawn) for name, drawn in make.items())
    best = "No trial is complete yet." if command is None else "The best trial's settings, with a seed of your choice:"
    parts = [
        Section(
            "Best settings", "best", text=best, html=f"<pre><code>{escape(command)}</code></pre>" if command else ""
        ),
        Section("Settings", "settings", figures, text="Dots are complete trials, crosses those that were pruned."),
        Section("Trials", "trials", tables=(table,)),
    ]
    parts = with_safe_names(parts)
    pictures = {figure.name: draw(figure, out / FIGURES_DIR) for part in parts for figure in part.figures}
    states = [trial.state for trial in trials]
    lede = " · ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    data = {"axis": "steps", "metrics": [], "curves": []}
    page = make_page("dcp tune", lede, "Everything shown is in this file.", Names((), ()), parts, pictures, data)
    with writing_to(out):
        write_whole(out / TABLE_FILE, to_csv(table).encode())
        write_whole(out / PAGE, page.encode())
    return out / PAGE


def trials_table(trials: Sequence[TrialRow], names: Sequence[str], metric: str) -> Table:
    """Return a row per trial, the best first; those without a score come last."""
    ordered = sorted(trials, key=lambda trial: (trial.score is None, -(trial.score or 0.0), trial.number))
    rows = []
    for trial in ordered:
        cells = [_cell(trial.number), Cell(trial.state), _cell(trial.score), _cell(trial.minutes)]
        rows.append(Row((*cells, *(_cell(trial.settings.get(name)) for name in names), Cell(printable(trial.why)))))
    return Table("trials", "Trials", ("trial", "state", metric, "minutes", *names, "why"), tuple(rows), NOTES)


def _cell(value: Any) -> Cell:
    if value is None:
        return absent()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(f"{value:.4g}" if isinstance(value, float) else printable(str(value)), value if is_number else None)


def scatter(trials: Sequence[TrialRow], name: str, metric: str, logarithmic: bool) -> Figure:
    """Draw the scores of trials over one setting."""
    scored = [t for t in trials if t.state in LOOKS and t.score is not None and name in t.settings]
    numeric = all(type(t.settings[name]) in (int, float) and math.isfinite(t.settings[name]) for t in scored)
    with house_style():
        figure = Figure(figsize=(4.4, 3.0), layout="constrained")
        axes = figure.subplots()
        texts = sorted({str(t.settings[name]) for t in scored})
        for state, (colour, marker) in LOOKS.items():
            these = [t for t in scored if t.state == state]
            places = [t.settings[name] if numeric else texts.index(str(t.settings[name])) for t in these]
            axes.scatter(places, [t.score or 0.0 for t in these], c=colour, marker=marker, alpha=0.8, label=state)
        if not numeric:
            axes.set_xticks(range(len(texts)), [text[:20] for text in texts])
        elif logarithmic and scored:
            axes.set_xscale("log")
        axes.set_xlabel(name)
        axes.set_ylabel(metric)
    return figure
