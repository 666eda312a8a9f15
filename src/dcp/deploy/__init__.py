"""A trained policy, away from its training. Names are loaded when first used: a robot needs NumPy alone."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dcp.deploy.controller import Controller as Controller
    from dcp.deploy.controller import Reading as Reading
    from dcp.deploy.controller import Report as Report
    from dcp.deploy.controller import Stopped as Stopped
    from dcp.deploy.lerobot import LeRobotArm as LeRobotArm

_HOMES = {
    "Controller": "dcp.deploy.controller",
    "Reading": "dcp.deploy.controller",
    "Report": "dcp.deploy.controller",
    "Stopped": "dcp.deploy.controller",
    "LeRobotArm": "dcp.deploy.lerobot",
}
__all__ = ["Controller", "LeRobotArm", "Reading", "Report", "Stopped"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dcp.deploy' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
