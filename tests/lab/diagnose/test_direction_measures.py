"""The measures, held against numbers worked out by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.envs.base import EnvState
from dcp.envs.mazes import FORCE, SPEED, PointMaze, U, parse_layout
from dcp.envs.point_tasks import PointPush, PointSoccer
from dcp.lab.diagnose.direction_measures import (
    action_maps,
    controllable,
    summarize_controllability,
)
from dcp.lab.diagnose.visited_states import PathTruth, StraightTruth, leads_through_things, sample_moments
from tests.support.agents import known_agent

HALL = parse_layout("####\n#rg#\n####", 1000.0)  # no wall within reach


def test_the_true_way_in_a_maze_bends_at_corners():
    """From (1, 1) to (3, 1) by way of (1.5, 2.5) and (2.5, 2.5); half of it ends on the wall's face."""
    truth, a, b = PathTruth(parse_layout(U, 1.0)), np.array([[1.0, 1.0]]), np.array([[3.0, 1.0]])
    leg = np.hypot(0.5, 1.5)
    assert_allclose(truth.lengths(a, b), 2 * leg + 1.0)
    assert_allclose(truth.directions(a, b), [[0.5 / leg, 1.5 / leg]])
    assert_allclose(truth.between(a, b, np.array([0.5])), [[2.0, 2.5]])


def test_a_height_is_carried_along_and_not_compared():
    truth = PathTruth(parse_layout(U, 1.0))
    a, b = np.array([[3.0, 3.0, 0.0]]), np.array([[3.0, 1.0, 1.0]])
    assert_allclose(truth.directions(a, b), [[0.0, -1.0, 0.0]])
    assert_allclose(truth.between(a, b, np.array([0.25])), [[3.0, 2.5, 0.25]])


def test_without_a_maze_the_way_is_straight_and_at_the_goal_there_is_no_direction():
    a, b = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[3.0, 4.0], [1.0, 1.0]])
    assert_allclose(StraightTruth().lengths(a, b), [5.0, 0.0])
    assert_allclose(StraightTruth().directions(a, b), [[0.6, 0.8], [np.nan, np.nan]])
    assert_allclose(StraightTruth().between(a, b, np.array([0.5, 0.5])), [[1.5, 2.0], [1.0, 1.0]])


def test_only_a_way_through_a_maze_can_lead_through_what_can_be_pushed():
    """In point_soccer the goal is the ball's place: its way is the straight line, of which another note speaks."""
    assert leads_through_things(PointPush())
    assert not leads_through_things(PointSoccer()) and not leads_through_things(PointMaze("hall", HALL, inertia=False))


def test_a_sample_takes_as_many_states_of_each_episode_as_there_are():
    counts = np.zeros((10, 3), bool)
    counts[:, 0], counts[:4, 2] = True, True  # the second episode began at its goal
    found = sample_moments(counts, 8, np.random.default_rng(0))
    assert sorted(found[:, 1].tolist()) == [0] * 4 + [2] * 4
    assert counts[tuple(found.T)].all() and len(np.unique(found, axis=0)) == 8


MOVES = np.array([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 1e-5]]])  # M [K, G, A]


def test_only_the_part_that_actions_can_move_counts():
    """v = (0.6, 0.8), t = (1, 0). Actions move x alone: 0.6 of v, all of it useful. Both: 1, cosine 0.6. None: 0."""
    descent, true = np.tile([3.0, 4.0], (3, 1)), np.tile([1.0, 0.0], (3, 1))
    found = controllable(MOVES, descent, true, threshold=0.5)
    assert_allclose(found["share"], [0.6, 1.0, 0.0], atol=1e-12)
    assert_allclose(found["cosine"], [1.0, 0.6, np.nan])
    assert_allclose(found["progress"], [0.6, 0.6, 0.0], atol=1e-12)
    assert_allclose(found["true_share"], [1.0, 1.0, 0.0], atol=1e-12)
    assert_allclose(found["reach"], [0.25, 0.25, 0.25e-5])
    assert found["movable"].tolist() == [1.0, 1.0, 0.0]


def test_a_move_below_a_hundredth_of_the_threshold_is_none():
    """The offset 0.25 moves x by 0.25 * 0.02 = 0.005, which is 1% of a threshold of 0.5, and less of a larger one."""
    moves, ones = np.array([[[0.02]]]), np.ones((1, 1))
    assert controllable(moves, ones, ones, threshold=0.5)["share"] == [1.0]
    assert controllable(moves, ones, ones, threshold=0.6)["share"] == [0.0]


def test_a_body_that_diverged_is_left_out():
    found = controllable(np.full((1, 2, 2), np.nan), np.ones((1, 2)), np.array([[1.0, 0.0]]), 0.5)
    assert np.isnan(found["share"]).all() and np.isnan(found["movable"]).all()
    assert summarize_controllability(found, np.zeros(1))["states"] == 0


@pytest.mark.parametrize("inertia", [False, True])
def test_the_k_step_map_of_a_point_by_hand(inertia):
    """Driftless: k * SPEED. With inertia the velocity is FORCE * (1 + 0.8 + ... + 0.8^(i - 1)) after i steps."""
    env = PointMaze("hall", HALL, inertia)
    start: EnvState = env.reset_to(np.array([1000.0, 1000.0, 1000.0, 2000.0]), np.zeros(4))
    many = EnvState(*(np.asarray(x)[None] for x in start[:4]))
    found = action_maps(env, known_agent(spec=env.spec), many, np.array([[1000.0, 2000.0]], np.float32), (1, 10))
    speeds = np.cumsum(0.8 ** np.arange(10))
    by_hand = {1: FORCE, 10: FORCE * speeds.sum()} if inertia else {1: SPEED, 10: 10 * SPEED}
    for k, gain in by_hand.items():
        assert_allclose(found[k], [gain * np.eye(2)], atol=2e-3 * gain + 1e-3)
