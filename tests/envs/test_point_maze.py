"""The point mazes, with the constants of ENVIRONMENTS.md worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chisquare, kstest

from dcp.envs.base import EnvState
from dcp.envs.registry import ENVIRONMENTS, make_env

DRIFTLESS, INERTIA = make_env("point_u_maze"), make_env("point_u_maze_inertia")
NAMES = [name for name in ENVIRONMENTS if name.startswith("point_") and "_maze" in name]


def at(env, x: float, y: float, velocity=(0.0, 0.0), goal=(3.0, 3.0)) -> EnvState:
    return env.reset_to(np.array([x, y, *goal]), np.array([*velocity, 0.0, 0.0]))


def test_the_paper_mazes_exist_with_and_without_inertia_and_with_far_goals():
    assert set(NAMES) == {
        "point_u_maze", "point_big_maze", "point_hardest_maze",
        "point_u_maze_inertia", "point_big_maze_inertia", "point_hardest_maze_inertia",
        "point_u_maze_eval", "point_big_maze_eval", "point_u_maze_inertia_eval", "point_big_maze_inertia_eval",
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_spec_states_the_documented_sizes(name: str):
    spec = make_env(name).spec
    assert spec.name == name
    assert (spec.state_size, spec.goal_size, spec.action_size) == (4 if "inertia" in name else 2, 2, 2)
    assert spec.goal_dims == (0, 1) and spec.maze_dims == (0, 1)
    assert spec.threshold == 0.125
    assert spec.episode_length == 250
    assert spec.maze is not None and spec.maze.scale == 1.0


def test_the_driftless_point_moves_by_twelve_hundredths_of_the_action():
    state = DRIFTLESS.step(at(DRIFTLESS, 1.0, 2.0), jnp.array([-0.5, 1.0]))
    assert_allclose(state.obs, [1.0 - 0.06, 2.0 + 0.12, 3.0, 3.0], atol=1e-6)


def test_an_action_beyond_one_counts_as_one():
    state = DRIFTLESS.step(at(DRIFTLESS, 1.0, 2.0), jnp.array([0.0, 7.0]))
    assert_allclose(state.obs[:2], [1.0, 2.12], atol=1e-6)


def test_inertia_gathers_speed_by_hand():
    """velocity = 0.8 velocity + 0.05 action: 0.05, 0.09, then 0.072 without action."""
    state = at(INERTIA, 1.0, 1.0)
    state = INERTIA.step(state, jnp.array([0.0, 1.0]))
    assert_allclose(state.obs[:4], [1.0, 1.05, 0.0, 0.05], atol=1e-6)
    state = INERTIA.step(state, jnp.array([0.0, 1.0]))
    assert_allclose(state.obs[:4], [1.0, 1.05 + 0.09, 0.0, 0.8 * 0.05 + 0.05], atol=1e-6)
    state = INERTIA.step(state, jnp.array([0.0, 0.0]))
    assert_allclose(state.obs[:4], [1.0, 1.14 + 0.072, 0.0, 0.8 * 0.09], atol=1e-6)


def test_a_wall_stops_the_velocity_of_its_axis_alone():
    """x 0.6 with the wall's face at 0.5 and radius 0.08: the point stops at 0.58 and slides on in y."""
    state = INERTIA.step(at(INERTIA, 0.6, 1.0, velocity=(-0.2, 0.1)), jnp.zeros(2))
    assert_allclose(state.obs[:4], [0.58, 1.0 + 0.08, 0.0, 0.08], atol=1e-6)


@pytest.mark.parametrize(("distance", "near"), [(0.124, True), (0.126, False)])
def test_near_goal_is_within_an_eighth_and_pays_one(distance: float, near: bool):
    state = at(DRIFTLESS, 3.0, 3.0 - distance)
    assert bool(state.near_goal) is near
    assert float(state.reward) == float(near)
    assert not bool(state.done)


def test_near_goal_is_judged_after_the_step():
    state = DRIFTLESS.step(at(DRIFTLESS, 3.0, 2.8), jnp.array([0.0, 1.0]))  # 0.2 away, then 0.08
    assert bool(state.near_goal)


def test_reset_to_sets_position_velocity_and_goal():
    assert_allclose(at(INERTIA, 1.1, 2.2, (0.3, -0.4), (3.0, 1.0)).obs, [1.1, 2.2, 0.3, -0.4, 3.0, 1.0])
    assert_allclose(at(DRIFTLESS, 1.1, 2.2, (0.3, -0.4), (3.0, 1.0)).obs, [1.1, 2.2, 3.0, 1.0])


@pytest.mark.parametrize("env", [INERTIA, make_env("point_big_maze_eval")], ids=lambda env: env.spec.name)
def test_resets_start_around_the_start_cell_with_goals_uniform_over_the_goal_cells(env):
    obs = np.asarray(jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 4000)).obs)
    state, goal = env.spec.split(obs)
    noise = state[:, :2] - 1.0  # the start cell is (1, 1) in every maze
    assert np.abs(noise).max() <= 0.12 + 1e-6
    for axis in (0, 1):
        assert kstest(noise[:, axis], "uniform", args=(-0.12, 0.24)).pvalue > 1e-3
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.06
    assert np.all(state[:, 2:] == 0.0)  # at rest
    cells, counts = np.unique(goal, axis=0, return_counts=True)
    assert {tuple(cell) for cell in cells} == {tuple(cell) for cell in env.spec.maze.cells("g")}
    assert chisquare(counts).pvalue > 1e-3
