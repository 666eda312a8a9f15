"""Inputs of unit size: running statistics by hand, and one policy in the task's own units whatever form it has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.errors import UserError
from dcp.networks import MOST_ROWS, Scale, init_scale, observe, scaled_batch, scaled_goal, scaled_state
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import load_policy, save_policy
from dcp.types import Batch, EnvSpec
from tests.support.exports import exported, untrained
from tests.support.untrained import learner_of

SPEC = EnvSpec("three_numbers", 3, 2, 1, goal_dims=(2, 0), threshold=0.5, episode_length=10)
METRES = Scale(jnp.array([0.25, 0.0, -0.5]), jnp.array([0.05, 2.0, 0.1]), jnp.zeros(3), jnp.ones(()))


def test_the_running_scale_is_the_mean_and_spread_of_all_rows_that_it_has_seen():
    """Rows 1, 3 and then 5, 7: mean 4, variance (9 + 1 + 1 + 9) / 4 = 5."""
    spec = replace(SPEC, state_size=1, goal_size=1, goal_dims=(0,))
    scale = observe(init_scale("running", spec), jnp.array([[1.0], [3.0]]))
    assert_allclose((scale.centre[0], scale.spread[0], scale.rows), (2.0, 1.0, 2.0))
    scale = observe(scale, jnp.array([[[5.0]], [[7.0]]]))
    assert_allclose((scale.centre[0], scale.spread[0], scale.rows), (4.0, np.sqrt(5.0), 4.0), rtol=1e-6)


def test_a_number_that_hardly_changes_is_not_blown_up():
    """A cube's height is 0.015 m in every row: its spread counts as 0.01."""
    scale = observe(init_scale("running", SPEC), jnp.full((4, 3), 0.015))
    assert_allclose(scale.spread, 0.01)


def test_old_rows_are_forgotten_after_a_million():
    scale = init_scale("running", SPEC)._replace(rows=jnp.asarray(MOST_ROWS))
    assert float(observe(scale, jnp.ones((8, 3))).rows) == MOST_ROWS


def test_a_goal_has_the_scale_of_the_state_s_numbers_that_it_is_part_of():
    """goal_dims (2, 0): the goal (-0.4, 0.3) is (-0.4 + 0.5) / 0.1 = 1 and (0.3 - 0.25) / 0.05 = 1."""
    assert_allclose(scaled_goal(METRES, SPEC, jnp.array([-0.4, 0.3])), [1.0, 1.0], rtol=1e-5)
    state = scaled_state(METRES, jnp.array([[0.3, 4.0, -0.4]]))
    assert_allclose(state, [[1.0, 2.0, 1.0]], rtol=1e-5)
    assert_allclose(SPEC.achieved(state), scaled_goal(METRES, SPEC, jnp.array([[-0.4, 0.3]])))


def test_a_sequence_of_goals_is_scaled_goal_by_goal():
    assert_allclose(scaled_goal(METRES, SPEC, jnp.array([[-0.4, 0.3, -0.5, 0.25]])), [[1.0, 1.0, 0.0, 0.0]], atol=1e-5)


def test_a_batch_keeps_what_was_found_in_the_task_s_own_units():
    zeros = jnp.zeros((1, 2))
    batch = Batch(jnp.array([[0.3, 4.0, -0.4]]), jnp.ones((1, 1)), zeros, reward=jnp.ones(1))
    scaled = scaled_batch(METRES, SPEC, batch)
    assert_allclose(scaled.commanded_goal, [[5.0, -5.0]], rtol=1e-5)
    assert scaled.reward is batch.reward and scaled.action is batch.action and scaled.future_goal is None


def test_without_a_scale_nothing_is_computed():
    x = jnp.ones((2, 3))
    assert init_scale("none", SPEC) == () and scaled_state((), x) is x and scaled_goal((), SPEC, x) is x


def test_a_task_s_own_scale_is_taken_from_its_spec_and_a_task_without_one_says_what_to_do():
    spec = replace(SPEC, scale=((0.25, 0.0, -0.5), (0.05, 2.0, 0.1)))
    assert_allclose(init_scale("task", spec).spread, METRES.spread)
    with pytest.raises(UserError, match="--normalize running"):
        init_scale("task", SPEC)


@pytest.mark.parametrize("rates", [{}, {"actor_learning_rate": 1e-3}], ids=["one rate", "two rates"])
def test_no_gradient_reaches_the_scale_and_its_adam_never_moves_it(rates: dict[str, Any]):
    learner = learner_of(SPEC, method="dcp", normalize="running", width=8, repr_dim=4, depth=1, **rates)
    state = learner.observed(learner.init(jax.random.key(0)), jnp.array([[0.1, 2.0, 3.0], [0.3, 1.0, 5.0]]))
    goals = jax.random.normal(jax.random.key(1), (4, 2))
    batch = Batch(jnp.ones((4, 3)), jnp.zeros((4, 1)), goals, future_goal=goals)
    after, _ = learner.update(state, batch, jax.random.key(2))
    for before, now in zip(state.params.scale, after.params.scale, strict=True):
        assert np.array_equal(before, now)
    assert not np.array_equal(state.params.actor["out"]["bias"], after.params.actor["out"]["bias"])


def scaled_policy(method: str) -> DeployedPolicy:
    return replace(untrained(method, SPEC), scale=METRES)


def inputs() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    state = random.normal((0.25, 0.0, -0.5), (0.05, 2.0, 0.1), (5, 3)).astype(np.float32)
    return state, random.normal((-0.5, 0.25), (0.1, 0.05), (5, 2)).astype(np.float32)


@pytest.mark.parametrize("method", ["crl", "dcp"])
def test_a_policy_acts_on_metres_as_its_networks_do_on_units(method: str):
    policy, (state, goal) = scaled_policy(method), inputs()
    units = replace(policy, scale=())
    wanted = units(np.asarray(scaled_state(METRES, state)), np.asarray(scaled_goal(METRES, SPEC, goal)))
    assert_allclose(policy(state, goal), wanted, atol=1e-6)
    assert np.abs(policy(state, goal) - units(state, goal)).max() > 0.01


def test_psi_and_value_are_read_in_the_task_s_own_units():
    policy, (_, goal) = scaled_policy("dcp"), inputs()
    wanted = replace(policy, scale=()).representation.encode_goal(scaled_goal(METRES, SPEC, goal))
    assert_allclose(policy.representation.encode_goal(jnp.asarray(goal)), wanted, rtol=1e-5)


@pytest.mark.parametrize("method", ["crl", "dcp"])
def test_a_saved_policy_keeps_its_scale(tmp_path: Path, method: str):
    policy, (state, goal) = scaled_policy(method), inputs()
    loaded = load_policy(save_policy(tmp_path / "policy.safetensors", policy, {}))
    assert np.array_equal(loaded.scale.centre, METRES.centre)
    assert np.array_equal(loaded(state, goal), policy(state, goal))


@pytest.mark.parametrize("form", ["numpy", "onnx", "stablehlo"])
@pytest.mark.parametrize(
    ("method", "settings"),
    [("crl", {}), ("dcp", {"layer_norm": True}), ("dcp", {"condition": "direction_and_goal"}), ("sac_direction", {})],
)
def test_every_exported_form_takes_states_and_goals_in_the_task_s_own_units(
    tmp_path: Path, form: str, method: str, settings: dict[str, Any]
):
    if method == "sac_direction" and form != "numpy":
        pytest.skip("the other forms are held by the paper's method")
    policy, (state, goal) = replace(untrained(method, SPEC, **settings), scale=METRES), inputs()
    assert_allclose(exported(tmp_path, form, policy).infer(state, goal), policy(state, goal), atol=2e-6)
