"""States for seeding the pool: states with the ball where goals are, and the agent beside it."""

from pathlib import Path

import numpy as np
import pytest

from dcp.envs.registry import make_env
from dcp.methods.pool_seed import read_pool_seed
from tools.docs.soccer_seeds import displaced


def test_balls_lie_on_the_circle_of_goals_with_the_point_next_to_them_inside_the_room(tmp_path: Path):
    states = displaced("point_soccer", 64, seed=0)
    assert states.shape == (64, 6) and states.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(states[:, 2:4] - 3.0, axis=1), 1.3, atol=1e-5)
    np.testing.assert_allclose(states[:, 4:], states[:, 2:4] - states[:, :2], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(states[:, 4:], axis=1), 0.5, atol=1e-5)  # they touch at 0.4
    assert np.abs(states[:, :2] - 3.0).max() < 2.5 - 0.15
    assert np.unique(states, axis=0).shape == states.shape
    np.savez(tmp_path / "seed.npz", states=states)
    assert np.array_equal(
        read_pool_seed(str(tmp_path / "seed.npz"), make_env("point_soccer").spec).goals, states[:, 2:4]
    )


@pytest.mark.slow
def test_the_ants_ball_is_five_away_and_the_ant_is_next_to_it():
    states = displaced("ant_soccer", 8, seed=0)
    np.testing.assert_allclose(np.linalg.norm(states[:, 29:31], axis=1), 5.0, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(states[:, 29:31] - states[:, :2], axis=1), 2.45, atol=1e-4)
    assert np.isfinite(states).all()
