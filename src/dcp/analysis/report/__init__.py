"""One self-contained page over any set of runs, and every figure and table of it as files."""

from dcp.analysis.report.build import Report, build_report

__all__ = ["Report", "build_report"]
