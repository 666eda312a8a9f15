"""Interventions around an agent whose psi is the plane itself, so that stalls can be counted by hand."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dcp.errors import UserError
from dcp.evaluation import rollout
from dcp.policies.interventions import StalledBurst, with_intervention
from dcp.policies.wrappers import HostPolicy, PeriodicBurst, SampledPolicy, Stepper
from tests.support.agents import OPEN, known_agent
from tests.support.untrained import untrained_policy

KEY = jax.random.key(3)
GOAL = np.float32([[0.0, 0.0]])


def actions(policy: Any, distances: Sequence[float]) -> np.ndarray:
    """[T, 2]: what it does at these distances to the goal, on a line."""
    state, taken = policy.init(KEY), []
    for distance in distances:
        state, action = policy.act(state, jnp.float32([[distance, 0.0]]), GOAL)
        taken.append(action[0])
    return np.array(taken)


def random_steps(policy: Any, distances: Sequence[float]) -> list[int]:
    """The steps at which it does something else than the agent, which goes straight to the goal: (-tanh 2, 0)."""
    straight = np.array([-np.tanh(2.0), 0.0])
    return np.flatnonzero(np.abs(actions(policy, distances) - straight).max(axis=1) > 1e-4).tolist()


def test_a_burst_begins_when_no_distance_was_new_for_the_patience_and_the_count_starts_after_it():
    """4 and 3 are new. Steps 2, 3 and 4 are the third without a new one: random at 4 and 5. Step 6 is where the next
    count starts, 7, 8 and 9 bring nothing: random at 9 and 10."""
    policy = with_intervention(known_agent(), "stalled_burst", 3, 2)
    assert random_steps(policy, [4.0] + [3.0] * 11) == [4, 5, 9, 10]


def test_a_new_least_distance_starts_the_count_again():
    """Step 4 would begin a burst, but 2.0 is new; then 5, 6 and 7 bring nothing."""
    policy = with_intervention(known_agent(), "stalled_burst", 3, 2)
    assert random_steps(policy, [4.0, 3.0, 3.0, 3.0, 2.0, 2.5, 2.5, 2.5, 2.5]) == [7, 8]


@pytest.mark.parametrize(("shrinks", "stalls"), [(0.98, False), (0.999, True)])
def test_progress_of_less_than_a_hundredth_in_all_is_none(shrinks: float, stalls: bool):
    """0.98 a step is new at each; 0.999 falls by 1% only at the eleventh step, and the patience is 5."""
    policy = with_intervention(known_agent(), "stalled_burst", 5, 1)
    assert bool(random_steps(policy, [4.0 * shrinks**step for step in range(10)])) == stalls


def test_where_progress_never_comes_it_is_the_periodic_burst_bit_for_bit():
    agent = known_agent()
    ours = actions(with_intervention(agent, "stalled_burst", 5, 2), [3.0] * 20)
    assert_array_equal(ours, actions(PeriodicBurst(agent, 7, 2), [3.0] * 20))


def test_at_the_goal_there_is_no_stall_and_an_intervention_ends():
    """The threshold is below 0.6. The burst of steps 3 to 7 ends at step 5, which is at the goal."""
    policy = with_intervention(known_agent(), "stalled_burst", 3, 5)
    assert OPEN.spec.threshold < 0.6
    assert random_steps(policy, [0.6 * OPEN.spec.threshold] * 12) == []
    assert random_steps(policy, [3.0] * 5 + [0.1] + [3.0] * 2) == [3, 4]


@pytest.mark.parametrize("name", ["stalled_burst", "untried", "reaim"])
@pytest.mark.parametrize("stochastic", [False, True])
def test_without_a_stall_the_policy_acts_bit_for_bit_as_if_alone(name: str, stochastic: bool):
    agent = untrained_policy(OPEN.spec, 1, method="dcp", width=8, depth=1, repr_dim=4)
    policy = SampledPolicy(agent) if stochastic else agent
    patient = with_intervention(policy, name, 10_000, 5, np.ones((3, 2)))
    alone, around = (rollout(OPEN, p, KEY, 4, 30, watch=lambda state: state.obs).watched for p in (policy, patient))
    assert_array_equal(alone, around)


def test_episodes_stall_one_by_one():
    """The first comes nearer all the time, the second stands still."""
    policy = with_intervention(known_agent(), "stalled_burst", 2, 1)
    state, random = policy.init(KEY), []
    for step in range(4):
        seen = jnp.float32([[4.0 - 0.5 * step, 0.0], [4.0, 0.0]])
        state, action = policy.act(state, seen, jnp.zeros((2, 2)))
        random.append(np.abs(np.asarray(action) - [-np.tanh(2.0), 0.0]).max(axis=1) > 1e-4)
    assert_array_equal(random, [[0, 0], [0, 0], [0, 1], [0, 0]])


def test_untried_actions_point_away_from_the_policys_own_mean():
    """Every action is a = (-tanh 2, 0). With a patience of 4 the mean is a/4, then a/4 + (3/4) a/4 = 7a/16."""
    agent = known_agent()
    policy = with_intervention(agent, "untried", 4, 20)
    state = policy.init(KEY)
    for share in (1 / 4, 7 / 16):
        state, action = policy.act(state, jnp.float32([[3.0, 0.0]]), GOAL)
        assert_allclose(state.memory, share * np.asarray(action), atol=1e-6)
    taken, usual = (
        actions(with_intervention(agent, name, 4, 20), [3.0] * 24)[4:] for name in ("untried", "stalled_burst")
    )
    assert np.all(taken[:, 0] >= 0.0) and np.any(usual[:, 0] < 0.0)
    turned = usual[:, :1] < 0.0
    assert_array_equal(taken, np.where(turned, -usual, usual))


def test_a_stalled_policy_aims_at_the_visited_state_and_then_at_the_goal_again():
    """s = (3, 0), g = (0, 0). A = (3, 2) is nearer to s than B = (0, -4) and nearer to g: |A| = 3.6, so A is chosen,
    straight up. At A, from step 4 on, the goal is commanded again, down and to the left."""
    pool = np.float32([[3.0, 2.0], [0.0, -4.0]])
    policy = with_intervention(known_agent(), "reaim", 2, 10, pool)
    state, taken = policy.init(KEY), []
    for y in (0.0, 0.0, 0.0, 1.0, 2.0):
        state, action = policy.act(state, jnp.float32([[3.0, y]]), GOAL)
        taken.append(np.asarray(action[0]))
    assert_array_equal(state.memory, pool[:1])
    up, left = [0.0, np.tanh(2.0)], [-np.tanh(2.0), 0.0]
    assert_allclose(taken[:4], [left, left, up, up], atol=1e-3)
    assert_allclose(taken[4], np.tanh(2.0 * np.array([-3.0, -2.0]) / np.sqrt(13.0)), atol=1e-3)


def test_it_aims_for_no_longer_than_its_length():
    policy = with_intervention(known_agent(), "reaim", 2, 3, np.float32([[3.0, 2.0]]))
    assert random_steps(policy, [3.0] * 12) == [2, 3, 4, 7, 8, 9]


def test_only_states_of_the_pool_are_aimed_at():
    pool = np.random.default_rng(0).uniform(1.0, 4.0, (40, 2)).astype(np.float32)
    policy = with_intervention(known_agent(), "reaim", 1, 1, pool)
    state, seen = policy.init(KEY), np.random.default_rng(1).uniform(1.0, 4.0, (64, 2)).astype(np.float32)
    for _ in range(3):
        state, _ = policy.act(state, jnp.asarray(seen), jnp.full((64, 2), 9.0))
    members = (np.asarray(state.memory)[:, None] == pool[None]).all(axis=-1).any(axis=-1)
    assert members.all() and len(np.unique(state.memory, axis=0)) > 3


def test_it_can_be_called_step_by_step_and_reset():
    step = Stepper(with_intervention(known_agent(), "stalled_burst", 3, 2))
    taken = np.array([step([3.0, 0.0], [0.0, 0.0]) for _ in range(5)])
    step.reset()
    assert_array_equal([step([3.0, 0.0], [0.0, 0.0]) for _ in range(5)], taken)
    assert_allclose(taken[:3], np.tile([-np.tanh(2.0), 0.0], (3, 1)), atol=1e-4)


def test_by_default_a_burst_acts_at_most_as_often_as_the_papers():
    agent = known_agent()
    burst, aim = with_intervention(agent, "untried"), with_intervention(agent, "reaim", pool=np.ones((1, 2)))
    assert isinstance(burst, StalledBurst) and (burst.patience, burst.length, burst.untried) == (90, 10, True)
    assert (aim.patience, aim.length) == (90, 100)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((known_agent(), "dance"), "no intervention 'dance'"),
        ((known_agent(), "untried", 0, 5), "W >= 1 and L >= 1"),
        ((known_agent(), "untried", 5, 2.5), "W >= 1 and L >= 1"),
        ((known_agent(), "reaim"), "needs a pool"),
        ((HostPolicy(lambda state, goal: goal), "untried"), "has a psi"),
        ((PeriodicBurst(known_agent()), "untried"), "has a psi"),
        ((untrained_policy(OPEN.spec, method="sac_her", width=8, depth=1), "stalled_burst"), "has a psi"),
    ],
    ids=["name", "patience", "length", "pool", "function", "burst", "no psi"],
)
def test_a_mistake_is_one_sentence(arguments: tuple[Any, ...], words: str):
    with pytest.raises(UserError, match=words):
        with_intervention(*arguments)
