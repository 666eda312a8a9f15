"""Evaluation on a line where the answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.envs.base import Environment
from dcp.errors import UserError
from dcp.evaluation import measure, rollout, training_scores
from dcp.policies.policy import Policy
from dcp.policies.wrappers import HostPolicy
from dcp.types import Array
from tests.support.toys import BrittleLine, LineWorld

KEY = jax.random.key(0)


class Constant:
    """A policy that always takes the same step."""

    def __init__(self, step: float):
        self.step = step

    def init(self, key: Array) -> tuple[()]:
        return ()

    def act(self, policy_state: tuple[()], state: Array, goal: Array) -> tuple[tuple[()], Array]:
        return (), jnp.full((*state.shape[:-1], 1), self.step)


class Counting(Constant):
    """A policy with a memory: its k-th step is k."""

    def init(self, key: Array) -> Array:
        return jnp.zeros(())

    def act(self, policy_state: Array, state: Array, goal: Array) -> tuple[Array, Array]:
        count = policy_state + 1.0
        return count, jnp.broadcast_to(count, (*state.shape[:-1], 1))


def evaluate(env: Environment, policy: Policy, key: Array, episodes: int, length: int) -> dict[str, float]:
    return training_scores(measure(rollout(env, policy, key, episodes, length)))


def positions(env: Environment, policy: Policy, episodes: int, length: int) -> np.ndarray:
    """[T + 1, N]"""
    return np.asarray(rollout(env, policy, KEY, episodes, length, watch=lambda state: state.obs[0]).watched)


def check(env: LineWorld, policy: Constant, length: int, time_near: float, success: float, final: float) -> None:
    scores = evaluate(env, policy, KEY, 2, length)
    assert set(scores) == {"time_near_goal", "success_once", "final_distance", "eval_diverged_episodes"}
    assert_allclose(scores["time_near_goal"], time_near, atol=1e-6)
    assert_allclose(scores["success_once"], success, atol=1e-6)
    assert_allclose(scores["final_distance"], final, atol=1e-6)


def test_time_near_goal_counts_the_steps_within_the_threshold():
    """Steps of 0.2 from 0, goal 1, threshold 0.5: near at 0.6, 0.8, 1.0, 1.2, 1.4 of 0.2 ... 1.6; ends 0.6 beyond."""
    check(LineWorld(goal=1.0), Constant(0.2), 8, 5.0, 1.0, 0.6)


def test_an_episode_that_passes_by_without_being_near_is_no_success():
    """Positions 2, 4, 6: never within 0.5 of 3."""
    check(LineWorld(goal=3.0), Constant(2.0), 3, 0.0, 0.0, 3.0)


def test_the_first_state_is_not_a_step():
    """Starts at the goal and leaves at once: near before any step, which is not counted."""
    check(LineWorld(goal=0.0), Constant(1.0), 3, 0.0, 0.0, 3.0)


def test_an_episode_that_ends_early_adds_nothing_after_its_end():
    """Edge 1.5, goal 3: positions 1, 2 (falls off), then 3 would be the goal. Ends 1 away from it."""
    check(LineWorld(goal=3.0, edge=1.5), Constant(1.0), 6, 0.0, 0.0, 1.0)


def test_the_step_that_ends_an_episode_still_counts():
    """Edge 2.9: the step to 3 reaches the goal and ends the episode; one near step, final distance 0."""
    check(LineWorld(goal=3.0, edge=2.9), Constant(1.0), 6, 1.0, 1.0, 0.0)


def test_scores_are_means_over_episodes_each_with_its_own_start():
    """Starts spread over [0, 4), goal 3, standing still: an episode succeeds if it starts within (2.5, 3.5)."""
    env, episodes = LineWorld(goal=3.0, spread=4.0), 64
    record = rollout(env, Constant(0.0), KEY, episodes, 5)
    gap = np.abs(np.asarray(record.start)[:, 0] - 3.0)
    assert 0 < np.mean(gap < 0.5) < 1
    assert np.all(record.alive)
    assert_allclose(record.distance, np.tile(gap, (6, 1)), rtol=1e-6)
    scores = evaluate(env, Constant(0.0), KEY, episodes, 5)
    assert_allclose(scores["success_once"], np.mean(gap < 0.5), rtol=1e-6)
    assert_allclose(scores["time_near_goal"], 5 * np.mean(gap < 0.5), rtol=1e-6)
    assert_allclose(scores["final_distance"], np.mean(gap), rtol=1e-5)


def test_a_policys_chance_is_apart_from_that_of_the_starts():
    keys = []

    class Keeping(Constant):
        on_host = True

        def init(self, key: Array) -> tuple[()]:
            keys.append(jax.random.key_data(key))
            return ()

    rollout(LineWorld(), Keeping(0.0), KEY, 2, 1)
    for starts in (KEY, jax.random.split(KEY)[0]):
        assert not np.array_equal(keys[0], jax.random.key_data(starts))


def test_a_policys_memory_is_carried_from_step_to_step():
    """1 + 2 + 3 = 6"""
    assert_allclose(positions(LineWorld(), Counting(0.0), 2, 3)[:, 0], [0.0, 1.0, 3.0, 6.0])


@pytest.mark.parametrize("into", [float("nan"), float("inf"), 1e6])
def test_an_episode_that_diverges_ends_at_its_last_sound_state(into: float):
    """Steps of 1 from 0, goal 2, past 2.5 everything breaks: 1, 2 (near), then nothing; 0 away from the goal."""
    env = BrittleLine(into, goal=2.0)
    scores = evaluate(env, Constant(1.0), KEY, 3, 6)
    assert_allclose([scores["time_near_goal"], scores["success_once"], scores["final_distance"]], [1.0, 1.0, 0.0])
    assert int(scores["eval_diverged_episodes"]) == 3  # once each
    assert_allclose(positions(env, Constant(1.0), 3, 6)[:, 0], [0, 1, 2, 2, 2, 2, 2])
    alive = rollout(env, Constant(1.0), KEY, 3, 6).alive
    assert np.array_equal(alive[:, 0], [True, True, False, False, False, False])


def test_what_never_diverges_is_not_counted():
    assert int(evaluate(BrittleLine(limit=9.0), Constant(1.0), KEY, 3, 6)["eval_diverged_episodes"]) == 0


def test_a_step_that_diverges_is_never_near_the_goal():
    """The first step reaches the goal at 1, with an infinite velocity."""
    scores = evaluate(BrittleLine(float("inf"), "qd", limit=0.5, goal=1.0), Constant(1.0), KEY, 2, 3)
    assert float(scores["success_once"]) == 0.0


def test_the_share_of_saturated_actions_is_kept_at_every_step():
    """|a| > 0.95: steps of 1 and of -1 are, steps of 0.95 are not."""
    for step, share in ((1.0, 1.0), (-1.0, 1.0), (0.95, 0.0)):
        assert_allclose(rollout(LineWorld(), Constant(step), KEY, 2, 3).saturated, np.full((3, 2), share))


def test_a_plain_function_is_measured_by_the_same_steps():
    """Half of the way to the goal at each step, on the host and compiled."""
    env = LineWorld(goal=3.0, spread=4.0)

    class Half(Constant):
        def act(self, policy_state: tuple[()], state: Array, goal: Array) -> tuple[tuple[()], Array]:
            return (), 0.5 * (goal - state[..., :1])

    ours = rollout(env, Half(0.0), KEY, 8, 5, watch=lambda state: state.obs)
    theirs = rollout(
        env, HostPolicy(lambda state, goal: 0.5 * (goal - state[:, :1])), KEY, 8, 5, watch=lambda state: state.obs
    )
    for name in ours._fields:
        assert_allclose(getattr(theirs, name), getattr(ours, name), rtol=1e-6, err_msg=name)


def test_a_python_function_is_reset_when_episodes_begin():
    begun = []
    policy = HostPolicy(lambda state, goal: np.zeros((len(state), 1)), lambda: begun.append(1))
    rollout(LineWorld(), policy, KEY, 2, 3)
    assert begun == [1]


def test_actions_of_another_size_are_refused_and_not_spread_out():
    """One number for two would be broadcast: here two for one, by a function and by a policy of JAX."""

    class Two:
        def init(self, key: Array) -> tuple[()]:
            return ()

        def act(self, policy_state, state: Array, goal: Array):
            return (), jnp.zeros((*state.shape[:-1], 2))

    for policy in (HostPolicy(lambda state, goal: np.zeros((len(state), 2))), Two()):
        with pytest.raises(UserError, match="2 numbers, but line_world's 1"):
            rollout(LineWorld(), policy, jax.random.key(0), 3, 2)


def test_a_function_that_gives_the_wrong_number_of_actions_gets_a_sentence():
    with pytest.raises(UserError, match=r"shape \(1,\) for states \(2, 1\)"):
        rollout(LineWorld(), HostPolicy(lambda state, goal: np.zeros(1)), KEY, 2, 3)
