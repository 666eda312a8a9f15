"""What a part of the analysis hands to the report: titles, figures that are drawn when wanted, tables, words."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from dcp.analysis.tables import Table


@dataclass(frozen=True)
class FigureSpec:
    """A figure that is not drawn yet: a page may want it as PNG and PDF, or not at all."""

    name: str  # of its files, without ending
    caption: str
    make: Callable[[], Figure]
    environment: str = ""  # where it shows one alone: what a page filters by
    method: str = ""


@dataclass(frozen=True)
class Section:
    title: str
    anchor: str  # of the link to it; lower case, without spaces
    figures: tuple[FigureSpec, ...] = ()
    tables: tuple[Table, ...] = ()
    text: str = ""  # plain paragraphs, an empty line between two
    html: str = ""  # for interactive parts, as it is
