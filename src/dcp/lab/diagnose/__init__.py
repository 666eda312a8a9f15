"""Measure the theorems' quantities on a trained agent: `dcp diagnose`. Letters as in `types`; K states, H episodes.

`direction_measures` (gaps, alignment, controllability) and `distance_measures` (calibration, energies, conditioning)
are taken at the `visited_states` of an agent; `diagnosis` runs them all.
"""

from dcp.lab.diagnose.diagnosis import PARTS, diagnose

__all__ = ["PARTS", "diagnose"]
