"""The actor's squashed Gaussian and the temperature, against numbers by hand."""

from math import exp, log, pi, tanh

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from dcp.actor import ChunkState, Deterministic, Soft, actor_rule_of, alpha_loss, next_chunk_action, sample_squashed


def test_the_action_and_its_log_probability_match_the_numbers_by_hand():
    mean, log_std, noise = [0.5, -1.0], [log(0.2), log(2.0)], [1.5, -0.25]
    first, second = tanh(0.5 + 0.2 * 1.5), tanh(-1.0 + 2.0 * -0.25)
    by_hand = (
        -0.5 * 1.5**2 - log(0.2) - 0.5 * log(2 * pi) - log(1 - first**2 + 1e-6)
        + -0.5 * 0.25**2 - log(2.0) - 0.5 * log(2 * pi) - log(1 - second**2 + 1e-6)
    )  # fmt: skip
    action, log_prob = sample_squashed(*(jnp.array(x) for x in (mean, log_std, noise)))
    assert_allclose(action, [first, second], rtol=1e-6)
    assert_allclose(log_prob, by_hand, rtol=1e-5)


def test_the_probability_of_all_actions_is_one():
    """exp(log prob) integrates to 1 over (-1, 1): midpoints of 4000 cells, mean 0.3, std 0.5."""
    cells = (np.arange(4000) + 0.5) / 2000 - 1.0
    noise = (np.arctanh(cells) - 0.3) / 0.5
    shape = (4000, 1)
    _, log_prob = sample_squashed(
        jnp.full(shape, 0.3), jnp.full(shape, log(0.5)), jnp.array(noise, jnp.float32).reshape(shape)
    )
    assert_allclose(np.sum(np.exp(np.asarray(log_prob))) / 2000, 1.0, rtol=1e-3)


def test_a_saturated_action_has_a_finite_log_probability_and_gradient():
    def log_prob(mean: jax.Array) -> jax.Array:
        return sample_squashed(mean, jnp.zeros(1), jnp.zeros(1))[1]

    far = jnp.array([50.0])
    # tanh(50) = 1 in float32, so 1 - a^2 + 1e-6 = 1e-6.
    assert_allclose(log_prob(far), -0.5 * log(2 * pi) - log(1e-6), rtol=1e-5)
    assert np.all(np.isfinite(jax.grad(log_prob)(far)))


def test_the_alpha_loss_matches_the_number_by_hand():
    """alpha (mean(-log prob) - target) = e^0.3 ((-1 + 2) / 2 - (-1))"""
    log_alpha, log_prob = jnp.array(0.3), jnp.array([1.0, -2.0])
    assert_allclose(alpha_loss(log_alpha, log_prob, -1.0), exp(0.3) * (0.5 + 1.0), rtol=1e-6)


def test_alpha_rises_below_the_target_entropy_and_falls_above_it():
    """A step goes against the gradient."""
    slope = jax.grad(alpha_loss)
    assert slope(jnp.array(0.0), jnp.array([3.0]), -1.0) < 0  # entropy -3, target -1: rises
    assert slope(jnp.array(0.0), jnp.array([-3.0]), -1.0) > 0  # entropy 3: falls


def test_the_temperature_does_not_train_the_policy():
    assert jax.grad(alpha_loss, argnums=1)(jnp.array(0.0), jnp.array(2.0), -1.0) == 0


def test_a_critic_names_its_actor_rule_and_the_papers_is_the_default():
    class TD3Like:
        actor_rule = Deterministic()

    assert actor_rule_of(object()) == Soft() and actor_rule_of(TD3Like()) == Deterministic()


def test_a_chunk_is_taken_action_by_action_and_without_a_state_every_call_plans():
    """Chunks of two actions of one number: the first environment is at its first action, the second at its last."""
    chunk = ChunkState(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([0, 1]))
    chunk, action = next_chunk_action(chunk, jnp.array([[10.0, 20.0], [30.0, 40.0]]), 2)
    assert np.array_equal(action, [[10.0], [4.0]]) and np.array_equal(chunk.step, [1, 0])
    _, action = next_chunk_action(chunk, jnp.zeros((2, 2)), 2)
    assert np.array_equal(action, [[20.0], [0.0]])
    assert np.array_equal(next_chunk_action((), jnp.array([[5.0, 6.0]]), 2)[1], [[5.0]])
