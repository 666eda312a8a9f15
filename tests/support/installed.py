"""Environments that can be made here: the Fetch tasks need an extra."""

from importlib.util import find_spec

from dcp.envs.registry import OURS

INSTALLED = [name for name in OURS if not name.startswith("fetch_") or find_spec("gymnasium_robotics")]
