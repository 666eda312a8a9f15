import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.testing import assert_allclose, assert_array_equal

from dcp.analysis.episodes import Path
from dcp.analysis.landscape import draw_landscape, inside_walls, landscape_figure, psi_landscape
from dcp.envs.layouts import U
from dcp.envs.maze import parse_layout
from dcp.envs.registry import make_env
from dcp.errors import UserError

GOAL = np.array([3.0, 1.0])


def test_the_landscape_is_the_distance_of_psi_at_each_point(policy):
    landscape = psi_landscape(policy.representation, parse_layout(U, 1.0), GOAL, per_cell=4)
    psi = policy.representation.encode_goal
    for i, j in ((6, 6), (6, 9), (13, 13)):
        point = jnp.array([landscape.x[i], landscape.y[j]])
        assert landscape.distance[i, j] is not np.ma.masked
        assert_allclose(landscape.distance[i, j], jnp.linalg.norm(psi(point) - psi(jnp.asarray(GOAL))), rtol=1e-5)


def test_the_landscape_is_zero_at_the_goal_and_nowhere_else(policy):
    landscape = psi_landscape(policy.representation, parse_layout(U, 4.0), 4.0 * GOAL, per_cell=4)
    at = np.argwhere(landscape.distance < 1e-5)
    assert_array_equal(at, [[14, 6]])  # cells from the corner: 3.5 and 1.5, four points each
    assert (landscape.x[14], landscape.y[6]) == (12.0, 4.0)


def test_walls_are_masked_and_their_faces_are_free():
    masked = inside_walls(parse_layout("#####\n#rg##\n#####", 1.0), per_cell=2)
    expected = np.ones((7, 11), bool)
    expected[2:5, 2:7] = False  # x from 0.5 to 1.5, y from 0.5 to 2.5
    assert_array_equal(masked, expected)


def test_the_picture_is_oriented_as_the_text(policy):
    axes = Figure().add_subplot()
    landscape = psi_landscape(policy.representation, parse_layout(U, 1.0), GOAL, per_cell=4)
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

    monkeypatch.setattr("dcp.analysis.landscape.paths_toward", two_paths)
    figure = landscape_figure(policy, make_env("point_u_maze_eval"), "untrained", num_rollouts=2, episode_length=3)
    assert asked == [(3.0, 1.0, 2, 3)]
    goal = next(line for line in figure.axes[0].lines if line.get_label() == "goal g")
    assert_array_equal(goal.get_xydata(), [[1.0, 3.0]])
    assert "rollouts (1 of 2 reach g)" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_policy_of_another_body_is_a_mistake(policy):
    with pytest.raises(UserError, match="other sizes"):
        landscape_figure(policy, make_env("point_u_maze_inertia"), "wrong body")
