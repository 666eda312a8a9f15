"""`dcp tune`: search over the settings of a grid file, and write a page of the trials."""

import json
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Annotated, Any

from matplotlib.figure import Figure

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS, EXIT_CODES, EXIT_FAULT, EXIT_INTERRUPTED, EXIT_REQUEUE
from dcp.cli.working import count, require_least
from dcp.errors import UserError, printable
from dcp.files import require_no_links_out
from dcp.grid.grid_display import make_table
from dcp.grid.jobs import Entry, Run, RunStatus, make_grid_folder, make_jobs
from dcp.grid.launcher import LocalLauncher
from dcp.grid.resources import Resources, free_here, gpus, require_fit
from dcp.grid.tune import Search, open_study, prepare
from dcp.grid.tune_file import TuneFile, read_tune_file
from dcp.lab.build_report import FIGURES_DIR, draw, with_safe_names
from dcp.lab.report_html import Names, make_page
from dcp.lab.result_tables import Cell, FigureSpec, Row, Section, Table, absent, to_csv, writing_to
from dcp.lab.style import BLUE, VERMILION, house_style
from dcp.named_code import imported_modules
from dcp.policies.policy_file import write_whole
from dcp.runs.folder import FolderLock


@dataclass(frozen=True)
class TuneOptions:
    file: Annotated[tuple[Path, ...], POSITIONAL] = ()
    """A grid file (TOML) with [search] and [tune]."""
    trials: int | None = None
    """Trials in all, also those of earlier calls. Default: the file's, or 30."""
    where: tuple[str, ...] = ()
    """Only runs with KEY=VALUE, such as method=dcp: a search for this method alone, in a folder of its own."""
    runs_dir: Path | None = None
    """Runs, study and page go here. Default: runs/tune/<name of the file>, and the values of --where."""
    max_runs: int | None = None
    """At most this many runs at once. Default: as many as cores, memory and GPUs allow."""
    cores_per_run: int = 1
    """Cores per run."""
    sampler_seed: int = 0
    """Decides what is proposed, as far as trials end in the same order."""
    own_code: tuple[str, ...] = ()
    """Environments and parts that the file names as module:name and that may be loaded. They are code."""
    dry_run: bool = False
    """Print what is searched and the runs of a trial, and run nothing."""
    report_only: bool = False
    """Write the page of the trials so far, and run nothing. Another process may be searching."""


def main(argv: list[str]) -> int:
    codes = {**EXIT_CODES, 0: "the search is done", EXIT_FAULT: "no trial could be completed: see the page"}
    codes |= {EXIT_REQUEUE: "stopped by SIGINT or SIGTERM, with checkpoints: run it again"}
    codes |= {EXIT_INTERRUPTED: "(or 143) stopped before any run began, or by a third signal"}
    meanings = [f"  {code:<8}{meaning}" for code, meaning in codes.items()]
    description = "\n".join([COMMANDS["tune"], "", "exit codes:", *meanings])
    options = parse(TuneOptions(), argv, "dcp tune", description)
    if len(options.file) != 1:
        raise UserError(f"name one grid file with [search], not {len(options.file)}; write it before --where")
    require_least(options, trials=1, max_runs=1, cores_per_run=1, sampler_seed=0)
    file = read_tune_file(options.file[0])
    values = [re.sub(r"[^A-Za-z0-9_.-]+", "-", condition.partition("=")[2]) for condition in options.where]
    runs_dir = options.runs_dir or Path("runs", "tune", "_".join([options.file[0].stem, *values]))
    if options.report_only:
        return _page(file, options, open_study(runs_dir, make=False), runs_dir)
    environ = dict(os.environ)  # the runs get it without this process's own changes
    _leave_gpus_alone()
    runs = file.check(options.where, options.own_code)
    if options.dry_run:
        return _dry_run(file, options, runs, runs_dir)
    return _run(file, options, runs, runs_dir, environ)


def _leave_gpus_alone() -> None:
    """Keep JAX off the GPUs: this process only needs shapes, and JAX would take most of the runs' GPU memory."""
    import jax

    jax.config.update("jax_platforms", "cpu")


def _run(file: TuneFile, options: TuneOptions, runs: list[Run], runs_dir: Path, environ: dict[str, str]) -> int:
    machine, each_gpus = free_here(options.max_runs), 1 if gpus() else 0
    each, seeds_as = Resources(options.cores_per_run, 0, each_gpus), "vmapped" if each_gpus else "processes"
    folder = runs_dir.absolute()
    entries = [Entry(run, folder / run.path, RunStatus("new")) for run in runs]
    require_fit([machine], make_jobs(entries, folder, each, seeds_as, Path.cwd()))
    make_grid_folder(runs_dir)
    lock = FolderLock(runs_dir)
    try:
        study = open_study(runs_dir)
        prepare(study, file.fingerprint(options.where), options.sampler_seed, runs[0].settings.num_evals // 4)
        with make_table() as table:
            trials = options.trials or file.options.trials
            launcher = LocalLauncher(machine, (), environ)
            places = (options.where, options.own_code, imported_modules())
            search = Search(file, study, launcher, machine, each, seeds_as, folder, table, trials, *places)
            search.run()
        code = _page(file, options, study, runs_dir)
    finally:
        lock.release()
    if search.stopped:
        print("Stopped. The same command resumes the search.")
        return EXIT_REQUEUE
    return code


def _page(file: TuneFile, options: TuneOptions, study: Any, runs_dir: Path) -> int:
    """Write the page of the trials and say which was the best."""
    rows = []
    for trial in study.trials:
        state, minutes = trial.state.name.lower().replace("fail", "failed"), trial.user_attrs.get("minutes")
        why, minutes = str(trial.user_attrs.get("why", "")), minutes if isinstance(minutes, int | float) else None
        rows.append(TrialRow(trial.number, state, trial.value, minutes, trial.params, why))
    complete = [row for row in rows if row.state == "complete" and row.score is not None]
    best = max(complete, key=lambda row: row.score or 0.0, default=None)
    command = None
    if best is not None:
        folder = runs_dir / file.runs(best.number, best.settings, options.where)[0].path
        command = shlex.join(["dcp", "train", "--config", str(folder), "--seed", "0"])
    logarithmic = [name for name, values in file.space.items() if getattr(values, "log", False)]
    page = write_trials_page(rows, runs_dir, file.options.metric, command, logarithmic)
    print(f"{page}: {count(len(rows), 'trial')}, {len(complete)} complete")
    if best is None:
        return EXIT_FAULT
    print(f"Best: trial {best.number}, {file.options.metric} {best.score:.4g}\n  {command}")
    return 0


def _dry_run(file: TuneFile, options: TuneOptions, runs: list[Run], runs_dir: Path) -> int:
    for name, values in file.search.items():
        print(f"{name}: {json.dumps(values)}")
    trials, each = options.trials or file.options.trials, count(len(runs), "run")
    steps = sum(run.settings.steps for run in runs)
    print(f"{count(trials, 'trial')} of {each}, {steps:,} steps per trial, in {runs_dir}:")
    for run in runs:
        print(f"  {run.path}")
    return 0


# The page: the best settings as a command, a figure per searched setting, the table of trials.

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
    best = "No trial is complete yet." if command is None else "Train by the best trial's settings, with your own seed:"
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
