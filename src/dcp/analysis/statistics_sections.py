"""The report's tables: who is better, in all and in each environment; then checkpoints, bursts and saturation."""

from collections.abc import Sequence
from functools import partial

from dcp.analysis.burst_tables import burst_tables, saturation_table
from dcp.analysis.checkpoints import checkpoint_tables
from dcp.analysis.collection import Collection
from dcp.analysis.curves import METRICS
from dcp.analysis.eval_results import eval_results
from dcp.analysis.overall import aggregate_table, common_environments, improvement_table
from dcp.analysis.overall_figures import aggregate_figure, profile_figure
from dcp.analysis.paper_values import CHECKPOINTS
from dcp.analysis.sections import FigureSpec, Section
from dcp.analysis.summary import SUMMARY_METRICS, comparison_table, summary_table


def sections(collection: Collection, checkpoints: Sequence[int] = CHECKPOINTS) -> list[Section]:
    """Those that these runs have something for."""
    found = [_summary(collection), _overall(collection), _checkpoints(collection, checkpoints)]
    found += [_bursts(collection), _saturation(collection)]
    return [section for section in found if section.tables or section.text]


def _summary(collection: Collection) -> Section:
    """The first method against each other one that it shares an environment with."""
    tables = []
    method, *others = collection.methods or [""]
    for baseline in others:
        if summary := summary_table(collection, method, baseline):
            tables += [summary, *(comparison_table(collection, name, method, baseline) for name in SUMMARY_METRICS)]
    if not tables:
        return Section("Summary", "summary")
    text = (
        "The first table answers as the paper's summary does. The others say how large a difference is, and how sure "
        "the seeds can make us of it: intervals that hold zero, or a p near one, are an answer too."
    )
    return Section("Summary", "summary", tables=tuple(tables), text=text)


def _overall(collection: Collection) -> Section:
    if len(common_environments(collection)) < 2:
        return Section("All environments together", "overall")
    tables = [make(collection, metric) for metric in METRICS for make in (aggregate_table, improvement_table)]
    figures = [
        FigureSpec(
            "aggregate",
            "The mean of the middle half of all runs of all environments, with its 95% interval by a stratified "
            "bootstrap. A score is between 0 and 1.",
            partial(aggregate_figure, collection),
        )
    ]
    figures += [
        FigureSpec(
            f"profile_{metric}",
            f"Performance profile, {shown.label.split(' (')[0].lower()}: the share of runs of all environments that "
            "score above each level, with 95% bands by a stratified bootstrap. The higher curve is the better method.",
            partial(profile_figure, collection, metric),
        )
        for metric, shown in METRICS.items()
    ]
    return Section("All environments together", "overall", tuple(figures), tuple(tables))


def _checkpoints(collection: Collection, checkpoints: Sequence[int]) -> Section:
    tables = checkpoint_tables(collection, checkpoints) if collection.groups else []
    return Section("Checkpoints", "checkpoints", tables=tuple(tables))


def _bursts(collection: Collection) -> Section:
    return Section("Periodic bursts", "bursts", tables=tuple(burst_tables(collection)))


def _saturation(collection: Collection) -> Section:
    """Results that are all unfit leave no table to say so under: then these words stand alone."""
    if table := saturation_table(collection):
        return Section("Saturation", "saturation", tables=(table,))
    unused = eval_results(collection)[1]
    words = ["No result of dcp eval can be used.", *unused] if unused else []
    return Section("Saturation", "saturation", text="\n\n".join(words))
