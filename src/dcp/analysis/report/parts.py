"""Which parts a report has: the one list of section makers, in the order of the page."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from dcp.analysis import compare_figure, landscape_section, pusher_goals, statistics_sections
from dcp.analysis.collection import Collection
from dcp.analysis.diagnosis import section as diagnosis_section
from dcp.analysis.sections import Section

SectionMaker = Callable[[Collection], list[Section]]
LONGEST_NAME = 80


def section_makers(checkpoints: Sequence[int]) -> list[tuple[str, SectionMaker]]:
    """-> what is being made, for the progress line, and its maker"""
    return [
        ("statistics", partial(statistics_sections.sections, checkpoints=checkpoints)),
        ("two runs", compare_figure.sections),
        ("landscapes", landscape_section.sections),
        ("goals of the pusher", pusher_goals.sections),
        ("diagnoses", diagnosis_section.sections),
    ]


def with_safe_names(sections: Sequence[Section]) -> list[Section]:
    """File names from run folders' names: letters, digits, - and _ alone, and no two alike."""
    for_figures, for_tables, for_anchors = set[str](), set[str](), set[str]()
    safe = []
    for section in sections:
        figures = tuple(replace(figure, name=_free(figure.name, for_figures)) for figure in section.figures)
        tables = tuple(replace(table, name=_free(table.name, for_tables)) for table in section.tables)
        anchor = _free(section.anchor, for_anchors)
        safe.append(replace(section, figures=figures, tables=tables, anchor=anchor))
    return safe


def _free(name: str, taken: set[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:LONGEST_NAME] or "part"
    candidate, number = plain, 2
    while candidate.lower() in taken:  # some file systems do not tell A from a
        candidate, number = f"{plain}_{number}", number + 1
    taken.add(candidate.lower())
    return candidate
