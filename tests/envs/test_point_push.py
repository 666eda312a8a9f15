"""point_push: pushes of a box, worked out by hand. The point's radius is 0.15, the box reaches 0.4 each way."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from dcp.envs.geodesic import path_lengths
from dcp.envs.registry import make_env

ENV = make_env("point_push")
step = jax.jit(ENV.step)


def after(point, box, *actions) -> np.ndarray:
    state = ENV.reset_to(np.array([*point, *box, 2.0, 5.0]))
    for action in actions:
        state = step(state, jnp.array(action))
    return np.asarray(state.obs[:4])


def test_a_push_at_a_face_moves_the_box_straight():
    """The box's face is at 2.6 and the point's front at 2.55: of 0.12 the box takes 0.07."""
    assert_allclose(after((2.0, 2.4), (2.0, 3.0), (0.0, 1.0)), [2.0, 2.52, 2.0, 3.07], atol=1e-6)


def test_a_push_off_the_middle_of_a_face_does_not_turn_the_box():
    assert_allclose(after((1.7, 4.4), (2.0, 5.0), (0.0, 1.0)), [1.7, 4.52, 2.0, 5.07], atol=1e-6)


def test_a_corner_is_pushed_along_the_line_to_it():
    """The corner (1.6, 4.6) lies 0.145 (0.6, 0.8) from the point at the end: the box gives way by 0.005 that way."""
    assert_allclose(after((1.513, 4.364), (2.0, 5.0), (0.0, 1.0)), [1.513, 4.484, 2.003, 5.004], atol=1e-6)


def test_the_box_in_the_door_gives_way_along_it_and_not_across():
    """Between the door's posts, at 1.5 and 2.5 in x, a box that reaches 0.4 has 0.1 to each side."""
    pushed = after((2.0, 2.4), (2.08, 3.0), *[(0.0, 1.0)] * 5)
    assert_allclose(pushed[2:], [2.08, 3.0 + 5 * 0.12 - 0.05], atol=1e-5)
    aside = after((1.65, 3.7), (2.1, 3.19), *[(1.0, -1.0)] * 10)  # from the far room's side, at its corner
    assert aside[2] <= 2.1 + 1e-5


def test_the_way_is_closed_until_the_box_is_pushed_through():
    """Straight through the door, then around the box: 13 steps push it 1.5 on, and the goals' room is open."""
    straight = [(0.0, 1.0)] * 20
    through = after((2.0, 1.0), (2.0, 3.0), *straight)
    assert_allclose(through, [2.0, 1.0 + 20 * 0.12, 2.0, 1.0 + 20 * 0.12 + 0.55], atol=1e-5)
    around = after((2.0, 1.0), (2.0, 3.0), *straight, *[(0.0, 1.0)] * 8, *[(-1.0, 0.0)] * 8)
    assert around[0] < 1.2 and around[1] > 4.3
    blocked = after((1.0, 2.0), (2.0, 3.0), *[(0.0, 1.0)] * 30)  # beside the door is wall
    assert_allclose(blocked, [1.0, 2.35, 2.0, 3.0], atol=1e-5)


def test_near_goal_is_the_points_affair():
    assert bool(ENV.reset_to(np.array([2.0, 4.8, 2.0, 6.0, 2.0, 5.0])).near_goal)
    assert not bool(ENV.reset_to(np.array([2.0, 1.0, 2.0, 5.0, 2.0, 5.0])).near_goal)


def test_the_point_starts_in_the_near_room_the_box_in_the_door_and_goals_fill_the_far_room():
    obs = np.asarray(jax.jit(jax.vmap(ENV.reset))(jax.random.split(jax.random.key(0), 2000)).obs)
    assert np.abs(obs[:, :2] - [2.0, 1.0]).max() <= 0.12 + 1e-6
    assert np.all(obs[:, 2:4] == [2.0, 3.0])
    goals, counts = np.unique(obs[:, 6:], axis=0, return_counts=True)
    assert {tuple(goal) for goal in goals} == {(float(x), float(y)) for x in (1, 2, 3) for y in (4, 5, 6)}
    assert chisquare(counts).pvalue > 1e-3
    assert np.isfinite(path_lengths(ENV.layout, obs[:, :2], obs[:, 6:])).all()  # but for the box there is a way
