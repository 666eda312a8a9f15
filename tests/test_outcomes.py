"""What became of a goal: hit times, occupancy, falls, HER's goals and rewards, chunks; against plain loops."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp import outcomes, replay
from dcp.interfaces import Hindsight
from dcp.types import EnvSpec, Transition

LINE = EnvSpec("line", state_size=2, goal_size=1, action_size=1, goal_dims=(1,), threshold=0.5, episode_length=6)
LENGTH, NUM_ENVS = 14, 3
BINS = (0, 1, 2, 4, 9)


def windows(seed: int = 0) -> Transition:
    """Episodes of random lengths, a body that walks at random, and falls at half of the ends."""
    random = np.random.default_rng(seed)
    ends = random.random((LENGTH, NUM_ENVS)) < 0.12
    fell = ends & (random.random((LENGTH, NUM_ENVS)) < 0.5)
    episode_id = np.concatenate([np.zeros((1, NUM_ENVS)), np.cumsum(ends, axis=0)[:-1]]).astype(np.int32)
    place = np.cumsum(random.choice([-0.45, 0.35, 0.75], (LENGTH, NUM_ENVS)), axis=0)
    state = np.stack([np.full_like(place, 9.0), place], axis=-1)
    arrays = state, random.normal(size=(LENGTH, NUM_ENVS, 1)), random.normal(size=(LENGTH, NUM_ENVS, 1))
    return Transition(*(jnp.array(x, jnp.float32) for x in arrays), jnp.array(episode_id), jnp.array(fell))


def last_row(made: Transition, t: int, n: int) -> int:
    """Of the row's own episode, within the window."""
    while t + 1 < LENGTH and int(made.episode_id[t + 1, n]) == int(made.episode_id[t, n]):
        t += 1
    return t


def left_of(made: Transition) -> jax.Array:
    return jax.vmap(replay.steps_left, in_axes=1, out_axes=1)(made.episode_id)


@pytest.mark.parametrize("goal_steps", [1, 3])
def test_hit_times_and_occupancy_are_those_of_a_plain_loop(goal_steps: int):
    rule = Hindsight(current_share=0.2, random_share=0.4, goal_steps=goal_steps, bins=BINS)
    for seed in range(2):
        made = windows(seed)
        left = left_of(made)
        drawn = replay.draw_goals(made, left, LINE, rule, 0.9, jax.random.key(seed))
        found = jax.device_get(outcomes.outcomes(made, left, LINE, rule, drawn.sequence))
        place, goals, fell = np.asarray(made.state[..., 1]), np.asarray(drawn.sequence[..., 0]), np.asarray(made.fell)
        assert 0.2 < found.hit.mean() < 1.0 and found.hit_time.max() > 1
        for t in range(LENGTH):
            for n in range(NUM_ENVS):
                end = last_row(made, t, n)
                apart = [
                    [abs(place[min(j + i, end), n] - goals[t, n, i]) for i in range(goal_steps)]
                    for j in range(t, end + 1)
                ]
                near = [t + k for k, distances in enumerate(apart) if max(distances) <= 0.5]
                assert bool(found.hit[t, n]) is bool(near)
                assert found.hit_time[t, n] == (near[0] - t if near else 0)
                for k, (low, high) in enumerate(itertools.pairwise(BINS)):
                    offsets = [o for o in range(max(low, 1), high) if t + o <= end or fell[end, n]]
                    within = [place[t + o, n] - goals[t, n, 0] if t + o <= end else np.inf for o in offsets]
                    wanted = [np.mean([abs(x) <= 0.5 / 2**i for i in range(3)]) for x in within]
                    assert bool(found.occupancy_seen[t, n, k]) is bool(offsets)
                    if offsets:
                        assert_allclose(found.occupancy[t, n, k], np.mean(wanted), atol=1e-6)


def test_the_shares_of_current_and_random_goals_are_as_asked():
    made = windows()._replace(episode_id=jnp.zeros((LENGTH, NUM_ENVS), jnp.int32))
    many = jax.tree.map(lambda x: jnp.tile(x, (1, 400, *[1] * (x.ndim - 2))), made)
    rule = Hindsight(current_share=0.05, random_share=0.1)
    drawn = replay.draw_goals(many, left_of(many), LINE, rule, 0.9, jax.random.key(0))
    future = np.asarray(drawn.steps[:-1]) > 0  # the last row has no future
    assert abs(future.mean() - 0.85) < 0.01
    same = np.asarray(drawn.goal[:-1, :, 0] == many.state[:-1, :, 1])
    place = np.asarray(made.state[..., 1])
    there = np.mean(place[:-1, None] == place[None])  # random ones that happen to be there: 1 / 14 without a return
    assert there >= 1 / LENGTH
    assert abs(same[~future].mean() - (0.05 + 0.1 * there) / 0.15) < 0.03  # three standard errors of 2,340 rows


def test_her_takes_the_last_goal_where_the_time_limit_lies_in_the_window_and_the_commanded_one_elsewhere():
    """Rows 0 to 3 end by the time limit, 4 and 5 in a fall, and 6 to 8 with the window."""
    place = jnp.arange(9.0).reshape(9, 1, 1)
    made = Transition(
        jnp.concatenate([place, place], -1), place, -place, jnp.array([0] * 4 + [1] * 2 + [2] * 3)[:, None],
        jnp.array([False] * 5 + [True] + [False] * 3)[:, None],
    )  # fmt: skip
    needs = {"future_goal", "reward", "next_state", "has_next", "terminal"}
    batch = replay.relabel(made, LINE, 0.9, jax.random.key(0), needs, Hindsight(draws="final"))
    assert batch.future_goal is not None and batch.next_state is not None
    assert np.array_equal(batch.future_goal[:, 0], [3, 3, 3, 3, -4, -5, -6, -7])
    assert np.array_equal(batch.reward, [0, 0, 1, 1, 0, 0, 0, 0])  # row 2 leads to 3; row 3 does not know, and is there
    assert np.array_equal(batch.next_state[:, 1], [1, 2, 3, 3, 5, 5, 7, 8])
    assert np.array_equal(batch.has_next, [1, 1, 1, 0, 1, 0, 1, 1])  # neither a time limit nor a fall has one
    assert np.array_equal(batch.terminal, [0, 0, 0, 0, 0, 1, 0, 0])


def test_a_chunk_is_the_actions_from_its_row_on_and_counts_where_it_stays_in_the_episode():
    place = jnp.arange(6.0).reshape(6, 1, 1)
    made = Transition(jnp.concatenate([place, place], -1), place, place, jnp.array([0, 0, 0, 1, 1, 1])[:, None],
                      jnp.zeros((6, 1), bool))  # fmt: skip
    needs = {"next_state", "has_next", "reward", "future_goal"}
    batch = replay.relabel(made, LINE, 0.5, jax.random.key(0), needs, Hindsight(draws="final"), chunk=2)
    assert batch.next_state is not None
    assert np.array_equal(batch.action, [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]])
    assert np.array_equal(batch.valid, [1, 1, 0, 1, 1])  # row 2 is the first episode's last
    assert np.array_equal(batch.next_state[:, 1], [2, 2, 2, 5, 5])
    assert np.array_equal(batch.has_next, [1, 0, 0, 1, 0])
    # Goal 2 for the first episode. Row 0: 1 is not near 2, then 2 is: 0 + 0.5. Row 1: at 2 from the first step on.
    assert_allclose(np.asarray(batch.reward)[:2], [0.5, 1.5])


@pytest.mark.parametrize(("chunk", "has_next", "terminal"), [(1, [1, 1, 0], [0, 0, 1]), (2, [1, 0, 0], [0, 1, 0])])
def test_a_row_that_ends_in_a_fall_has_no_next_state(chunk: int, has_next: list[int], terminal: list[int]):
    """Places 0, 1, 2 and a fall there; a chunk of two from row 1 falls too, and the one from row 2 is cut."""
    place = jnp.array([0.0, 1.0, 2.0, 7.0]).reshape(4, 1, 1)
    made = Transition(jnp.concatenate([place, place], -1), place, place, jnp.array([0, 0, 0, 1])[:, None],
                      jnp.array([False, False, True, False])[:, None])  # fmt: skip
    batch = replay.relabel(made, LINE, 0.9, jax.random.key(0), {"has_next", "terminal"}, chunk=chunk)
    assert np.array_equal(batch.has_next, has_next) and np.array_equal(batch.terminal, terminal)


def test_a_row_falls_where_its_episode_ends_in_a_fall_inside_the_window():
    made = windows(3)
    batch = replay.relabel(made, LINE, 0.9, jax.random.key(0), {"falls"})
    wanted = [[bool(made.fell[last_row(made, t, n), n]) for n in range(NUM_ENVS)] for t in range(LENGTH - 1)]
    assert np.array_equal(batch.falls, np.array(wanted).ravel())
    assert 0 < np.sum(wanted) < np.size(wanted)
