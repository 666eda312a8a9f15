"""The paper's summary of two methods, by a stated rule, and the statistics that the paper does not give."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dcp.analysis import paper_values
from dcp.analysis.collection import Collection
from dcp.analysis.curves import METRICS
from dcp.analysis.evaluation_points import REACH, common_end, values_at
from dcp.analysis.paper_values import BASELINE, METHOD
from dcp.analysis.style import human_count
from dcp.analysis.tables import Cell, Row, Table, absent, number
from dcp.statistics import (
    NEGLIGIBLE,
    SMALL,
    PairedTest,
    Verdict,
    effect_size,
    holm,
    paired_test,
    probability_of_improvement,
    t_interval,
    verdict,
)

SUMMARY_METRICS = ("time_near_goal", "success_once")  # the paper's columns
ARROWS = {"up": "↑", "down": "↓", "about": "≈"}
DIFFERS, EARLY = "≠", "‡"
RULE = (
    f"≈ marks a difference of at most {100 * SMALL:g}% of the larger mean, or of less than {NEGLIGIBLE} pooled "
    "standard deviations of the seeds; otherwise the arrow names the higher mean. It is no test of significance."
)
ONE_SEED = "A method has one seed somewhere: its spread is not known, and the sign rests on one run."
PAPER = (
    f"{DIFFERS}: the paper's sign is another one. It is of the end of the paper's runs; where that is not near the "
    "steps compared here, it is named and the signs are not held against each other."
)
WHERE = "Both methods are compared at the last evaluation that every one of their runs has reached."


@dataclass(frozen=True)
class Comparison:
    """Two methods on one environment in one metric, at one number of steps."""

    environment: str
    metric: str
    steps: float
    furthest: float  # where the longest of these runs is
    ours: dict[int, float]  # seed -> value as shown
    theirs: dict[int, float]

    @property
    def verdict(self) -> Verdict:
        return verdict(list(self.ours.values()), list(self.theirs.values()))

    @property
    def effect(self) -> float:
        return effect_size(list(self.ours.values()), list(self.theirs.values()))

    @property
    def test(self) -> PairedTest | None:
        return paired_test(self.ours, self.theirs)

    @property
    def improvement(self) -> float:
        """The probability that a seed of ours beats a seed of theirs."""
        sides = [np.array(list(side.values())) for side in (self.ours, self.theirs)]
        if not all(len(side) and np.isfinite(side).all() for side in sides):
            return math.nan
        return float(probability_of_improvement(sides[:1], sides[1:]))

    @property
    def paper_end(self) -> int | None:
        """Where the paper's runs end, if that is not near: its sign answers another question then."""
        end = paper_values.end(self.environment)
        return None if end is None or abs(self.steps - end) <= REACH * end else end

    @property
    def is_early(self) -> bool:
        """Longer runs are cut short here, by more than evaluations that lie a little apart."""
        return self.steps < 0.9 * self.furthest


def compare_methods(collection: Collection, metric: str, method: str, baseline: str) -> list[Comparison]:
    """One an environment that has both."""
    found = []
    for environment in collection.environments:
        ours, theirs = collection.of(environment, method), collection.of(environment, baseline)
        if not ours or not theirs:
            continue
        runs = (*ours, *theirs)
        end, furthest = common_end(runs), max(run.env_steps for run in runs)
        sides = [values_at(side, metric, end) for side in (ours, theirs)]
        found.append(Comparison(environment, metric, end, furthest, *sides))
    return found


def summary_table(collection: Collection, method: str = METHOD, baseline: str = BASELINE) -> Table | None:
    """The paper's table, with its arrows beside ours where it compares the same two methods. None without a pair."""
    by_metric = {name: compare_methods(collection, name, method, baseline) for name in SUMMARY_METRICS}
    if not by_metric[SUMMARY_METRICS[0]]:
        return None
    published = (method, baseline) == (METHOD, BASELINE) and any(
        paper_values.arrow("success_once", environment) for environment in collection.environments
    )
    columns = ["Environment", "Steps"]
    for name in SUMMARY_METRICS:
        label = METRICS[name].label.split(" (")[0]
        columns += [label, *([f"{label}, paper"] if published else [])]
    rows = []
    for parts in zip(*by_metric.values(), strict=True):
        environment = parts[0].environment
        cells = [Cell(environment), _steps(parts[0])]
        for part in parts:
            paper = paper_values.arrow(part.metric, environment) if published and not part.paper_end else None
            cells.append(_arrow(part, method, baseline, paper))
            cells += [_published_arrow(part, method, baseline)] if published else []
        rows.append(Row(tuple(cells), environment))
    early = any(part.is_early for part in by_metric[SUMMARY_METRICS[0]])
    alone = any(min(len(part.ours), len(part.theirs)) == 1 for part in by_metric[SUMMARY_METRICS[0]])
    notes = [RULE, WHERE, *_early_note(early), *([ONE_SEED] if alone else [])]
    notes += [PAPER] if published else []
    return Table(
        _name("summary", method, baseline), f"{method} against {baseline}", tuple(columns), tuple(rows), tuple(notes)
    )


def comparison_table(collection: Collection, metric: str, method: str, baseline: str) -> Table:
    """Means, effect size, paired test and probability of improvement, environment by environment."""
    parts = compare_methods(collection, metric, method, baseline)
    corrected = holm([part.test.p_value if part.test else math.nan for part in parts])
    columns = ("Environment", "Steps", method, baseline, "Effect size d", "Pairs", "Paired difference")
    columns += ("p", "p (Holm)", "Probability of improvement")
    rows = [_comparison_row(part, p) for part, p in zip(parts, corrected, strict=True)]
    notes = (
        f"Mean ± half width of the 95% Student-t interval. {WHERE}",
        "Effect size d: the difference of the means in pooled standard deviations of the seeds (Cohen).",
        "Paired difference and p: Student's t over the seeds that both have; Holm corrects for all environments.",
        "Probability of improvement: that a seed of the first beats one of the second (Mann-Whitney; a tie is half).",
        *_early_note(any(part.is_early for part in parts)),
    )
    title = f"{METRICS[metric].label}: {method} against {baseline}"
    return Table(_name(f"comparison_{metric}", method, baseline), title, columns, tuple(rows), notes)


def _comparison_row(part: Comparison, corrected: float) -> Row:
    test = part.test
    pairs = test.difference.count if test else 0
    gap = number(test.difference.mean, test.difference.half_width, sign=True) if test else absent("no common seed")
    cells = (
        Cell(part.environment),
        _steps(part),
        _mean(part.ours),
        _mean(part.theirs),
        _or_dash(part.effect, 2, sign=True),
        Cell(str(pairs), pairs),
        gap,
        _p_value(test.p_value if test else math.nan),
        _p_value(corrected),
        _or_dash(part.improvement, 2),
    )
    return Row(cells, part.environment)


def _mean(values: dict[int, float]) -> Cell:
    if not values:
        return absent("no evaluation near")
    found = t_interval(list(values.values()))
    return number(found.mean, found.half_width, count=found.count)


def _arrow(part: Comparison, method: str, baseline: str, paper: str | None) -> Cell:
    found = part.verdict
    if found == "unknown":
        return absent("a mean is not known")
    means = [t_interval(list(side.values())) for side in (part.ours, part.theirs)]
    hover = f"{method} {means[0]}, {baseline} {means[1]}, d = {part.effect:.2f}"
    return Cell(_sign(found, method, baseline), marker=DIFFERS if paper and paper != found else "", hover=hover)


def _published_arrow(part: Comparison, method: str, baseline: str) -> Cell:
    paper = paper_values.arrow(part.metric, part.environment)
    if not paper:
        return absent("not in the paper")
    return Cell(_sign(paper, method, baseline) + (f" at {human_count(part.paper_end)}" if part.paper_end else ""))


def _sign(found: str, method: str, baseline: str) -> str:
    name = {"up": f" {method}", "down": f" {baseline}"}.get(found, "")
    return ARROWS[found] + name


def _steps(part: Comparison) -> Cell:
    early = f"the longest run is at {part.furthest:,.0f} steps" if part.is_early else ""
    return Cell(human_count(part.steps), int(part.steps), marker=EARLY if part.is_early else "", hover=early)


def _p_value(p: float) -> Cell:
    if math.isnan(p):
        return absent("a test needs two pairs of seeds that do not all agree")
    return Cell("<0.001" if p < 0.001 else f"{p:.3f}", p)


def _or_dash(value: float, digits: int, sign: bool = False) -> Cell:
    if math.isnan(value):
        return absent()
    if math.isinf(value):
        return Cell("∞" if value > 0 else "\u2212∞", value, hover="the seeds of each method do not differ at all")
    return number(value, digits=digits, sign=sign)


def _early_note(early: bool) -> Sequence[str]:
    return (
        [f"{EARLY}: longer runs are compared before their end, because a shorter one is among them."] if early else []
    )


def _name(kind: str, method: str, baseline: str) -> str:
    return f"{kind}_{method}_against_{baseline}"
