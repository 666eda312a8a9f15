"""Evaluate any policy on fresh environments and goals, as it would be deployed."""

from dcp.evaluation.rollout import Measures, Record, measure, rollout

__all__ = ["Measures", "Record", "measure", "rollout"]
