"""Make the paper's tables with our numbers: both metrics at checkpoints, and two methods against each other."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from dcp.lab import paper_values
from dcp.lab.paper_values import BASELINE, CHECKPOINTS, EPISODE, METHOD, REACH, Published
from dcp.lab.result_tables import MINUS, Cell, Row, Section, Table, absent, number, shown
from dcp.lab.run_collection import (
    FEWEST_SEEDS,
    METRICS,
    Collection,
    Key,
    Run,
    common_end,
    interval_at,
    nearest,
    seeds_interval,
    values_at,
)
from dcp.lab.statistics import (
    NEGLIGIBLE,
    SMALL,
    Interval,
    PairedTest,
    effect_size,
    holm,
    paired_test,
    probability_of_improvement,
    verdict,
)
from dcp.lab.style import human_count
from dcp.presets import preset_config

# Checkpoints: both metrics at given numbers of steps, with the paper's values next to ours.

APART = "†"
CHECKPOINT_RULE = (
    "Mean ± half width of the 95% Student-t interval over seeds, at the evaluation nearest to the checkpoint; it "
    "counts if it is no farther away than a tenth of the checkpoint and one evaluation interval. Of two seeds: "
    "their range."
)
BEST = "Bold: the highest mean of an environment at a checkpoint, where every method has three seeds; a tie has none."
OVERLAP = f"{APART}: our interval and the paper's do not overlap. Fewer than three seeds have no interval, so no mark."


def checkpoint_section(collection: Collection, checkpoints: Sequence[int]) -> Section:
    """Return one table per metric."""
    metrics = METRICS if collection.groups else ()
    tables = tuple(checkpoint_table(collection, metric, checkpoints) for metric in metrics)
    return Section("Checkpoints", "checkpoints", tables=tables)


def best_of(intervals: Mapping[Key, Interval]) -> set[Key]:
    """Return each environment's method with strictly the highest mean, unrounded. Only finite means are compared.

    No method is best in an environment where one has fewer than three seeds.
    """
    best = set()
    for environment in {environment for environment, _ in intervals}:
        rivals = {key: one for key, one in intervals.items() if key[0] == environment and math.isfinite(one.mean)}
        top = [key for key, one in rivals.items() if one.mean == max(rival.mean for rival in rivals.values())]
        enough = all(one.count >= FEWEST_SEEDS for one in rivals.values())
        best |= set(top) if enough and len(top) == 1 < len(rivals) else set()
    return best


def checkpoint_table(collection: Collection, metric: str, checkpoints: Sequence[int] = CHECKPOINTS) -> Table:
    groups, checkpoints = collection.groups, sorted(set(checkpoints))
    columns: list[tuple[str, list[Cell]]] = [  # heading, one cell per group
        ("Environment", [Cell(environment) for environment, _ in groups]),
        ("Method", [Cell(method) for _, method in groups]),
        ("Seeds", [Cell(str(len(runs)), len(runs)) for runs in groups.values()]),
    ]
    empty = [at for at in checkpoints if all(nearest(run, at) is None for runs in groups.values() for run in runs)]
    published = False
    for at in (at for at in checkpoints if at not in empty):
        methods = {key: collection.like_the_paper(*key) for key in groups}
        paper = {k: paper_values.checkpoint(metric, k[0], name, at) if name else None for k, name in methods.items()}
        columns.append((human_count(at), _checkpoint_column(groups, metric, dict.fromkeys(groups, at), paper)))
        if any(paper.values()):
            published = True
            apart = {key: "; ".join(collection.apart_from_paper[key]) or "not in the paper" for key in groups}
            cells = [number(*value) if value else absent(apart[key]) for key, value in paper.items()]
            columns.append((f"{human_count(at)} paper", cells))
    notes = [CHECKPOINT_RULE, BEST, *([OVERLAP] if published else []), *collection.apart_notes()]
    if empty:
        notes.append(f"No run has an evaluation near {', '.join(map(human_count, empty))} steps: not shown.")
    if ends := _ends(collection, checkpoints):
        at_end = {key: ends.get(key[0]) for key in groups}
        columns.append(("End of the runs", _checkpoint_column(groups, metric, at_end, {})))
        steps = ", ".join(f"{environment} {human_count(end)}" for environment, end in ends.items())
        notes.append(f"End of the runs: the last evaluation that all runs of the environment have reached ({steps}).")
    heads, cells = zip(*columns, strict=True)
    rows = [Row(row, *key) for key, row in zip(groups, zip(*cells, strict=True), strict=True)]
    return Table(f"checkpoints_{metric}", f"{METRICS[metric].label} at checkpoints", heads, tuple(rows), tuple(notes))


def _checkpoint_column(
    groups: Mapping[Key, Sequence[Run]],
    metric: str,
    steps: Mapping[Key, float | None],  # None: this environment has nothing in this column
    paper: Mapping[Key, Published | None],
) -> list[Cell]:
    intervals = {key: None if (at := steps[key]) is None else interval_at(groups[key], metric, at) for key in groups}
    best = best_of({key: interval for key, interval in intervals.items() if interval})
    cells = []
    for key, runs in groups.items():
        interval, at, published = intervals[key], steps[key], paper.get(key)
        if interval is None or at is None:
            last = max(run.env_steps for run in runs)
            cells.append(absent("" if at is None else f"no evaluation near; the last is at {last:,.0f} steps"))
            continue
        cell, places = seeds_cell(interval), {run: nearest(run, at) for run in runs}
        fewer = f" (n={interval.count})" if interval.count < len(runs) else ""
        reach = interval.half_width + (published.spread if published else math.nan)  # nan for fewer than three seeds
        apart = published is not None and abs(interval.mean - published.mean) > reach
        points = {run.metrics["env_steps"][place] for run, place in places.items() if place is not None}
        missing = ", ".join(str(run.seed) for run, place in places.items() if place is None)
        hover = f"evaluated at {', '.join(f'{point:,.0f}' for point in sorted(points))} steps"
        hover += f"; without seed {missing}, which has no evaluation near" if missing else ""
        marker = APART if apart else ""
        cells.append(replace(cell, text=cell.text + fewer, marker=marker, bold=key in best, hover=hover))
    return cells


def seeds_cell(interval: Interval) -> Cell:
    """Return 18.4 ± 5.4; of two seeds their range, 12.1 to 24.7."""
    if interval.count != FEWEST_SEEDS - 1 or not math.isfinite(interval.mean):
        return number(interval.mean, interval.half_width, count=interval.count)
    text = f"{shown(interval.low)} to {shown(interval.high)}"
    return Cell(text, float(interval.mean), bounds=(interval.low, interval.high), count=interval.count)


def _ends(collection: Collection, checkpoints: Sequence[int]) -> dict[str, float]:
    """Return environment -> the last evaluation that all its runs reached, unless that is one of the checkpoints."""
    ends = {}
    for environment in collection.environments:
        runs = [run for (env, _), group in collection.groups.items() if env == environment for run in group]
        end = common_end(runs)
        if not any(all(nearest(run, at) == nearest(run, end) for run in runs) for at in checkpoints):
            ends[environment] = end
    return ends


# Summary: two methods compared by a stated rule, and statistics that the paper does not give.

SUMMARY_METRICS = ("time_near_goal", "success_once")  # the paper's columns
ARROWS = {"up": "↑", "down": "↓", "about": "≈"}
DIFFERS, EARLY = "≠", "‡"
SUMMARY_TEXT = (
    "The first table is the paper's summary. The others say how large a difference is, and how sure the seeds can make "
    "us of it: an interval that contains zero, or a p near one, is an answer too."
)
ARROW_RULE = (
    f"≈ marks a difference of at most {100 * SMALL:g}% of the larger mean, or of less than {NEGLIGIBLE} pooled "
    "standard deviations of the seeds; otherwise the arrow points to the higher mean. It is not a test of significance."
)
UNDECIDED = "undecided"
FEW_SEEDS = (
    f"{UNDECIDED.capitalize()}: a method has fewer than {FEWEST_SEEDS} seeds there, which is too few to name a winner."
)
PAPER_ARROW = (
    f"{DIFFERS}: the paper's sign differs. It belongs to the end of the paper's runs; if that is not near the steps "
    "compared here, the table says so and does not compare the signs."
)
WHERE = "Both methods are compared at the last evaluation that every one of their runs has reached."


@dataclass(frozen=True)
class MethodPair:
    """Two methods on one environment in one metric, at one number of steps."""

    environment: str
    metric: str
    steps: float
    furthest: float  # steps of the longest of these runs
    ours: dict[int, float]  # seed -> value as shown
    theirs: dict[int, float]

    @property
    def has_few_seeds(self) -> bool:
        """Return whether a side has too few seeds for an interval, a test or a winner."""
        return min(len(self.ours), len(self.theirs)) < FEWEST_SEEDS

    @property
    def paper_end(self) -> int | None:
        """Return where the paper's runs end if that is not near, so that its sign does not apply."""
        end = paper_values.end(self.environment)
        return None if end is None or abs(self.steps - end) <= REACH * end else end

    @property
    def is_early(self) -> bool:
        """Return whether longer runs are compared well before their end."""
        return self.steps < 0.9 * self.furthest


def summary_section(collection: Collection) -> Section:
    """Compare the first method with every other that shares an environment with it."""
    tables = []
    method, *others = collection.methods or [""]
    for baseline in others:
        if summary := summary_table(collection, method, baseline):
            tables += [summary, *(comparison_table(collection, name, method, baseline) for name in SUMMARY_METRICS)]
    return Section("Summary", "summary", tables=tuple(tables), text=SUMMARY_TEXT if tables else "")


def compare_methods(collection: Collection, metric: str, method: str, baseline: str) -> list[MethodPair]:
    """Return one comparison per environment that has both."""
    pairs = []
    for environment in collection.environments:
        ours, theirs = collection.of(environment, method), collection.of(environment, baseline)
        if ours and theirs:
            end, furthest = common_end((*ours, *theirs)), max(run.env_steps for run in (*ours, *theirs))
            sides = [values_at(side, metric, end) for side in (ours, theirs)]
            pairs.append(MethodPair(environment, metric, end, furthest, *sides))
    return pairs


def summary_table(collection: Collection, method: str = METHOD, baseline: str = BASELINE) -> Table | None:
    """Return the paper's table, with its arrows next to ours if it compares the same methods. None without a pair."""
    by_metric = {name: compare_methods(collection, name, method, baseline) for name in SUMMARY_METRICS}
    first = by_metric[SUMMARY_METRICS[0]]
    if not first:
        return None
    alike = [
        part.environment
        for part in first
        if collection.like_the_paper(part.environment, method) == METHOD
        and collection.like_the_paper(part.environment, baseline) == BASELINE
    ]
    published = bool(alike)
    columns = ["Environment", "Steps"]
    for name in SUMMARY_METRICS:
        label = METRICS[name].name
        columns += [label, *([f"{label}, paper"] if published else [])]
    rows = []
    for parts in zip(*by_metric.values(), strict=True):
        environment = parts[0].environment
        cells = [Cell(environment), _steps(parts[0])]
        for part in parts:
            paper = paper_values.arrow(part.metric, environment) if environment in alike else None
            cells.append(_arrow(part, method, baseline, None if part.paper_end else paper))
            if published:
                end = f" at {human_count(part.paper_end)}" if part.paper_end else ""
                arrow = Cell(_sign(paper, method, baseline) + end) if paper else absent(paper_values.NOT_THERE)
                cells.append(arrow)
        rows.append(Row(tuple(cells), environment))
    notes = [ARROW_RULE, WHERE, *_notes(first)]
    notes += [PAPER_ARROW] if published else []
    notes += [note for note in collection.apart_notes() if method.startswith(METHOD) and baseline.startswith(BASELINE)]
    title, name = f"{method} against {baseline}", f"summary_{method}_against_{baseline}"
    return Table(name, title, tuple(columns), tuple(rows), tuple(notes))


def comparison_table(collection: Collection, metric: str, method: str, baseline: str) -> Table:
    """Return means, effect size, paired test and probability of improvement for each environment."""
    parts = compare_methods(collection, metric, method, baseline)
    tests = [None if part.has_few_seeds else paired_test(part.ours, part.theirs) for part in parts]
    corrected = holm([test.p_value if test else math.nan for test in tests])
    columns = ("Environment", "Steps", method, baseline, "Effect size d", "Pairs", "Paired difference")
    columns += ("p", "p (Holm)", "Probability of improvement")
    rows = [_comparison_row(*each) for each in zip(parts, tests, corrected, strict=True)]
    notes = (
        f"Mean ± half width of the 95% Student-t interval. {WHERE}",
        "Effect size d: the difference of the means in pooled standard deviations of the seeds (Cohen).",
        "Paired difference and p: Student's t over the seeds that both have; Holm corrects for all environments.",
        "Probability of improvement: that a seed of the first beats one of the second (Mann-Whitney; a tie is half).",
        *_notes(parts, f"A dash: a method has fewer than {FEWEST_SEEDS} seeds there. Two seeds: their range."),
    )
    title, name = f"{METRICS[metric].label}: {method} against {baseline}", f"{metric}_{method}_against_{baseline}"
    return Table(f"comparison_{name}", title, columns, tuple(rows), notes)


def _comparison_row(part: MethodPair, test: PairedTest | None, corrected: float) -> Row:
    sides = [list(side.values()) for side in (part.ours, part.theirs)]
    effect = improvement = math.nan
    if not part.has_few_seeds:
        effect, improvement = effect_size(*sides), probability_of_improvement(*sides)
    pairs = len(part.ours.keys() & part.theirs.keys())
    why = f"fewer than {FEWEST_SEEDS} seeds" if part.has_few_seeds else "no common seed"
    gap = number(test.difference.mean, test.difference.half_width, sign=True) if test else absent(why)
    cells = (
        Cell(part.environment),
        _steps(part),
        _mean(part.ours),
        _mean(part.theirs),
        _or_dash(effect, 2, sign=True),
        Cell(str(pairs), pairs),
        gap,
        _p_value(test.p_value if test else math.nan, why if test is None else ""),
        _p_value(corrected, why if test is None else ""),
        _or_dash(improvement, 2),
    )
    return Row(cells, part.environment)


def _mean(values: dict[int, float]) -> Cell:
    if not values:
        return absent("no evaluation near")
    return seeds_cell(seeds_interval(list(values.values())))


def _arrow(part: MethodPair, method: str, baseline: str, paper: str | None) -> Cell:
    sides = [list(side.values()) for side in (part.ours, part.theirs)]
    sign = verdict(*sides)
    if sign == "unknown":
        return absent("a mean is not known")
    hover = f"{method} {_mean(part.ours).text}, {baseline} {_mean(part.theirs).text}"
    if part.has_few_seeds:
        return Cell(UNDECIDED, hover=hover)
    marker = DIFFERS if paper and paper != sign else ""
    return Cell(_sign(sign, method, baseline), marker=marker, hover=f"{hover}, d = {effect_size(*sides):.2f}")


def _sign(verdict: str, method: str, baseline: str) -> str:
    return ARROWS[verdict] + {"up": f" {method}", "down": f" {baseline}"}.get(verdict, "")


def _steps(part: MethodPair) -> Cell:
    early = f"the longest run is at {part.furthest:,.0f} steps" if part.is_early else ""
    return Cell(human_count(part.steps), int(part.steps), marker=EARLY if part.is_early else "", hover=early)


def _p_value(p: float, why: str = "") -> Cell:
    if math.isnan(p):
        return absent(why or "a test needs two pairs of seeds that do not all agree")
    return Cell("<0.001" if p < 0.001 else f"{p:.3f}", p)


def _or_dash(value: float, digits: int, sign: bool = False) -> Cell:
    if math.isnan(value):
        return absent()
    if math.isinf(value):
        return Cell("∞" if value > 0 else f"{MINUS}∞", value, hover="the seeds of each method do not differ at all")
    return number(value, digits=digits, sign=sign)


def _notes(parts: Sequence[MethodPair], few_seeds: str = FEW_SEEDS) -> list[str]:
    early = f"{EARLY}: longer runs are compared before their end, because one run is shorter."
    notes = [early] if any(part.is_early for part in parts) else []
    return [*notes, *([few_seeds] if any(part.has_few_seeds for part in parts) else [])]


# Other papers' numbers next to ours.

LAST = 5  # evaluations that a published value is the mean of
NEAR = 0.01  # how far our steps may lie from theirs, as a share of theirs
_COLUMNS = ("environment", "method", "seeds", "time near goal, ours", "source", "method there", "published", "compared")


@cache
def _sources() -> dict[str, Any]:
    return json.loads(files("dcp.lab").joinpath("published.json").read_text(encoding="utf-8"))["sources"]


# Their names of methods, with the preset that has these runs' settings; SRL and AC-CRL have none here.
_PRESETS = {"CRL": ("crl", "scaled_crl"), "ChronoSRL": ("chronosrl", "chronosrl")}


def differences(run: Run, published: Mapping[str, Any]) -> list[str]:
    """Return all differences between a run and the published runs of its method; empty if there are none."""
    steps, env, depth = published["steps"], str(run.config["env"]), run.config["depth"]
    preset = next((preset for method, preset in _PRESETS.values() if method == run.method), None)
    depths = sorted({int(depth) for values in published["values"].values() for depth in values})
    checks = (
        (_name_there(run.method) in published["values"], f"no {run.method} there whose settings are known here"),
        (
            abs(run.env_steps - steps) <= NEAR * steps,
            f"{human_count(run.env_steps)} steps instead of {human_count(steps)}",
        ),
        (run.num_evaluations >= LAST, f"a mean of {run.num_evaluations} evaluations instead of the last {LAST}"),
        (depth in depths, f"depth {depth} instead of {', '.join(map(str, depths))}"),
    )
    apart = [words for agrees, words in checks if not agrees]
    if preset is None:
        return apart
    theirs = replace(preset_config(preset, env=env, method=run.method), depth=depth)
    return paper_values.differences(run.config, theirs, published["eval_env"]) + apart


def _name_there(method: str) -> str | None:
    return next((name for name, (ours, _) in _PRESETS.items() if ours == method), None)


def published_sections(collection: Collection) -> list[Section]:
    """Return the section if an environment of the collection is among the published ones."""
    rows = [row for (_, label), runs in collection.groups.items() for row in _rows(label, runs)]
    if not rows:
        return []
    notes = [f"{name}: {source['title']}; ± {source['spread']}." for name, source in _sources().items()]
    notes.append(
        f"Time near goal: steps of {EPISODE:,}, the mean of a run's last {LAST} evaluations, then over seeds; ours "
        "with a 95% interval, of two seeds their range. A published value is shown if method, environment, layout, "
        "steps, metric, depth and every other setting agree."
    )
    table = Table("published", "Compared with published values", _COLUMNS, tuple(rows), tuple(notes))
    return [Section("Published values", "published", tables=(table,))]


def _rows(label: str, runs: Sequence[Run]) -> list[Row]:
    """Compare the mean over seeds of each run's last evaluations; a run with fewer gives those that it has."""
    first = runs[0]
    finals = [float(np.mean(run.metrics["time_near_goal"][-LAST:])) for run in runs if run.num_evaluations]
    mean = seeds_cell(seeds_interval(finals)) if finals else absent("no evaluation yet")
    ours, rows = [Cell(first.env), Cell(label), Cell(str(len(runs)), len(runs)), mean], []
    for source, content in _sources().items():
        published = content["environments"].get(first.config.get("env"))
        if published is None:
            continue
        apart = list(dict.fromkeys(reason for run in runs for reason in differences(run, published)))
        theirs = [[absent(), absent("not comparable"), Cell(f"no: {'; '.join(apart)}")]]
        if not apart:
            depth = first.config["depth"]
            name = _name_there(first.method) or ""
            value = published["values"][name][str(depth)]
            theirs = [[Cell(f"{name}, depth {depth}"), number(*value), Cell("yes")]]
        rows += [Row((*ours, Cell(source), *cells), first.env, label) for cells in theirs]
    return rows
