"""The learning curves: one panel an environment, drawn by the page's script, and the same as figures for papers."""

from functools import partial
from html import escape

from dcp.analysis.collection import Collection
from dcp.analysis.curves import METRICS, X_COLUMNS, XAxis, methods_figure
from dcp.analysis.report.curve_data import curve_notes
from dcp.analysis.report.markup import figure_files
from dcp.analysis.report.names import Names
from dcp.analysis.sections import FigureSpec, Section

TITLE, ANCHOR = "Learning curves", "curves"
_WORDS = (
    "Bold: mean over seeds. Band: two-sided 95% Student-t interval of the mean. Thin: each seed. A mean is over all "
    "seeds of its method, so it ends where the shortest run ends; over time it stands at the seeds' mean time of each "
    "evaluation. Point at a curve for its values, or use the arrow keys."
)
_SWITCHES = (
    ("axis", "Horizontal axis", (("steps", "environment steps"), ("seconds", "wall-clock time"))),
    ("range", "Vertical axis", (("full", "full range"), ("fit", "fit to data"))),
    ("seeds", "Seeds", (("true", "all seeds"), ("false", "mean alone"))),
)


def curve_section(collection: Collection, names: Names, x: XAxis) -> Section:
    """Its figures are shown by the script; their files are linked from the panels."""
    figures = tuple(
        FigureSpec(
            f"curves_{environment}",
            f"Learning curves on {environment}",
            partial(_figure, collection, environment, x, names.colours),
            environment,
        )
        for environment in collection.environments
        if any(X_COLUMNS[x] in run.metrics for m in collection.methods for run in collection.of(environment, m))
    )
    return Section(TITLE, ANCHOR, figures, text=_WORDS if collection.environments else "No run has an evaluation yet.")


def panels(collection: Collection, names: Names, figures: tuple[FigureSpec, ...]) -> str:
    """The places where the script draws, with the links to the files."""
    files = {figure.environment: figure_files(figure.name) for figure in figures}
    shown = [
        _panel(at, environment, files.get(environment, ""), collection, names)
        for at, environment in enumerate(collection.environments)
    ]
    return _controls() + "".join(shown) if shown else ""


def _figure(collection: Collection, environment: str, x: XAxis, colours: dict[str, str]):
    runs = {method: [run.metrics for run in collection.of(environment, method)] for method in collection.methods}
    return methods_figure({method: found for method, found in runs.items() if found}, environment, x, colours)


def _controls() -> str:
    groups = []
    for name, label, values in _SWITCHES:
        buttons = "".join(
            f'<button type="button" data-switch="{name}" data-value="{value}">{text}</button>' for value, text in values
        )
        groups.append(f'<span class="switch" role="group" aria-label="{label}">{buttons}</span>')
    return f'<div class="controls">{"".join(groups)}</div>\n'


def _panel(at: int, environment: str, files: str, collection: Collection, names: Names) -> str:
    charts = "".join(
        f'<figure><figcaption>{metric.label}</figcaption><div data-chart="{at}" data-metric="{key}"></div></figure>'
        for key, metric in METRICS.items()
    )
    said = " ".join(curve_notes(collection, environment))
    notes = f'<p class="note">{escape(said)}</p>' if said else ""
    return (
        f'<article class="panel"{names.tags(environment)}><header><h3>{escape(environment)}</h3>{files}</header>\n'
        f'{notes}<div class="pair">{charts}</div></article>\n'
    )
