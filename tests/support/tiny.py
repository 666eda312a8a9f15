"""The smallest run that goes through every stage. Tests that train share its shapes, so that XLA compiles once."""

from typing import Any

from dcp.config import Config
from dcp.presets import preset_config

FLAGS = ["--preset", "smoke", "--depth", "1", "--no-plots"]  # the same on the command line


LONGER = {
    "steps": 12_000,
    "num_evals": 14,
}  # 2 unrolls fill the replay; 28 iterations, two an evaluation
LONGER_FLAGS = [*FLAGS, "--steps", "12000", "--num-evals", "14"]


def tiny_config(**overrides: Any) -> Config:
    return preset_config("smoke", **{"depth": 1, **overrides})
