"""AntSoccer: the peer's recorded steps, its resets, and where its ball lies in both fidelities."""

import jax
import numpy as np
import pytest

from dcp.envs import ant
from dcp.envs.registry import make_env
from tests.envs.golden import check, load, replay


@pytest.fixture(scope="module")
def replayed():
    env = make_env("ant_soccer")
    return jax.jit(lambda q, qd, actions: replay(env, q, qd, actions))


@pytest.mark.slow
@pytest.mark.parametrize("start", ["", "_contact", "_edge"])
def test_steps_follow_the_peers_recording(replayed, start: str):
    golden = load("ant_soccer" + start)
    with jax.numpy_rank_promotion("allow"):
        ours = replayed(golden["q0"], golden["qd0"], golden["actions"])
    check(make_env("ant_soccer").spec, golden, ours, 20, ant.HEALTHY_Z)


def draws(fidelity: str) -> tuple[np.ndarray, np.ndarray]:
    env = make_env("ant_soccer", fidelity)
    return jax.tree.map(np.asarray, jax.vmap(env.draw)(jax.random.split(jax.random.key(0), 4000)))


def test_sizes_are_those_of_the_table():
    spec = make_env("ant_soccer").spec
    assert (spec.state_size, spec.goal_size, spec.action_size, spec.goal_dims) == (31, 2, 8, (29, 30))


@pytest.mark.parametrize("fidelity", ["paper", "fixed"])
def test_a_target_is_five_metres_away_in_any_direction(fidelity: str):
    q, qd = draws(fidelity)
    target = q[:, 17:]
    np.testing.assert_allclose(np.linalg.norm(target, axis=1), 5.0, rtol=1e-5)
    assert np.abs(target.mean(0)).max() < 0.2
    assert not qd[:, 14:].any() and np.abs(q[:, :2]).max() <= 0.1


def test_oddity_2_the_balls_y_follows_from_the_target_in_paper_fidelity_alone():
    """Offset (cos b, sin a): with target 5 (cos a, sin a) the ball's y is 0.2 * 5 sin a + sin a = 2 sin a."""
    q, _ = draws("paper")
    ball, target = q[:, 15:17], q[:, 17:]
    np.testing.assert_allclose(ball[:, 1], 2.0 * target[:, 1] / 5.0, atol=1e-5)

    q, _ = draws("fixed")
    offset = q[:, 15:17] - 0.2 * q[:, 17:]
    np.testing.assert_allclose(np.linalg.norm(offset, axis=1), 1.0, atol=1e-5)
    assert abs(np.corrcoef(offset[:, 1], q[:, 18])[0, 1]) < 0.06
