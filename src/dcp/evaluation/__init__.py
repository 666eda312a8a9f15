"""Evaluate any policy on fresh environments and goals, as it would be deployed."""

from dcp.evaluation.measures import Measures, measure
from dcp.evaluation.rollout import Record, rollout

__all__ = ["Measures", "Record", "measure", "rollout"]
