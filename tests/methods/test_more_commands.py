"""The frontier of the pool: what is rare, within reach and on the way; who arrives and explores. One hard goal."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.methods.more_commands import Frontier, FrontierState, SingleGoal
from tests.methods.test_commands import COMMAND, IDENTITY, points

FRONTIER = Frontier(
    pool_size=8, num_candidates=8, subgoal_period=25, pool_refresh_steps=16, score="energy", threshold=0.1
)
LINE = points(0, 1, 2, 3, 4, 5, 6, 7)


def frontier_state(command: Frontier, start: jax.Array, goal: jax.Array, **changes) -> FrontierState:
    """A state whose pool is the line 0 .. 7 and whose episodes began at `start`."""
    state = command.init(start, goal)
    return state._replace(pooled=state.pooled._replace(pool=LINE), **{k: jnp.asarray(v) for k, v in changes.items()})


@pytest.mark.parametrize(
    ("start", "goal", "reach", "z"),
    [
        (0.0, 9.0, 0.5, 3),  # distances 0 .. 7 have the median 3.5
        (0.0, 9.0, 1.0, 7),
        (0.0, 9.0, 0.1, 0),  # the tenth lies at 0.7
        (7.0, -9.0, 0.5, 4),
        (3.0, 9.0, 0.5, 5),  # distances 3 2 1 0 1 2 3 4 have the median 2
    ],
)
def test_the_cutoff_counts_from_the_episodes_start(start: float, goal: float, reach: float, z: int):
    """With the whole weight on the score, z is the member nearest to the goal within reach, wherever the body is."""
    goals = points(goal, goal)
    state = frontier_state(FRONTIER, points(start, start), goals, reach=reach, goal_weight=1.0)
    for at in (start, 5.0):
        chosen = FRONTIER.choose(state, points(at, at), goals, IDENTITY, jax.random.key(0))
        assert np.array_equal(chosen.pooled.subgoal, points(z, z))


def test_the_cutoff_is_in_steps_where_the_critic_gives_them():
    """These steps call the far end near: from 0 the half within reach is 4 .. 7."""
    backwards = IDENTITY._replace(steps=lambda a, b: 100.0 - jnp.linalg.norm(a - b, axis=-1))
    goal = points(-9)
    state = frontier_state(FRONTIER, points(0), goal, reach=0.5, goal_weight=1.0)
    assert np.array_equal(
        FRONTIER.choose(state, points(0), goal, backwards, jax.random.key(0)).pooled.subgoal, points(4)
    )


def test_novelty_is_minus_the_log_of_a_gaussian_kernels_density():
    """Pool 0, 0, 0, 4: mean 1, spread sqrt(3), so a bandwidth of 1 / sqrt(3) spreads is 1."""
    novelty = replace(FRONTIER, bandwidth=3**-0.5).novelty(points(0, 0, 0, 4))
    rare, common = (1 + 3 * np.exp(-8.0)) / 4, (3 + np.exp(-8.0)) / 4
    assert_allclose(novelty, -np.log([common, common, common, rare]), rtol=1e-4)


def test_without_weight_on_the_score_z_is_the_rarest_within_reach():
    goal, pool = points(0), points(0, 0, 0, 1, 1, 2, 7, 7)
    state = frontier_state(FRONTIER, points(0), goal, reach=1.0, goal_weight=0.0)
    state = state._replace(pooled=state.pooled._replace(pool=pool))
    chosen = FRONTIER.choose(state, points(5), goal, IDENTITY, jax.random.key(0))
    assert np.array_equal(chosen.pooled.subgoal, points(2))
    assert_allclose(chosen.novelty, FRONTIER.novelty(pool)[5])


def test_coverage_counts_cells_of_the_thresholds_size():
    """0 and 0.05 share the first cell of size 0.1; 0.12 and 0.31 lie in the second and the fourth."""
    assert_allclose(FRONTIER.coverage(points(0, 0.05, 0.12, 0.31)), 3 / 4)


@pytest.mark.parametrize(
    ("arrived", "share", "new_share", "move"),
    [
        ([1, 1, 1, 1], 0.70, 0.85, 1),  # 0.5 * 0.7 + 0.5 * 1: more than 0.7
        ([1, 1, 0, 1], 0.70, 0.70 / 2 + 1 / 3, 0),  # the fourth was no attempt: two of three; within the band
        ([0, 0, 0, 0], 0.70, 0.35, 0),
        ([0, 0, 0, 1], 0.40, 0.20, -1),
    ],
)
def test_the_cutoff_and_the_weight_follow_the_share_that_is_reached(arrived, share, new_share, move):
    command = replace(FRONTIER, memory=0.5, adaptation=0.05)
    state = frontier_state(command, points(0, 0, 0, 0), points(9, 9, 9, 9), share_reached=share)
    state = state._replace(attempts=jnp.array([True, True, True, False]), arrived=jnp.array(arrived, bool))
    after = command.adapted(state)
    assert_allclose(after.share_reached, new_share, rtol=1e-6)
    assert_allclose(after.reach, 0.5 + 0.05 * move, rtol=1e-6)
    assert_allclose(after.goal_weight, 0.5 + 0.05 * move, rtol=1e-6)


def test_the_cutoff_and_the_weight_stay_within_their_bounds_and_rest_without_attempts():
    no = jnp.zeros(1, bool)
    for share, reach, weight in ((0.0, 0.1, 0.0), (1.0, 1.0, 1.0)):
        state = frontier_state(FRONTIER, points(0), points(9), share_reached=share, reach=reach, goal_weight=weight)
        after = FRONTIER.adapted(state._replace(attempts=no))
        assert_allclose([after.share_reached, after.reach, after.goal_weight], [share, reach, weight], rtol=1e-6)


def test_who_arrives_explores_and_is_counted_once():
    """z = 1: environment 0 arrives at the second step and stays, 1 never does, and 2's goal changes before it would."""
    command, goal = replace(FRONTIER, explore_after=2), points(9, 9, 9)
    state = frontier_state(command, points(0, 0, 0), goal, attempts=[True] * 3)
    state = state._replace(pooled=state.pooled._replace(subgoal=points(1, 1, 1)))
    exploring = []
    for at, g in ((0.5, 9.0), (0.95, 8.0), (1.0, 8.0), (1.05, 8.0)):
        state = command.watched(state, points(at, 0.0, at), goal.at[2, 0].set(g))
        exploring.append(np.asarray(command.explores(state)).tolist())
    assert exploring == [[False] * 3, [True, False, False], [True, False, False], [False] * 3]
    assert np.asarray(state.attempts).tolist() == [True, True, False]
    assert np.asarray(state.arrived).tolist() == [True, False, False]


def test_a_z_that_is_reached_when_it_is_chosen_is_no_attempt():
    goal = points(9, 9)
    state = frontier_state(FRONTIER, points(0, 0), goal, reach=1.0, goal_weight=1.0)
    state = FRONTIER.choose(state, points(7.05, 2), goal, IDENTITY, jax.random.key(0))
    assert np.array_equal(state.pooled.subgoal, points(7, 7))
    assert np.asarray(state.attempts).tolist() == [False, True]


def test_an_episodes_begin_is_remembered_and_ends_its_exploring():
    state = frontier_state(FRONTIER, points(0, 0), points(9, 9), exploring=[3, 3])
    state = FRONTIER.begin(state, points(5, 6), jnp.array([True, False]))
    assert np.array_equal(state.start, points(5, 0))
    assert np.asarray(state.exploring).tolist() == [0, 3]


@partial(jax.jit, static_argnums=0)
def walk(command: Frontier, key: jax.Array):
    """60 steps of three environments that jump about, whose goals change twice -> states, commanded goals, goals"""
    key_at, key_goal, key_run = jax.random.split(key, 3)
    at = jax.random.normal(key_at, (60, 3, 2))
    goal = jnp.repeat(jax.random.normal(key_goal, (3, 3, 2)), 20, axis=0)

    def one(state, inputs):
        at, goal, key = inputs
        state, commanded = command.step(command.begin(state, at, jnp.zeros(3, bool)), at, goal, IDENTITY, key)
        return state, (state, commanded)

    _, (states, commanded) = jax.lax.scan(one, command.init(at[0], goal[0]), (at, goal, jax.random.split(key_run, 60)))
    return states, commanded, goal


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), share=st.sampled_from([0.0, 0.34]))
def test_the_frontier_never_leaves_the_pool_and_equal_seeds_give_equal_bits(seed: int, share: float):
    command = replace(FRONTIER, num_candidates=4, final_goal_share=share)
    states, commanded, goal = walk(command, jax.random.key(seed))
    z, pool = np.asarray(states.pooled.subgoal), np.asarray(states.pooled.pool)
    for tick in (0, 25, 50):
        assert (z[tick][:, None] == pool[tick]).all(-1).any(-1).all()
    assert set((z[1:] != z[:-1]).any((1, 2)).nonzero()[0]) <= {24, 49}  # between choices z stays
    commanded, goal = np.asarray(commanded), np.asarray(goal)
    assert ((commanded == z).all(-1) | (commanded == goal).all(-1)).all()
    for name, low in (("reach", command.least_reach), ("goal_weight", 0.0), ("share_reached", 0.0)):
        assert low - 1e-6 <= np.min(getattr(states, name)) and np.max(getattr(states, name)) <= 1.0
    again = walk(command, jax.random.key(seed))
    jax.tree.map(np.testing.assert_array_equal, (states, commanded, goal), again)


def test_the_frontiers_metrics_are_the_pools_and_its_own():
    state = frontier_state(FRONTIER, points(0), points(9))
    own = {"share_reached", "reach", "goal_weight", "subgoal_novelty", "pool_coverage"}
    pools = set(COMMAND.metrics(state.pooled, points(0), points(9)))
    assert set(FRONTIER.metrics(state, points(0), points(9))) == pools | own


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"bandwidth": 0.0}, "command.bandwidth 0.0 is too small: use a number above 0"),
        ({"explore_after": -1}, "command.explore_after -1 is too small: use 0 or more"),
        ({"target_reached": 1.5}, "command.target_reached 1.5 is no share: use a number from 0 to 1"),
    ],
)
def test_a_frontiers_setting_without_meaning_is_refused(setting: dict, words: str):
    with pytest.raises(UserError, match=words):
        Frontier(**setting)


def test_the_single_goal_is_the_one_with_the_longest_way():
    """In the U maze (3, 1) lies six cells from the start at (1, 1), though (3, 3) is farther as the crow flies."""
    command = SingleGoal().for_task(make_env("point_u_maze").spec, 250)
    assert command.goal == (3.0, 1.0)
    _, commanded = command.step((), points(0, 1), points(9, 8), IDENTITY, jax.random.key(0))
    assert np.array_equal(commanded, [[3.0, 1.0], [3.0, 1.0]])


def test_a_single_goal_of_ones_own_keeps_the_goals_other_coordinates():
    command = SingleGoal(goal=(7.0,)).for_task(make_env("point_soccer").spec, 250)
    _, commanded = command.step((), points(0), jnp.array([[1.0, 2.0]]), IDENTITY, jax.random.key(0))
    assert np.array_equal(commanded, [[7.0, 2.0]])


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (None, "asks for a maze's farthest goal, and point_soccer has no goals in a maze: set command.goal"),
        ((1.0, 2.0, 3.0), "command.goal has 3 numbers: a goal of point_soccer has 2"),
    ],
)
def test_a_task_without_a_farthest_goal_is_refused_in_one_sentence(goal, words: str):
    with pytest.raises(UserError, match=words):
        SingleGoal(goal=goal).for_task(make_env("point_soccer").spec, 250)
