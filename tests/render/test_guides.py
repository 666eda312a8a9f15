"""The direction in the goal's coordinates, and training's choice of z."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dcp.methods.commands import PooledSubgoal
from dcp.methods.interface import Representation
from dcp.render.guides import Scorer, directions, make_scorer, pulled_back, sees_direction
from dcp.render.show import Shown, make_subject
from tests.render.conftest import point_walk

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
    arrows = directions(tiny_run.policy, episode)
    assert arrows.shape == (5, 2)
    np.testing.assert_allclose(np.linalg.norm(arrows, axis=1), 1.0, atol=1e-5)
    monkeypatch.setattr("dcp.render.guides.pulled_back", lambda *_: np.zeros((5, 3)))
    np.testing.assert_array_equal(directions(tiny_run.policy, episode), np.zeros((5, 2)))


def test_a_small_step_along_the_arrow_comes_nearer_in_psi_than_one_across(tiny_run):
    policy, episode = tiny_run.policy, point_walk(steps=4)
    arrow, at, goal = directions(policy, episode)[2], episode.achieved[2], episode.goal
    psi = policy.representation

    def away(point) -> float:
        return float(psi.distance(psi.encode_goal(jnp.asarray(point)), psi.encode_goal(jnp.asarray(goal))))

    across = np.array([-arrow[1], arrow[0]])
    assert away(at + 0.01 * arrow) < min(away(at), away(at + 0.01 * across), away(at - 0.01 * across))


def test_z_is_chosen_anew_every_period_by_the_methods_own_score():
    """All five of the pool are candidates, and `energy` takes the one nearest to the goal (3, 3) in psi."""
    pool = np.array([[1.0, 1.0], [3.0, 2.0], [1.0, 3.0], [2.9, 2.9], [0.0, 0.0]])
    command = PooledSubgoal(5, 5, period=3, refresh_steps=10, score="energy", final_goal_share=0.0, threshold=0.1)
    subgoals = Scorer(command, stretched(), pool).subgoals(point_walk(steps=7), jax.random.key(0))
    np.testing.assert_allclose(subgoals, np.tile([2.9, 2.9], (8, 1)), atol=1e-6)
    few = Scorer(command.__class__(5, 1, 3, 10, "energy", 0.0, 0.1), stretched(), pool)  # one candidate: any of them
    chosen = few.subgoals(point_walk(steps=29), jax.random.key(1))
    changes = np.flatnonzero(np.any(np.diff(chosen, axis=0) != 0.0, axis=1)) + 1
    assert len(changes) and all(changes % 3 == 0)


def test_the_pool_is_of_states_that_this_policy_visits(tiny_run):
    from dcp.config import Config
    from dcp.envs.registry import make_env

    env, policy = make_env("point_u_maze"), tiny_run.policy
    config = Config(method="dcp", pool_size=64, num_candidates=8)
    scorer = make_scorer(env, policy, policy, config, seed=0, steps=20)
    assert scorer is not None and scorer.pool.shape == (64, 2)
    assert np.ptp(scorer.pool, axis=0).max() > 0.0
    cells = np.floor(scorer.pool + 0.5).astype(int)
    assert not env.spec.maze.walls[cells[:, 0], cells[:, 1]].any()
    for method in ("crl", "dcp_no_pool"):
        assert make_scorer(env, policy, policy, Config(method=method), 0, 20) is None


@pytest.mark.parametrize("direction, drawn", [("auto", True), ("off", False)])
def test_a_policy_that_sees_a_direction_gets_an_arrow_unless_told_otherwise(tiny_run, direction, drawn):
    from dcp.evaluation.targets import environment_of, open_target

    target = open_target(tiny_run.folder)
    assert sees_direction(target.policy)
    subject = make_subject(target, "dcp", environment_of(target), Shown(steps=20, direction=direction, subgoal=drawn))
    (episode,) = subject.episodes
    assert (episode.directions is not None) == (episode.subgoals is not None) == drawn
