"""The smallest run that goes through every stage. Tests that train share its shapes, so that XLA compiles once."""

from typing import Any

from dcp.config import Config
from dcp.presets import preset_config

FLAGS = ["--preset", "smoke", "--depth", "1", "--no-plots"]  # the same on the command line


def tiny_config(**overrides: Any) -> Config:
    return preset_config("smoke", **{"depth": 1, **overrides})
