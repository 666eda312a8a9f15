"""point_soccer: pushes worked out by hand. The point's radius is 0.15, the ball's 0.25: they touch at 0.4."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import kstest

from dcp.envs.registry import make_env

ENV, SLICK = make_env("point_soccer"), make_env("point_soccer_slick")
STEP = {ENV: jax.jit(ENV.step), SLICK: jax.jit(SLICK.step)}


def after(point, ball, action, steps: int = 1, env=SLICK) -> np.ndarray:
    state = env.reset_to(np.array([*point, *ball, 3.0, 3.0]))
    for _ in range(steps):
        state = STEP[env](state, jnp.array(action))
    return np.asarray(state.obs[:4])


def test_the_point_alone_moves_by_twelve_hundredths_of_the_action():
    assert_allclose(after((2.0, 2.0), (4.0, 4.0), (-0.5, 1.0)), [1.94, 2.12, 4.0, 4.0], atol=1e-6)
    assert_allclose(after((2.0, 2.0), (4.0, 4.0), (0.0, 9.0)), [2.0, 2.12, 4.0, 4.0], atol=1e-6)


def test_a_push_from_behind_moves_the_ball_by_what_the_gap_leaves():
    """0.5 apart, 0.1 of it free: of a step of 0.12 the ball takes the last 0.02, and of the next one all."""
    assert_allclose(after((3.0, 3.0), (3.0, 3.5), (0.0, 1.0)), [3.0, 3.12, 3.0, 3.52], atol=1e-6)
    assert_allclose(after((3.0, 3.0), (3.0, 3.5), (0.0, 1.0), steps=2), [3.0, 3.24, 3.0, 3.64], atol=1e-6)


def test_a_glancing_push_goes_along_the_normal():
    """At the end of the step the offset is 0.395 (0.6, 0.8): the ball gives way by 0.005 in that direction."""
    assert_allclose(after((3.0, 3.0), (3.357, 3.316), (1.0, 0.0)), [3.12, 3.0, 3.36, 3.32], atol=1e-6)


def test_a_ball_that_sticks_goes_along_in_every_direction():
    """Touching at 0.4: carried as far as the point moves, also where that is away from the ball or across."""
    for action in ((1.0, 0.0), (0.0, -1.0), (-0.5, 0.5)):
        moved = 0.12 * np.array(action)
        found = after((3.0, 3.0), (3.0, 3.4), action, env=ENV)
        assert_allclose(found, [3.0 + moved[0], 3.0 + moved[1], 3.0 + moved[0], 3.4 + moved[1]], atol=1e-6)
    assert_allclose(after((3.0, 3.0), (3.0, 3.45), (0.0, -1.0), env=ENV), [3.0, 2.88, 3.0, 3.45], atol=1e-6)  # too far


def test_a_wall_takes_the_ball_from_the_point_that_moves_on():
    """The ball at the wall (y 5.25) stays behind while the point slides along x past it, pushing it a little aside."""
    held = after((2.65, 5.0), (3.0, 5.25), (0.0, 1.0), env=ENV)
    assert_allclose(held[3], 5.25, atol=1e-5)


def test_a_ball_that_is_left_stays():
    assert_allclose(after((3.0, 3.0), (3.0, 3.5), (0.0, -1.0)), [3.0, 2.88, 3.0, 3.5], atol=1e-6)


def test_at_the_wall_neither_moves():
    """The wall's face is at 5.5: the ball stands at 5.25, the point behind it at 4.85."""
    assert_allclose(after((3.0, 4.85), (3.0, 5.25), (0.0, 1.0), steps=3), [3.0, 4.85, 3.0, 5.25], atol=1e-5)


def test_a_ball_at_the_wall_can_be_lifted_off_it_from_the_wedge():
    """The smaller point fits under the ball's side: the normal then leads away from the wall too."""
    _, _, x, y = after((2.4, 5.35), (3.0, 5.25), (1.0, 0.0), steps=6)
    assert x > 3.1 and y < 5.22


def test_near_goal_is_the_balls_affair():
    ball_there = ENV.reset_to(np.array([3.0, 3.0, 4.0, 4.0, 4.0, 4.24]))
    assert bool(ball_there.near_goal) and float(ball_there.reward) == 1.0 and not bool(ball_there.done)
    point_there = ENV.reset_to(np.array([4.0, 4.24, 2.0, 2.0, 4.0, 4.24]))
    assert not bool(point_there.near_goal)
    assert not bool(ENV.reset_to(np.array([3.0, 3.0, 4.0, 4.0, 4.0, 4.26])).near_goal)


@pytest.mark.parametrize(("part", "distance"), [(slice(2, 4), 0.6), (slice(6, 8), 1.3)])
def test_ball_and_target_lie_in_any_direction_at_their_distances(part: slice, distance: float):
    obs = np.asarray(jax.jit(jax.vmap(ENV.reset))(jax.random.split(jax.random.key(0), 2000)).obs)
    offset = obs[:, part] - 3.0
    assert_allclose(np.linalg.norm(offset, axis=-1), distance, atol=1e-5)
    angle = np.arctan2(offset[:, 1], offset[:, 0])
    assert kstest(angle, "uniform", args=(-np.pi, 2 * np.pi)).pvalue > 1e-3
    assert np.abs(obs[:, :2] - 3.0).max() <= 0.12 + 1e-6
    apart = np.linalg.norm(obs[:, 4:6], axis=-1)
    assert apart.min() > 0.42 and np.linalg.norm(obs[:, 2:4] - obs[:, 6:], axis=-1).min() > 0.25  # nothing is begun
