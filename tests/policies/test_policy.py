"""The burst around policies whose actions are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dcp.actor import sample_squashed
from dcp.errors import UserError
from dcp.evaluation import rollout
from dcp.policies.wrappers import HostPolicy, PeriodicBurst, SampledPolicy, Stepper, is_random, with_burst
from dcp.runs.training import TrainedRun
from dcp.types import Array
from tests.support.toys import LineWorld
from tests.support.untrained import untrained_policy

KEY = jax.random.key(0)
MARK = 0.25  # what the policy always does: a uniform draw never gives just this


class Marked:
    def init(self, key: Array) -> Array:
        return key

    def act(self, policy_state: Array, state: Array, goal: Array) -> tuple[Array, Array]:
        return policy_state, jnp.full((*state.shape[:-1], 1), MARK)


def actions(policy, length: int, episodes: int = 3) -> np.ndarray:
    """[T, N]: a step on the line is the action."""
    x = rollout(LineWorld(edge=1e6), policy, KEY, episodes, length, watch=lambda state: state.obs[0]).watched
    return np.diff(np.asarray(x, np.float64), axis=0)


def test_the_last_steps_of_each_period_are_random():
    """P = 5, L = 2: steps 3, 4, 8, 9 of 10, counted from 0."""
    taken = actions(PeriodicBurst(Marked(), 5, 2), 10)
    random = np.abs(taken - MARK).max(axis=1) > 1e-6
    assert_array_equal(random, [0, 0, 0, 1, 1, 0, 0, 0, 1, 1])
    assert np.abs(taken).max() <= 1.0 + 1e-6


def test_a_burst_may_be_in_the_first_steps_of_each_period():
    taken = actions(PeriodicBurst(Marked(), 5, 2, first=True), 10)
    random = np.abs(taken - MARK).max(axis=1) > 1e-6
    assert_array_equal(random, [1, 1, 0, 0, 0, 1, 1, 0, 0, 0])


def test_the_papers_burst_is_the_default_in_python():
    burst = with_burst(Marked())
    assert isinstance(burst, PeriodicBurst)
    assert (burst.period, burst.length, burst.first) == (100, 10, False)


def test_random_actions_differ_between_episodes_and_steps():
    taken = actions(PeriodicBurst(Marked(), 2, 2), 4)
    assert len(np.unique(taken.round(6))) == taken.size


@given(period=st.integers(1, 60), length=st.integers(0, 60), periods=st.integers(1, 5))
def test_the_share_of_random_steps_is_exactly_length_over_period(period, length, periods):
    length = min(length, period)
    steps = np.arange(period * periods)
    assert np.sum(is_random(steps, period, length)) == length * periods


def test_random_actions_are_uniform():
    """Mean 0 and variance 1/3, over 2000 draws: within four standard errors."""
    taken = actions(PeriodicBurst(Marked(), 1, 1), 20, episodes=100)
    assert abs(taken.mean()) < 4 * np.sqrt(1 / 3 / taken.size)
    assert abs((taken**2).mean() - 1 / 3) < 4 * np.sqrt(4 / 45 / taken.size)


def test_a_burst_of_length_0_is_the_policy_itself_and_as_an_argument_does_not_change_its_actions():
    policy = Marked()
    assert with_burst(policy, 100, 0) is policy
    assert_array_equal(actions(PeriodicBurst(policy, 7, jnp.asarray(0)), 10), actions(policy, 10))


def test_the_policys_own_random_stream_goes_on_as_without_a_burst():
    class Noisy(Marked):
        def act(self, policy_state, state, goal):
            key, noise = jax.random.split(policy_state)
            return key, jax.random.uniform(noise, (*state.shape[:-1], 1))

    alone, burst = actions(Noisy(), 10), actions(PeriodicBurst(Noisy(), 5, 2), 10)
    policys = ~is_random(np.arange(10), 5, 2)
    np.testing.assert_allclose(burst[policys], alone[policys], atol=1e-5)  # differences of positions


def test_a_plain_function_can_be_interrupted_too():
    host = HostPolicy(lambda state, goal: np.full((len(state), 1), MARK))
    ours = actions(PeriodicBurst(Marked(), 5, 2), 10)
    np.testing.assert_allclose(actions(PeriodicBurst(host, 5, 2), 10), ours, atol=1e-6)


@pytest.mark.parametrize(("period", "length"), [(0, 0), (10, 11), (10, -1)])
def test_a_burst_that_cannot_be_gives_one_sentence(period: int, length: int):
    with pytest.raises(UserError, match="0 <= L <= P"):
        with_burst(Marked(), period, length)


def test_a_policy_with_a_memory_can_be_called_step_by_step(tiny_run: TrainedRun):
    """P = 4, L = 1: three actions of the policy, then a random one; a reset begins a period again."""
    policy = tiny_run.policy
    state, goal = np.float32([1.0, 1.0]), np.float32([3.0, 1.0])
    stepper = Stepper(with_burst(policy, 4, 1), seed=3)
    taken = np.array([stepper(state, goal) for _ in range(8)])
    same = np.abs(taken - policy(state, goal)).max(axis=1) < 1e-5
    assert_array_equal(same, [1, 1, 1, 0, 1, 1, 1, 0])
    assert not np.allclose(taken[3], taken[7])
    stepper(state, goal)
    stepper.reset(3)
    np.testing.assert_allclose([stepper(state, goal) for _ in range(4)], taken[:4])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_refused_and_not_acted_upon(bad: float, tiny_run: TrainedRun):
    policy, good = tiny_run.policy, np.array([4.0, 4.0])
    for state, goal, name in ((np.array([bad, 4.0]), good, "observation"), (good, np.array([[4.0, bad]]), "goal")):
        with pytest.raises(UserError, match=f"this policy's {name} has a number that is not finite"):
            policy(state, goal)
    assert np.isfinite(policy(good, good)).all()


def test_a_plain_function_is_a_policy_too():
    def mark(state, goal):
        return np.full((*state.shape[:-1], 1), MARK)

    step = Stepper(with_burst(mark, 5, 2))
    taken = [float(step([0.0], [1.0])[0]) for _ in range(10)]
    assert [a != MARK for a in taken] == [False, False, False, True, True] * 2
    assert Stepper(mark)([0.0], [1.0]) == MARK


def test_what_is_no_policy_and_a_period_that_is_not_whole_are_refused():
    with pytest.raises(UserError, match="a int does not act"):
        with_burst(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="P >= 1"):
        with_burst(Marked(), 10.5, 2)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("method", ["crl", "td3_her"])
def test_a_sampled_policy_explores_as_its_training_did(method: str):
    """CRL: tanh(mean + std * noise). TD3: tanh(mean) + 0.4 * noise, clipped; its log std was never trained."""
    policy = untrained_policy(LineWorld().spec, 0, method=method)
    state, goal = jnp.array([[0.3], [-0.2]]), jnp.array([[1.0], [2.0]])
    (_, chunk), taken = SampledPolicy(policy).act((KEY, ()), state, goal)
    mean, log_std = policy.heads(state, goal)
    noise = jax.random.normal(jax.random.split(KEY)[1], mean.shape)
    wanted = sample_squashed(mean, log_std, noise)[0] if method == "crl" else jnp.tanh(mean) + 0.4 * noise
    assert chunk == ()
    assert_array_equal(taken, jnp.clip(wanted, -1.0, 1.0))
