"""Every preset must be a run that can start."""

import pytest

from dcp.checks import violations
from dcp.config import Config
from dcp.presets import PRESETS, preset_config


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_valid_on_every_point_maze(preset: str):
    for env in ("point_u_maze", "point_big_maze_inertia", "point_hardest_maze"):
        assert violations(preset_config(preset, env=env, eval_env=None)) == [], env


def test_the_paper_preset_is_the_defaults():
    assert preset_config("paper") == Config()


def test_an_override_wins():
    assert preset_config("smoke", seed=3, width=8).width == 8
