"""Many environments for ever, on a line where every step can be followed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.envs.base import Episodes, EpisodeState
from tests.support.toys import LineWorld

LENGTH, NUM_ENVS = 4, 3


def run(episodes: Episodes, action: list[float], steps: int) -> list[EpisodeState]:
    """Every environment repeats its own action."""
    step = jax.jit(episodes.step)
    states = [episodes.reset(jax.random.key(0))]
    for t in range(steps):
        states.append(step(states[-1], jnp.array(action)[:, None], jax.random.key(t + 1)))
    return states


def positions(states: list[EpisodeState]) -> np.ndarray:
    """[T + 1, N]"""
    return np.stack([np.asarray(state.env.obs[:, 0]) for state in states])


@pytest.fixture(scope="module")
def paper() -> list[EpisodeState]:
    return run(Episodes(LineWorld(spread=0.5), NUM_ENVS, LENGTH, "paper"), [1.0, 2.0, 3.0], 9)


@pytest.fixture(scope="module")
def fixed() -> list[EpisodeState]:
    return run(Episodes(LineWorld(spread=0.5), NUM_ENVS, LENGTH, "fixed"), [1.0, 2.0, 3.0], 9)


def test_the_time_limit_is_exact_and_episode_ids_rise_by_one(paper: list[EpisodeState]):
    assert [int(state.steps[0]) for state in paper] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert [int(state.episode_id[0]) for state in paper] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]


def test_in_paper_fidelity_an_environment_returns_to_its_own_first_state(paper: list[EpisodeState]):
    x = positions(paper)
    assert len(set(x[0])) == NUM_ENVS  # environments differ
    assert np.array_equal(x[4], x[0]) and np.array_equal(x[8], x[0])
    assert_allclose(x[1:4] - x[:1], np.outer([1, 2, 3], [1.0, 2.0, 3.0]), rtol=1e-6)
    for first, again in zip(jax.tree.leaves(paper[0].env), jax.tree.leaves(paper[8].env), strict=True):
        assert np.array_equal(first, again)


def test_in_fixed_fidelity_every_episode_draws_a_new_start_and_goal(fixed: list[EpisodeState]):
    x = positions(fixed)
    starts = np.concatenate([x[0], x[4], x[8]])
    assert len(set(starts)) == 3 * NUM_ENVS
    assert np.all(starts <= 0.5)
    assert_allclose(x[5:8] - x[4:5], np.outer([1, 2, 3], [1.0, 2.0, 3.0]), rtol=1e-5)


@pytest.mark.parametrize("fidelity", ["paper", "fixed"])
def test_an_environment_that_ends_early_starts_again_and_the_others_continue(fidelity: str):
    """The edge is at 5: steps of 3 fall off with the second step, steps of 1 never within four."""
    states = run(Episodes(LineWorld(edge=5.0), 2, LENGTH, fidelity), [1.0, 3.0], 5)
    assert_allclose(positions(states), [[0, 0], [1, 3], [2, 0], [3, 3], [0, 0], [1, 3]])
    assert np.array_equal([state.steps for state in states], [[0, 0], [1, 1], [2, 0], [3, 1], [0, 0], [1, 1]])
    assert np.array_equal([state.episode_id for state in states], [[0, 0], [0, 0], [0, 1], [0, 1], [1, 2], [1, 2]])
    assert not np.any([state.env.done for state in states])  # a new episode is not over


def test_the_first_state_is_counted_before_any_step(paper: list[EpisodeState]):
    assert np.array_equal(paper[0].steps, np.zeros(NUM_ENVS))
    assert np.array_equal(paper[0].episode_id, np.zeros(NUM_ENVS))


def test_over_seeds_a_draw_for_one_that_ends_leaves_the_other_as_it_is():
    """vmap over two: in the first an environment falls off the edge. Whether to draw stays one question for both."""
    episodes = Episodes(LineWorld(spread=0.5, edge=2.0), NUM_ENVS, LENGTH, "fixed")
    keys = jax.random.split(jax.random.key(0), 2)
    states = jax.vmap(episodes.reset)(jax.random.split(jax.random.key(1), 2))
    actions = jnp.array([[1.0, 1.0, 3.0], [1.0, 1.0, 1.0]])[..., None]  # [2, N, A]
    several, alone = jax.jit(jax.vmap(episodes.step)), jax.jit(episodes.step)
    after = several(states, actions, keys)
    for seed in range(2):
        one = jax.tree.map(lambda x, seed=seed: x[seed], (states, actions, keys, after))
        for ours, wanted in zip(jax.tree.leaves(one[3]), jax.tree.leaves(alone(*one[:3])), strict=True):
            np.testing.assert_array_equal(ours, wanted)
    assert not np.array_equal(after.first.obs[0], states.first.obs[0])
    np.testing.assert_array_equal(after.first.obs[1], states.first.obs[1])
    assert " cond[" in str(jax.make_jaxpr(several)(states, actions, keys))
