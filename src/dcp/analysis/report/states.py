"""The state of every run, first of all: a reader must see what the numbers below are made of."""

from html import escape

import numpy as np

from dcp.analysis.collection import Collection
from dcp.analysis.report.markup import prose
from dcp.analysis.report.names import UNKNOWN, Names
from dcp.analysis.run_reading import FINISHED, NO_EVALUATION, Run
from dcp.analysis.tables import Cell, Row, Table, absent, number

FEW_REMARKS = 8  # more are opened by a click
_KEY = (
    ("finished", "finished"),
    ("going", "running or stopped; filled as far as it came"),
    ("nothing-yet", "no evaluation"),
    ("damaged", "damaged"),
)
_COLUMNS = (
    "environment",
    "method",
    "seed",
    "state",
    "steps",
    "evaluations",
    "success once (%)",
    "time near goal",
    "hours",
    "folder",
)


def states_html(collection: Collection, names: Names) -> str:
    """Environments down, methods across, a small square for every run with its seed in it."""
    readable = [run for run in collection.runs if run.config]
    there = {run.label for run in readable}
    methods = [method for method in names.methods if method in there]
    heads = "".join(f'<th{names.tags(method=method)} scope="col">{escape(method)}</th>' for method in methods)
    rows = "\n".join(_row(environment, methods, readable, names) for environment in names.environments)
    lost = [run for run in collection.runs if not run.config]
    others = f'<p class="note">Damaged, of no known environment: {_squares(lost)}</p>\n' if lost else ""
    head = f'<thead><tr><th class="words" scope="col">environment</th>{heads}</tr></thead>'
    table = f'<table class="states">{head}\n<tbody>{rows}</tbody></table>'
    return (
        (f'<div class="scroll">{table}</div>\n' if readable else "") + others + _key(collection) + _remarks(collection)
    )


def runs_table(collection: Collection) -> Table:
    order = {key: at for at, key in enumerate(collection.groups)}
    runs = sorted(collection.runs, key=lambda run: (order.get((run.env, run.label), len(order)), _seed(run)))
    notes = ("Success and time near goal: of the run's own last evaluation.",)
    repeated = set(map(id, collection.repeated))
    return Table("runs", "Every run", _COLUMNS, tuple(_run_row(run, id(run) in repeated) for run in runs), notes)


def kind_of(run: Run) -> str:
    """The class of its square."""
    if run.is_damaged:
        return "damaged"
    return {FINISHED: "finished", NO_EVALUATION: "nothing-yet"}.get(run.state, "going")


def _row(environment: str, methods: list[str], runs: list[Run], names: Names) -> str:
    of = {method: [run for run in runs if (run.env, run.label) == (environment, method)] for method in methods}
    cells = [f"<td{names.tags(method=method)}>{_squares(found)}</td>" for method, found in of.items()]
    return f'<tr{names.tags(environment)}><td class="words">{escape(environment)}</td>{"".join(cells)}</tr>'


def _squares(runs: list[Run]) -> str:
    squares = []
    for run in sorted(runs, key=_seed):
        seed = str(run.seed) if run.config else UNKNOWN
        told = f"seed {seed}: {run.state}; {run.num_evaluations} evaluations" + (
            f"; {run.remark}" if run.remark else ""
        )
        done = f' style="--done: {100 * run.env_steps / max(1, run.budget):.0f}%"' if kind_of(run) == "going" else ""
        squares.append(
            f'<span class="run {kind_of(run)}"{done} title="{escape(told)}" aria-label="{escape(told)}">{seed}</span>'
        )
    return f'<span class="runs">{"".join(squares)}</span>'


def _key(collection: Collection) -> str:
    kinds = [kind_of(run) for run in collection.runs]
    parts = [
        f'<span><i class="run {kind}"></i>{kinds.count(kind)} {words}</span>' for kind, words in _KEY if kind in kinds
    ]
    return f'<div class="key">{"".join(parts)}</div>\n'


def _remarks(collection: Collection) -> str:
    """A sentence for everything that is not whole."""
    items = "".join(f"<li>{prose(remark)}</li>" for remark in collection.remarks)
    if not items:
        return ""
    opened = " open" if len(collection.remarks) <= FEW_REMARKS else ""
    return (
        f"<details{opened}><summary>What is not whole ({len(collection.remarks)})</summary>"
        f'<ul class="remarks">{items}</ul></details>\n'
    )


def _seed(run: Run) -> int:
    return int(run.config.get("seed", -1))


def _run_row(run: Run, repeated: bool) -> Row:
    state = run.state + ("; left out, another run has this seed" if repeated else "")
    cells = (
        Cell(run.env or UNKNOWN),
        Cell(run.label or UNKNOWN),
        Cell(str(_seed(run)), _seed(run)) if run.config else absent(),
        Cell(state + (f"; {run.remark}" if run.remark else "")),
        Cell(f"{run.env_steps:,.0f}", int(run.env_steps)),
        Cell(str(run.num_evaluations), run.num_evaluations),
        _last(run, "success_once", 100.0, 1),
        _last(run, "time_near_goal", 1.0, 1),
        _last(run, "wall_seconds", 1 / 3600, 2),
        Cell(str(run.folder)),
    )
    return Row(cells, run.env or UNKNOWN, run.label or UNKNOWN)


def _last(run: Run, column: str, factor: float, digits: int) -> Cell:
    values = run.metrics.get(column, np.empty(0))
    return number(factor * float(values[-1]), digits=digits) if len(values) else absent("not recorded")
