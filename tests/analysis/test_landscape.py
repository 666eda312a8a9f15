import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.testing import assert_allclose, assert_array_equal

from dcp.analysis.episodes import Path
from dcp.analysis.landscape import directions, psi_distances, psi_landscape, pulled_back
from dcp.analysis.landscape_figure import landscape_figure
from dcp.analysis.maze_axes import draw_landscape
from dcp.envs.layouts import U
from dcp.envs.maze import parse_layout
from dcp.envs.registry import make_env
from dcp.errors import UserError

GOAL = np.array([3.0, 1.0])


def test_the_landscape_is_the_distance_of_psi_at_each_point(policy):
    landscape = psi_landscape(policy, parse_layout(U, 1.0), GOAL, per_cell=4)
    psi = policy.representation.encode_goal
    for i, j in ((6, 6), (6, 9), (13, 13)):
        point = jnp.array([landscape.x[i], landscape.y[j]])
        assert landscape.distance[i, j] is not np.ma.masked
        assert_allclose(landscape.distance[i, j], jnp.linalg.norm(psi(point) - psi(jnp.asarray(GOAL))), rtol=1e-5)


def test_the_landscape_is_zero_at_the_goal_and_nowhere_else(policy):
    landscape = psi_landscape(policy, parse_layout(U, 4.0), 4.0 * GOAL, per_cell=4)
    at = np.argwhere(landscape.distance < 1e-5)
    assert_array_equal(at, [[14, 6]])  # cells from the corner: 3.5 and 1.5, four points each
    assert (landscape.x[14], landscape.y[6]) == (12.0, 4.0)


def test_the_direction_that_the_actor_sees_points_down_the_landscape(policy):
    """J^T u is minus the gradient of |psi(s) - psi(g)|: both are computed here, by different means."""
    points = np.array([[1.0, 1.0], [1.2, 2.7], [3.1, 2.0]])
    psi = policy.representation.encode_goal

    def distance(s):
        return jnp.linalg.norm(psi(s) - psi(jnp.asarray(GOAL, jnp.float32)))

    slope = np.stack([jax.grad(distance)(jnp.asarray(point, jnp.float32)) for point in points])
    pulled = pulled_back(policy, jnp.asarray(points, jnp.float32), jnp.asarray(GOAL, jnp.float32))
    assert_allclose(pulled, -slope, rtol=1e-4, atol=1e-6)
    shown = directions(policy, points, GOAL)
    assert_allclose(np.linalg.norm(shown, axis=1), 1.0, rtol=1e-6)
    assert_allclose(shown, -slope / np.linalg.norm(slope, axis=1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_at_the_goal_itself_there_is_no_direction(policy):
    assert_array_equal(directions(policy, GOAL[None], GOAL), [[0.0, 0.0]])


def test_a_goal_s_height_is_the_same_everywhere(policy):
    """A stranger's goals may have three numbers: psi then reads the goal's third one at every point."""
    networks = dataclasses.replace(
        policy.networks, shape=dataclasses.replace(policy.networks.shape, goal_size=3, state_size=3)
    )
    actor, encoders = jax.jit(networks.init)(jax.random.key(1))
    raised = dataclasses.replace(policy, networks=networks, actor=actor, encoders=encoders)
    psi = raised.representation.encode_goal
    apart = jnp.linalg.norm(psi(jnp.array([1.0, 2.0, 1.25])) - psi(jnp.array([3.0, 1.0, 1.25])))
    assert_allclose(psi_distances(raised, np.array([[1.0, 2.0]]), np.array([3.0, 1.0, 1.25])), [apart], rtol=1e-5)


def test_the_picture_is_oriented_as_the_text(policy):
    axes = Figure().add_subplot()
    landscape = psi_landscape(policy, parse_layout(U, 1.0), GOAL, per_cell=4)
    path = Path(np.array([[1.0, 1.0], [1.0, 3.0], [3.0, 3.0], [3.0, 1.1], [3.0, 1.0]]), GOAL, reached=3)
    draw_landscape(axes, landscape, [path])
    assert axes.yaxis_inverted()  # row 0 above
    walls = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len(walls) == "".join(U).count("#")
    assert (1.5, 2.5) in {(wall.get_y(), wall.get_y() + wall.get_height()) for wall in walls}
    goal = next(line for line in axes.lines if line.get_label() == "goal g")
    assert_array_equal(goal.get_xydata(), [[1.0, 3.0]])  # y to the right, x downwards
    assert_array_equal(axes.lines[0].get_xydata(), path.points[:4, ::-1])  # up to its success


def test_the_figure_aims_at_the_far_goal_and_counts_who_reaches_it(policy, monkeypatch):
    asked = []

    def two_paths(env, policy, goal, num_episodes, episode_length):
        asked.append((*goal, num_episodes, episode_length))
        return [Path(np.ones((3, 2)), goal, 2), Path(np.ones((3, 2)), goal, None)]

    monkeypatch.setattr("dcp.analysis.landscape_figure.paths_toward", two_paths)
    figure = landscape_figure(policy, make_env("point_u_maze_eval"), "untrained", num_rollouts=2, episode_length=3)
    assert asked == [(3.0, 1.0, 2, 3)]
    goal = next(line for line in figure.axes[0].lines if line.get_label() == "goal g")
    assert_array_equal(goal.get_xydata(), [[1.0, 3.0]])
    assert "rollouts (1 of 2 reach g)" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_policy_of_another_body_is_a_mistake(policy):
    with pytest.raises(UserError, match="other sizes"):
        landscape_figure(policy, make_env("point_u_maze_inertia"), "wrong body")
