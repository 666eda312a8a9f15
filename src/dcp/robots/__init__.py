"""Run a policy on a robot. Names are loaded when first used and need only NumPy."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dcp.robots.controller import Controller as Controller
    from dcp.robots.safety import Reading as Reading
    from dcp.robots.safety import Stopped as Stopped
    from dcp.robots.so101_arm import So101Arm as So101Arm
    from dcp.robots.timing import Report as Report

__all__ = ["Controller", "Reading", "Report", "So101Arm", "Stopped"]
_HOMES = dict(zip(__all__, ("controller", "safety", "timing", "so101_arm", "safety"), strict=True))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dcp.robots' has no attribute {name!r}")
    return getattr(import_module(f"dcp.robots.{_HOMES[name]}"), name)
