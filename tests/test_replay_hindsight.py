"""Future goals: the exact truncated geometric, within the episode, within the window."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from dcp import replay
from dcp.envs.registry import make_env
from dcp.types import Transition

SPEC = make_env("point_u_maze_inertia").spec  # S 4, G 2: the goal is only a part of the state
LENGTH, NUM_ENVS = 12, 3


def test_steps_left_counts_the_rows_that_follow_in_the_same_episode():
    """Three rows of episode 4, one of episode 5, two of episode 6."""
    left = replay.steps_left(jnp.array([4, 4, 4, 5, 6, 6]))
    assert list(np.asarray(left)) == [2, 1, 0, 0, 1, 0]


def probabilities(left: int, discount: float) -> np.ndarray:
    """Of offsets 1..left, in double precision, by the definition: proportional to discount^k."""
    weights = discount ** np.arange(1, left + 1, dtype=np.float64)
    return weights / weights.sum()


@cache
def draws(left: int, discount: float) -> np.ndarray:
    uniform = jax.random.uniform(jax.random.key(left), (60_000,))
    return np.asarray(replay.future_offsets(jnp.full((60_000,), left), uniform, discount))


@pytest.mark.parametrize(("left", "discount"), [(1, 0.99), (2, 0.99), (7, 0.99), (40, 0.99), (999, 0.99), (30, 0.8)])
def test_offsets_follow_the_exact_truncated_geometric(left: int, discount: float):
    """Chi-square over 60,000 draws; offsets are gathered from the back until each bin expects 20."""
    offsets = draws(left, discount)
    assert offsets.min() >= 1 and offsets.max() <= left
    counts = np.bincount(offsets, minlength=left + 1)[1:].astype(float)
    expected = 60_000 * probabilities(left, discount)
    keep = max(1, int(np.sum(expected >= 20.0)))
    counts, expected = (np.append(x[: keep - 1], x[keep - 1 :].sum()) for x in (counts, expected))
    assert len(counts) == 1 or chisquare(counts, expected).pvalue > 1e-3


def test_the_chi_square_would_notice_a_slightly_different_discount():
    """The test above has the power it needs: 0.98 for 0.99 is rejected at once."""
    counts = np.bincount(draws(40, 0.99), minlength=41)[1:]
    assert chisquare(counts, 60_000 * probabilities(40, 0.98)).pvalue < 1e-12


def test_the_inverse_transform_jumps_where_the_cumulative_probability_does():
    """left 2, discount 1/2: offset 1 has probability (1/2) / (1/2 + 1/4) = 2/3."""
    uniform = jnp.array([0.0, 0.66, 0.67, 0.999999])
    assert list(np.asarray(replay.future_offsets(jnp.full((4,), 2), uniform, 0.5))) == [1, 1, 2, 2]


def test_a_row_with_no_future_takes_itself():
    assert list(np.asarray(replay.future_offsets(jnp.zeros(2, jnp.int32), jnp.array([0.0, 0.999]), 0.99))) == [0, 0]


@pytest.mark.parametrize("discount", [1e-6, 0.5, 0.999999, 1 - 1e-9])
def test_offsets_stay_in_range_for_every_discount_and_the_largest_uniform(discount: float):
    """0.99999994 is the largest float32 below 1."""
    left = jnp.array([1, 5, 999])
    for uniform in (0.0, 0.5, 0.99999994):
        offsets = np.asarray(replay.future_offsets(left, jnp.full((3,), uniform), discount))
        assert np.all(offsets >= 1) and np.all(offsets <= np.asarray(left))


def test_without_discounting_to_speak_of_the_future_is_uniform():
    """discount 1 - 1e-9 is 1 in float32; the offset's mean over 1..100 must still be 50.5."""
    uniform = (jnp.arange(10_000) + 0.5) / 10_000
    offsets = replay.future_offsets(jnp.full((10_000,), 100), uniform, 1 - 1e-9)
    assert_allclose(np.mean(np.asarray(offsets)), 50.5, rtol=1e-2)


def test_a_discount_of_one_is_uniform_over_the_future():
    """left 4: each of 1, 2, 3, 4 has a quarter; left 0 takes itself."""
    uniform = jnp.array([0.0, 0.24, 0.26, 0.74, 0.76, 0.99999994])
    assert list(np.asarray(replay.future_offsets(jnp.full((6,), 4), uniform, 1.0))) == [1, 1, 2, 3, 4, 4]
    assert list(np.asarray(replay.future_offsets(jnp.zeros(6, jnp.int32), uniform, 1.0))) == [0] * 6


def windows(episode_id: np.ndarray) -> Transition:
    """Every row's achieved goal is told apart: (t, n). The rest of the state is not a goal."""
    t, n = np.meshgrid(np.arange(LENGTH), np.arange(NUM_ENVS), indexing="ij")
    state = np.stack([t, n, t + 0.5, n + 0.5], axis=-1).astype(np.float32)
    return Transition(
        jnp.array(state), jnp.array(state[..., :2] + 7.0), jnp.array(-state[..., :2]), jnp.array(episode_id)
    )


relabel = jax.jit(lambda windows, key: replay.relabel(windows, SPEC, 0.9, key, {"future_goal"}))
episode_patterns = st.lists(
    st.lists(st.booleans(), min_size=LENGTH, max_size=LENGTH), min_size=NUM_ENVS, max_size=NUM_ENVS
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(episode_patterns, st.integers(0, 2**31 - 1))
def test_a_future_goal_never_crosses_an_episode_nor_the_window(ends: list[list[bool]], seed: int):
    episode_id = np.cumsum(np.array(ends), axis=1).T.astype(np.int32)  # [T, N]
    batch = relabel(windows(episode_id), jax.random.key(seed))
    t, n = (np.asarray(batch.state[:, i]).astype(int) for i in (0, 1))
    future_t, future_n = (np.asarray(batch.future_goal[:, i]).astype(int) for i in (0, 1))
    assert np.array_equal(n, future_n)  # the same environment
    assert np.all(future_t < LENGTH)
    assert np.array_equal(episode_id[t, n], episode_id[future_t, n])  # the same episode
    has_future = episode_id[t, n] == episode_id[t + 1, n]
    assert np.all(future_t[has_future] > t[has_future])
    assert np.array_equal(future_t[~has_future], t[~has_future])  # itself


def test_every_row_but_the_last_becomes_one_pair_with_its_own_fields():
    batch = relabel(windows(np.zeros((LENGTH, NUM_ENVS), np.int32)), jax.random.key(0))
    pairs = {tuple(row) for row in np.asarray(batch.state[:, :2]).astype(int)}
    assert batch.state.shape == (NUM_ENVS * (LENGTH - 1), 4)
    assert pairs == {(t, n) for t in range(LENGTH - 1) for n in range(NUM_ENVS)}
    assert np.array_equal(batch.action, np.asarray(batch.state[:, :2]) + 7.0)
    assert np.array_equal(batch.commanded_goal, -np.asarray(batch.state[:, :2]))


def test_the_shuffled_batches_hold_every_pair_exactly_once():
    order = np.asarray(replay.shuffled_batches(60, 12, jax.random.key(3)))
    assert order.shape == (5, 12)
    assert sorted(order.ravel()) == list(range(60))
    assert not np.array_equal(order.ravel(), np.arange(60))


def test_only_what_is_needed_is_filled_in():
    made = windows(np.zeros((LENGTH, NUM_ENVS), np.int32))
    assert replay.relabel(made, SPEC, 0.9, jax.random.key(0), ()).future_goal is None
    batch = replay.relabel(made, SPEC, 0.9, jax.random.key(0), {"future_goal", "future_steps", "next_state"})
    assert batch.future_goal is not None and batch.future_steps is not None and batch.next_state is not None
    assert batch.future_steps.shape == ((LENGTH - 1) * NUM_ENVS,) and int(batch.future_steps.min()) >= 1
    one_on = np.asarray(made.state)[1:].reshape(batch.next_state.shape)  # one episode: each row's next one
    assert np.array_equal(batch.next_state, one_on)


def test_the_next_state_of_an_episodes_last_row_is_itself():
    episode_id = np.zeros((LENGTH, NUM_ENVS), np.int32)
    episode_id[2:] = 1  # rows 0 and 1 are one episode
    made = windows(episode_id)
    batch = replay.relabel(made, SPEC, 0.9, jax.random.key(0), {"next_state"})
    assert batch.next_state is not None
    state = np.asarray(made.state)
    found = np.asarray(batch.next_state).reshape(LENGTH - 1, NUM_ENVS, -1)
    assert (
        np.array_equal(found[0], state[1]) and np.array_equal(found[1], state[1]) and np.array_equal(found[2], state[3])
    )


def test_pairs_that_fill_no_whole_batch_are_left_out():
    order = np.asarray(replay.shuffled_batches(64, 12, jax.random.key(3)))
    assert order.shape == (5, 12)
    assert len(set(order.ravel())) == 60 and order.max() <= 63
