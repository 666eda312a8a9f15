"""The ring against a Python list, and the windows that are read from it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from dcp import replay
from dcp.errors import UserError
from dcp.types import Transition

NUM_ENVS, CAPACITY = 3, 7
MOST = 5  # rows of one insertion, at most: shapes are few, so that compilations are


def rows(first: int, count: int) -> Transition:
    """Row t of environment n is told by its state: (t, n)."""
    t, n = np.meshgrid(np.arange(first, first + count), np.arange(NUM_ENVS), indexing="ij")
    state = np.stack([t, n], axis=-1).astype(np.float32)  # [T, N, 2]
    return Transition(jnp.array(state), jnp.array(-state), jnp.array(10 * state), jnp.array(100 * t + n))


def empty() -> replay.ReplayState:
    return replay.init_replay(jax.tree.map(lambda x: x[0], rows(0, 1)), CAPACITY)


insert = jax.jit(replay.insert)
sample = jax.jit(replay.sample_windows, static_argnums=1)


def stored(ring: replay.ReplayState) -> list[int]:
    """The times of the stored rows, the oldest first."""
    at = (int(ring.head) - int(ring.size) + np.arange(int(ring.size))) % CAPACITY
    return [int(t) for t in np.asarray(ring.rows.state)[at, 0, 0]]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, MOST), max_size=8))
def test_the_ring_keeps_the_newest_rows_in_order_when_it_wraps(counts: list[int]):
    ring, model, time = empty(), [], 0
    for count in counts:
        ring = insert(ring, rows(time, count))
        model = (model + list(range(time, time + count)))[-CAPACITY:]
        time += count
        assert int(ring.size) == len(model)
        assert stored(ring) == model


def filled(count: int) -> replay.ReplayState:
    ring, first = empty(), 0
    while first < count:
        ring, first = insert(ring, rows(first, 1)), first + 1
    return ring


@pytest.mark.parametrize("count", [4, 7, 9, 13])
def test_windows_are_consecutive_rows_of_one_environment_with_all_fields_together(count: int):
    ring = filled(count)
    for seed in range(10):
        window = sample(ring, 4, jax.random.key(seed))
        t, n = np.asarray(window.state[..., 0]), np.asarray(window.state[..., 1])
        assert np.array_equal(n, np.tile(np.arange(NUM_ENVS), (4, 1)))
        assert np.array_equal(np.diff(t, axis=0), np.ones((3, NUM_ENVS)))
        assert t.min() >= max(0, count - CAPACITY) and t.max() <= count - 1
        assert np.array_equal(window.action, -np.asarray(window.state))
        assert np.array_equal(window.commanded_goal, 10 * np.asarray(window.state))
        assert np.array_equal(window.episode_id, 100 * t + n)


def test_starts_are_uniform_over_what_is_stored_and_drawn_for_each_environment():
    """Nine rows went into a ring of seven: windows of 4 start at rows 2, 3, 4, 5, each with probability 1/4."""
    ring = filled(9)
    keys = jax.random.split(jax.random.key(1), 2000)
    windows = jax.jit(jax.vmap(lambda key: replay.sample_windows(ring, 4, key).state[0, :, 0]))(keys)
    starts = np.asarray(windows)  # [2000, N]
    for environment in range(NUM_ENVS):
        values, counts = np.unique(starts[:, environment], return_counts=True)
        assert list(values) == [2, 3, 4, 5]
        assert chisquare(counts).pvalue > 1e-3
    together = np.mean(starts[:, 0] == starts[:, 1])
    assert abs(together - 1 / 4) < 0.04  # independent draws agree one time in four


def test_a_full_ring_has_room_for_only_one_window_of_its_own_length():
    for seed in range(5):
        window = sample(filled(10), CAPACITY, jax.random.key(seed))
        assert np.array_equal(window.state[:, 0, 0], np.arange(3, 10))


def test_any_pytree_is_a_row():
    """A user's own: a dictionary with a tuple inside, and no episodes."""
    ring = replay.init_replay({"x": jnp.zeros((2, 3)), "y": (jnp.zeros(2, jnp.int32),)}, capacity=4)
    for step in range(5):
        row = {"x": jnp.full((1, 2, 3), step, jnp.float32), "y": (jnp.full((1, 2), step, jnp.int32),)}
        ring = replay.insert(ring, row)
    window = replay.sample_windows(ring, 4, jax.random.key(0))
    assert np.array_equal(window["y"][0][:, 0], [1, 2, 3, 4])  # the oldest was overwritten
    assert np.array_equal(window["x"][:, 1, 2], [1.0, 2.0, 3.0, 4.0])


def test_asking_for_more_rows_than_are_stored_is_an_error():
    ring = replay.insert(empty(), rows(0, 3))
    with pytest.raises(UserError, match="a window of 4 rows was asked for, but the replay has 3: insert"):
        replay.sample_windows(ring, 4, jax.random.key(0))
    with pytest.raises(UserError, match=f"{CAPACITY + 1} rows was asked for, but the replay has {CAPACITY}"):
        sample(ring, CAPACITY + 1, jax.random.key(0))  # jitted: the capacity is known there
    with pytest.raises(UserError, match="do not fit into a replay of"):
        replay.insert(empty(), rows(0, CAPACITY + 1))
