"""Who is shown, under which name and where; their episodes, the direction that is drawn, and training's choice of z."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dcp.config import Config
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.interfaces import Representation
from dcp.lab.episodes import (
    AFTER_SUCCESS,
    Shown,
    ShownPolicy,
    common_env,
    directions,
    names_of,
    one_of_each,
    pulled_back,
    sees_direction,
    show_policy,
    side_by_side,
    subgoals,
    visited_pool,
)
from dcp.lab.targets import Target, environment_of, open_target
from dcp.lab.trial import evaluate
from dcp.methods.commands import PooledSubgoal
from dcp.policies.wrappers import HostPolicy, with_burst
from tests.lab.render.conftest import point_walk, shown_episodes

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


def test_another_policy_gets_the_same_starts_and_goals(env, tiny_run):
    ours = shown_episodes(env, tiny_run.policy, 0, 0, 2, STEPS)
    others = shown_episodes(env, with_burst(tiny_run.policy, 2, 2), 0, 0, 2, STEPS)
    for a, b in zip(ours, others, strict=True):
        np.testing.assert_array_equal(a.goal, b.goal)
        np.testing.assert_array_equal(a.achieved[0], b.achieved[0])
        assert not np.array_equal(a.achieved[-1], b.achieved[-1])


def test_one_that_arrives_in_the_median_time_is_shown_next_to_the_first_that_does_not():
    played = [point_walk(steps=100, reached=at) for at in (90, None, 10, 40, None)]
    assert one_of_each(played) == (3, 1)
    assert one_of_each(played[:1]) == (0,) and one_of_each(played[1:2]) == (0,)
    subject = ShownPolicy("dcp", 3_000_000, [played[3], played[1]], (3, 1), (True, False, True, True, False))
    arriving, failing = side_by_side(subject)
    assert (arriving.title, failing.title) == ("dcp, 3M steps, episode 3", "dcp, 3M steps, episode 1")
    assert arriving.rate == failing.rate == "reached in 3 of 5 episodes"


def test_an_episode_is_shown_until_shortly_after_its_success():
    assert point_walk(steps=100).last == 100
    assert point_walk(steps=100, reached=10).last == 10 + AFTER_SUCCESS
    assert point_walk(steps=100, reached=95).last == 100


def test_distance_is_to_the_goal():
    np.testing.assert_allclose(point_walk(steps=2).distance, [np.sqrt(8), np.sqrt(5), 2.0])


def still(state: np.ndarray, goal: np.ndarray) -> np.ndarray:
    return np.zeros((len(state), 2))


def known_as(*abouts: dict, labels=("a/policy.safetensors", "b/policy.safetensors")) -> list[str]:
    return names_of(
        [Target(label, HostPolicy(still), about=about) for label, about in zip(labels, abouts, strict=True)]
    )


def test_policies_are_named_by_method_then_seed_then_path():
    assert known_as({"method": "dcp"}, {"method": "crl"}) == ["dcp", "crl"]
    assert known_as({"method": "dcp", "seed": 0}, {"method": "dcp", "seed": 1}) == ["dcp seed 0", "dcp seed 1"]
    same = {"method": "dcp", "seed": 0}
    assert known_as(same, same) == ["a/policy.safetensors", "b/policy.safetensors"]
    assert known_as({}, {}, labels=("a/one.onnx", "a/two.onnx")) == ["one", "two"]


def test_the_second_policy_must_fit_into_the_first_one_s_environment(tiny_run):
    other = Target("arm", HostPolicy(still), sizes=(20, 3, 7))
    with pytest.raises(UserError, match=r"arm has sizes .*\(20, 3, 7\), but point_u_maze has \(2, 2, 2\)"):
        common_env([open_target(tiny_run.folder), other], None)


def test_a_plain_function_is_shown_too_but_has_no_direction():
    target, env = Target("still", HostPolicy(still)), make_env("point_u_maze")
    (episode,) = show_policy(target, "still", env, Shown(steps=3, subgoal=True)).episodes
    np.testing.assert_array_equal(episode.achieved, np.tile(episode.achieved[0], (4, 1)))
    assert episode.directions is episode.subgoals is None
    with pytest.raises(UserError, match="still has no representation"):
        show_policy(target, "still", env, Shown(steps=3, direction="on"))


STRETCH = jnp.array([1.0, 2.0])


def stretched() -> SimpleNamespace:
    """psi(x, y) = (x, 2y): its Jacobian is diag(1, 2)."""

    def distance(a, b):
        return jnp.linalg.norm(a - b, axis=-1)

    psi = Representation(lambda g: g * jnp.broadcast_to(STRETCH, g.shape), distance, lambda s, a, g: jnp.zeros(()))
    return SimpleNamespace(representation=psi)


def test_the_direction_is_pulled_back_by_the_jacobian():
    """g - s = (3, 2): psi differs by (3, 4), so u = (0.6, 0.8), and J^T u = (0.6, 1.6)."""
    arrows = pulled_back.__wrapped__(stretched(), jnp.array([[1.0, 1.0], [4.0, 3.0]]), jnp.array([4.0, 3.0]))
    np.testing.assert_allclose(arrows, [[0.6, 1.6], [0.0, 0.0]], atol=1e-6)  # at the goal there is none


def test_arrows_are_unit_vectors_in_the_plane_or_zero(tiny_run, monkeypatch):
    episode = point_walk(steps=4)
    arrows = directions(tiny_run.policy, episode.achieved, episode.goal)
    assert arrows.shape == (5, 2)
    np.testing.assert_allclose(np.linalg.norm(arrows, axis=1), 1.0, atol=1e-5)
    monkeypatch.setattr("dcp.lab.episodes.pulled_back", lambda *_: np.zeros((5, 3)))
    np.testing.assert_array_equal(directions(tiny_run.policy, episode.achieved, episode.goal), np.zeros((5, 2)))


def test_a_small_step_along_the_arrow_comes_nearer_in_psi_than_one_across(tiny_run):
    policy, episode = tiny_run.policy, point_walk(steps=4)
    arrow, at, goal = directions(policy, episode.achieved, episode.goal)[2], episode.achieved[2], episode.goal
    psi = policy.representation

    def away(point) -> float:
        return float(psi.distance(psi.encode_goal(jnp.asarray(point)), psi.encode_goal(jnp.asarray(goal))))

    across = np.array([-arrow[1], arrow[0]])
    assert away(at + 0.01 * arrow) < min(away(at), away(at + 0.01 * across), away(at - 0.01 * across))


def test_z_is_chosen_every_period_by_the_methods_own_score():
    """All five of the pool are candidates, and `energy` takes the one nearest to the goal (3, 3) in psi."""
    pool = np.array([[1.0, 1.0], [3.0, 2.0], [1.0, 3.0], [2.9, 2.9], [0.0, 0.0]])
    command = PooledSubgoal(5, 5, 3, 10, score="energy", threshold=0.1)
    chosen = subgoals(command, stretched(), pool, point_walk(steps=7), jax.random.key(0))
    np.testing.assert_allclose(chosen, np.tile([2.9, 2.9], (8, 1)), atol=1e-6)
    few = command.__class__(5, 1, 3, 10, "energy", 0.0, 0.1)  # one candidate: any of them
    chosen = subgoals(few, stretched(), pool, point_walk(steps=29), jax.random.key(1))
    changes = np.flatnonzero(np.any(np.diff(chosen, axis=0) != 0.0, axis=1)) + 1
    assert len(changes) and all(changes % 3 == 0)


def test_the_pool_is_of_states_that_this_policy_visits(env, tiny_run):
    command = PooledSubgoal(pool_size=64, num_candidates=8).for_task(env.spec, 250)
    pool = visited_pool(env, tiny_run.policy, command, seed=0, steps=20)
    assert pool.shape == (64, 2)
    assert np.ptp(pool, axis=0).max() > 0.0
    cells = np.floor(pool + 0.5).astype(int)
    assert not env.spec.maze.walls[cells[:, 0], cells[:, 1]].any()


@pytest.mark.parametrize("method", ["crl", "dcp_no_pool"])
def test_a_method_without_a_pool_has_no_subgoals(env, tiny_run, method):
    target = Target("mine", tiny_run.policy, config=Config(method=method))
    (episode,) = show_policy(target, "mine", env, Shown(steps=20, subgoal=True)).episodes
    assert episode.subgoals is None


@pytest.mark.parametrize("direction, drawn", [("auto", True), ("off", False)])
def test_a_policy_that_sees_a_direction_gets_an_arrow_unless_told_otherwise(tiny_run, direction, drawn):
    target = open_target(tiny_run.folder)
    assert sees_direction(target.policy)
    subject = show_policy(target, "dcp", environment_of(target), Shown(steps=20, direction=direction, subgoal=drawn))
    (episode,) = subject.episodes
    assert (episode.directions is not None) == (episode.subgoals is not None) == drawn
