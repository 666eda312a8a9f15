import numpy as np
import pytest

from dcp.envs.registry import make_env
from dcp.evaluation.trial import evaluate
from dcp.render.episodes import AFTER_SUCCESS, shown_episodes
from tests.render.conftest import point_walk

STEPS = 20


@pytest.fixture(scope="module")
def env():
    return make_env("point_u_maze")


def test_an_episode_does_not_change_with_how_many_are_shown(env, tiny_run):
    one = shown_episodes(env, tiny_run.policy, 3, 2, 1, STEPS)
    many = shown_episodes(env, tiny_run.policy, 3, 0, 5, STEPS)
    np.testing.assert_array_equal(one[0].achieved, many[2].achieved)
    assert not np.array_equal(one[0].achieved, many[1].achieved)


def test_they_are_the_episodes_that_dcp_eval_measures(env, tiny_run):
    shown = shown_episodes(env, tiny_run.policy, 5, 0, 4, STEPS)
    trial = evaluate(tiny_run.policy, "point_u_maze", episodes=32, seeds=(5,), episode_length=STEPS)
    np.testing.assert_array_equal([np.append(e.achieved[0], e.goal) for e in shown], trial.all.start[:4])
    np.testing.assert_allclose([e.distance[-1] for e in shown], trial.all.final_distance[:4], atol=1e-4)
    np.testing.assert_array_equal([e.reached or 0 for e in shown], trial.all.first_reach[:4])


def test_another_policy_meets_the_same_starts_and_goals(env, tiny_run):
    from dcp.policies.policy import with_burst

    ours = shown_episodes(env, tiny_run.policy, 0, 0, 2, STEPS)
    others = shown_episodes(env, with_burst(tiny_run.policy, 2, 2), 0, 0, 2, STEPS)
    for a, b in zip(ours, others, strict=True):
        np.testing.assert_array_equal(a.goal, b.goal)
        np.testing.assert_array_equal(a.achieved[0], b.achieved[0])
        assert not np.array_equal(a.achieved[-1], b.achieved[-1])


def test_an_episode_is_shown_until_shortly_after_its_success():
    assert point_walk(steps=100).last == 100
    assert point_walk(steps=100, reached=10).last == 10 + AFTER_SUCCESS
    assert point_walk(steps=100, reached=95).last == 100


def test_distance_is_to_the_goal():
    np.testing.assert_allclose(point_walk(steps=2).distance, [np.sqrt(8), np.sqrt(5), 2.0])
