"""Checkpoint tables: both metrics at given numbers of steps, the paper's values beside ours."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dcp.analysis import paper_values
from dcp.analysis.collection import Collection, Key
from dcp.analysis.curves import METRICS
from dcp.analysis.evaluation_points import common_end, interval_at, nearest
from dcp.analysis.paper_values import CHECKPOINTS, Published
from dcp.analysis.run_reading import Run
from dcp.analysis.style import human_count
from dcp.analysis.tables import Cell, Row, Table, absent, number
from dcp.statistics import Interval

APART = "†"
RULE = (
    "Mean ± half width of the 95% Student-t interval over seeds, at the evaluation nearest to the checkpoint; it "
    "counts if it is no farther away than a tenth of the checkpoint and one evaluation interval."
)
BEST = "Bold: the highest mean of an environment at a checkpoint; a tie has none."
PAPER = f"{APART}: our interval and the paper's do not overlap. One seed has no interval, so no sign."

Column = tuple[str, list[Cell]]  # heading, one cell a group


def checkpoint_tables(collection: Collection, checkpoints: Sequence[int] = CHECKPOINTS) -> list[Table]:
    """One a metric."""
    return [_table(collection, metric, sorted(set(checkpoints))) for metric in METRICS]


def intervals_overlap(ours: Interval, paper: Published) -> bool | None:
    """None if one seed leaves us without an interval, or the mean is not known."""
    if not math.isfinite(ours.half_width):
        return None
    return bool(abs(ours.mean - paper.mean) <= ours.half_width + paper.spread)


def best_of(means: Mapping[Key, float]) -> set[Key]:
    """Of each environment the method with strictly the highest mean, unrounded. What is not finite is not compared."""
    best = set()
    for environment in {environment for environment, _ in means}:
        rivals = {key: mean for key, mean in means.items() if key[0] == environment and math.isfinite(mean)}
        top = [key for key, mean in rivals.items() if mean == max(rivals.values())]
        best |= set(top) if len(top) == 1 < len(rivals) else set()
    return best


def _table(collection: Collection, metric: str, checkpoints: Sequence[int]) -> Table:
    groups = collection.groups
    columns: list[Column] = [
        ("Environment", [Cell(environment) for environment, _ in groups]),
        ("Method", [Cell(method) for _, method in groups]),
        ("Seeds", [Cell(str(len(runs)), len(runs)) for runs in groups.values()]),
    ]
    published, empty = False, []
    for at in checkpoints:
        if not any(nearest(run, at) is not None for runs in groups.values() for run in runs):
            empty.append(at)
            continue
        paper = {key: paper_values.checkpoint(metric, *key, at) for key in groups}
        columns.append((human_count(at), _column(groups, metric, dict.fromkeys(groups, at), paper)))
        if any(paper.values()):
            published = True
            columns.append((f"{human_count(at)} paper", [_paper(paper[key]) for key in groups]))
    ends = _ends(collection, checkpoints)
    if ends:
        columns.append(("End of the runs", _column(groups, metric, {key: ends.get(key[0]) for key in groups}, {})))
    rows = [
        Row(tuple(cells), *key)
        for key, cells in zip(groups, zip(*(cells for _, cells in columns), strict=True), strict=True)
    ]
    notes = (RULE, BEST, *([PAPER] if published else []), *_notes(collection, ends, empty))
    title = f"{METRICS[metric].label} at checkpoints"
    return Table(f"checkpoints_{metric}", title, tuple(head for head, _ in columns), tuple(rows), notes)


def _column(
    groups: Mapping[Key, Sequence[Run]],
    metric: str,
    steps: Mapping[Key, float | None],  # None: this environment has nothing in this column
    paper: Mapping[Key, Published | None],
) -> list[Cell]:
    found = {key: None if (at := steps[key]) is None else interval_at(groups[key], metric, at) for key in groups}
    best = best_of({key: float(interval.mean) for key, interval in found.items() if interval})
    cells = []
    for key, runs in groups.items():
        interval, at = found[key], steps[key]
        if interval is None or at is None:
            last = max(run.env_steps for run in runs)
            cells.append(absent("" if at is None else f"no evaluation near; the last is at {last:,.0f} steps"))
            continue
        cells.append(replace(_cell(interval, runs, paper.get(key)), bold=key in best, hover=_hover(runs, at)))
    return cells


def _cell(interval: Interval, runs: Sequence[Run], paper: Published | None) -> Cell:
    cell = number(interval.mean, interval.half_width, count=interval.count)
    fewer = f" (n={interval.count})" if interval.count < len(runs) else ""
    apart = paper is not None and intervals_overlap(interval, paper) is False
    return replace(cell, text=cell.text + fewer, marker=APART if apart else "")


def _hover(runs: Sequence[Run], steps: float) -> str:
    places = {run.seed: nearest(run, steps) for run in runs}
    at = {run.metrics["env_steps"][place] for run in runs if (place := places[run.seed]) is not None}
    missing = [str(seed) for seed, place in places.items() if place is None]
    words = f"evaluated at {', '.join(f'{point:,.0f}' for point in sorted(at))} steps"
    return words + (f"; without seed {', '.join(missing)}, which has no evaluation near" if missing else "")


def _paper(published: Published | None) -> Cell:
    return number(*published) if published else absent("not in the paper")


def _ends(collection: Collection, checkpoints: Sequence[int]) -> dict[str, float]:
    """environment -> the last evaluation that all its runs have reached, if that is none of the checkpoints."""
    ends = {}
    for environment in collection.environments:
        runs = [run for (env, _), group in collection.groups.items() if env == environment for run in group]
        end = common_end(runs)
        if not any(all(nearest(run, at) == nearest(run, end) for run in runs) for at in checkpoints):
            ends[environment] = end
    return ends


def _notes(collection: Collection, ends: dict[str, float], empty: Sequence[int]) -> list[str]:
    notes = []
    if empty:
        notes.append(f"No run has an evaluation near {', '.join(map(human_count, empty))} steps: not shown.")
    if ends:
        said = ", ".join(f"{environment} {human_count(end)}" for environment, end in ends.items())
        notes.append(f"End of the runs: the last evaluation that all runs of the environment have reached ({said}).")
    for environment, method in collection.groups:
        if missing := collection.missing_seeds(environment, method):
            notes.append(f"{environment}, {method}: no run of seed {', '.join(map(str, missing))}, which others have.")
    return notes
