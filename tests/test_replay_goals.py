"""Where hindsight goals come from: shares of other rows and of commanded goals, by hand on numbers that tell whose."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.config import Config
from dcp.errors import UserError
from dcp.interfaces import Hindsight, goals_of
from dcp.methods.table import make_agent
from dcp.replay import draw_goals, moves, relabel, steps_left, with_more_of
from dcp.types import Batch, EnvSpec, Transition
from tests.support.untrained import learner_of

SPEC = EnvSpec("line", 1, 1, 1, goal_dims=(0,), threshold=0.5, episode_length=50)
T, N = 50, 40


def windows() -> Transition:
    """The state of row t of environment n is 100 n + t; every environment was commanded -1."""
    state = jnp.arange(T)[:, None, None] + 100.0 * jnp.arange(N)[None, :, None]
    episode = jnp.zeros((T, N), jnp.int32)
    return Transition(state, jnp.zeros((T, N, 1)), jnp.full((T, N, 1), -1.0), episode)


def goals(**shares: Any) -> tuple[np.ndarray, np.ndarray]:
    w = windows()
    left = jax.vmap(steps_left, in_axes=1, out_axes=1)(w.episode_id)
    drawn = draw_goals(w, left, SPEC, Hindsight(**shares), 0.9, jax.random.key(0))
    return np.asarray(drawn.goal[..., 0]), np.asarray(drawn.steps)


def test_goals_of_others_come_from_all_environments_and_are_of_no_row_s_future():
    goal, steps = goals(others_share=0.2)
    own = goal // 100 == np.arange(N)[None, :]
    assert abs(np.mean(~own) - 0.2 * (1 - 1 / N)) < 0.03  # 2,000 rows: a deviation of 0.009
    assert np.all(steps[~own] == 0)
    assert len(np.unique(goal[~own] // 100)) == N


def test_the_rest_is_drawn_as_without_others():
    plain, _ = goals()
    mixed, steps = goals(others_share=0.2)
    kept = steps > 0
    assert np.array_equal(plain[kept], mixed[kept])


def test_a_commanded_goal_is_the_one_that_the_rollout_asked_for():
    goal, steps = goals(commanded_share=0.3)
    assert abs(np.mean(goal == -1.0) - 0.3) < 0.04
    assert np.all(steps[goal == -1.0] == 0)


def test_a_reward_is_that_of_the_goal_that_was_drawn():
    """A commanded goal of -1 is never near; a goal of the own future is near in the step before it."""
    w = windows()
    needs = {"future_goal", "future_steps", "reward"}
    batch = relabel(w, SPEC, 0.9, jax.random.key(0), needs, Hindsight(commanded_share=0.5, discount=0.5))
    assert batch.reward is not None and batch.future_goal is not None
    commanded = np.asarray(batch.future_goal[:, 0]) == -1.0
    assert 0.4 < commanded.mean() < 0.6
    assert not np.any(np.asarray(batch.reward)[commanded])
    assert_allclose(batch.reward, (batch.future_steps == 1).astype(float))


def test_an_agent_s_choice_replaces_the_critic_s_and_keeps_what_only_the_critic_knows():
    config = Config(method="sac_her", hindsight="her", component_settings={"hindsight.others_share": 0.4})
    assert goals_of(make_agent(config, SPEC)) == Hindsight(others_share=0.4)
    assert goals_of(make_agent(Config(method="sac_her"), SPEC)).draws == "final"
    assert goals_of(make_agent(Config(method="crl", hindsight="uniform"), SPEC)).discount == 1.0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"hindsight": "nowhere"}, "unknown hindsight 'nowhere'"),
        ({"hindsight": "her", "component_settings": {"hindsight.others_share": 1.5}}, "sum is at most 1"),
        ({"hindsight": "her", "component_settings": {"hindsight.moving_share": 1.5}}, "use a share from 0 to 1"),
        ({"component_settings": {"hindsight.others_share": 0.5}}, "name a --hindsight"),
    ],
)
def test_a_mistake_is_one_sentence(settings: dict[str, Any], sentence: str):
    with pytest.raises(UserError, match=sentence):
        make_agent(Config(**settings), SPEC)


def test_the_mixed_actor_goal_is_half_the_own_future_and_half_another_row_s():
    learner = learner_of(SPEC, method="crl", actor_goal="mixed")
    future = jnp.arange(4.0)[:, None]
    batch = Batch(jnp.zeros((4, 1)), jnp.zeros((4, 1)), -jnp.ones((4, 1)), future_goal=future)
    assert_allclose(learner.actor_goal(batch)[:, 0], [0.0, 1.0, 1.0, 2.0])


def test_rows_move_if_their_episode_or_window_ends_farther_off_than_the_threshold():
    """Episodes of rows 0 to 3 and 4 to 6; the last row of the window is no pair. The threshold is 0.5."""
    place = jnp.array([0.0, 0.0, 0.3, 0.6, 0.0, 0.0, 0.0])[:, None, None]
    w = windows()
    w = w._replace(
        state=jnp.broadcast_to(place, (7, 1, w.state.shape[-1])), episode_id=jnp.array([0, 0, 0, 0, 1, 1, 1])[:, None]
    )
    assert moves(w, SPEC).tolist() == [True, True, False, False, False, False]


def test_the_share_of_each_batch_is_drawn_evenly_from_the_chosen_pairs_and_the_rest_stays():
    order, chosen = jnp.arange(4_000).reshape(400, 10), jnp.zeros(4_000, bool).at[jnp.array([7, 70, 700])].set(True)
    mixed = with_more_of(chosen, order, 0.3, jax.random.key(0))
    assert np.array_equal(mixed[:, 3:], order[:, 3:])
    pairs, counts = np.unique(mixed[:, :3], return_counts=True)
    assert pairs.tolist() == [7, 70, 700] and np.abs(counts - 400).max() < 70  # a deviation of 16
    assert np.array_equal(with_more_of(jnp.zeros(4_000, bool), order, 0.3, jax.random.key(0)), order)
