"""Contrastive losses against numbers by hand. Row i is (s, a)_i, column j is goal j."""

from math import exp, inf, log, nan

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn import logsumexp
from numpy.testing import assert_allclose

from dcp.critics.contrastive import (
    CONTRASTIVE_LOSSES,
    Contrastive,
    infonce_accuracy,
    logsumexp_of_rows,
    logsumexp_penalty,
    row_max,
)
from dcp.errors import UserError

LOGITS = jnp.array([[2.0, 1.0], [0.0, -1.0]])

FORWARD = -0.5 * ((2 - log(exp(2) + exp(1))) + (-1 - log(exp(0) + exp(-1))))  # over the goals of a row
BACKWARD = -0.5 * ((2 - log(exp(2) + exp(0))) + (-1 - log(exp(1) + exp(-1))))  # over the (s, a) of a column
BY_HAND = {
    "forward": FORWARD,
    "backward": BACKWARD,
    "symmetric": FORWARD + BACKWARD,
    # softplus(-logit) for the two positives, softplus(logit) for the two negatives.
    "binary_nce": (log(1 + exp(-2)) + log(1 + exp(1)) + log(1 + exp(1)) + log(1 + exp(0))) / 4,
}


def test_every_loss_has_a_number_by_hand():
    assert set(BY_HAND) == set(CONTRASTIVE_LOSSES)


@pytest.mark.parametrize("name", CONTRASTIVE_LOSSES)
def test_a_loss_matches_its_number_by_hand(name: str):
    assert_allclose(CONTRASTIVE_LOSSES[name](LOGITS), BY_HAND[name], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "chance"),
    [("forward", log(3)), ("backward", log(3)), ("symmetric", 2 * log(3)), ("binary_nce", log(2))],
)
def test_logits_that_say_nothing_cost_chance(name: str, chance: float):
    assert_allclose(CONTRASTIVE_LOSSES[name](jnp.zeros((3, 3))), chance, rtol=1e-6)


def test_backward_cannot_see_what_a_goal_adds_to_its_column_and_forward_can():
    """A number added to a whole column cancels in the softmax over (s, a), and in no other."""
    shifted = LOGITS + jnp.array([[5.0, 0.0]])
    assert_allclose(CONTRASTIVE_LOSSES["backward"](shifted), BACKWARD, rtol=1e-5)
    assert abs(float(CONTRASTIVE_LOSSES["forward"](shifted)) - FORWARD) > 1.0


def test_the_logsumexp_penalty_is_row_wise():
    by_hand = (log(exp(2) + exp(1)) ** 2 + log(exp(0) + exp(-1)) ** 2) / 2
    assert_allclose(logsumexp_penalty(LOGITS), by_hand, rtol=1e-6)


def test_the_accuracy_is_the_share_of_rows_whose_own_goal_is_highest():
    logits = jnp.array([[3.0, 1.0, 2.0], [5.0, 4.0, 0.0], [0.0, 1.0, 2.0]])  # right, wrong, right
    assert_allclose(infonce_accuracy(logits), 2 / 3, rtol=1e-6)


def test_a_collapsed_representation_scores_no_accuracy():
    assert infonce_accuracy(jnp.zeros((4, 4))) == 0.0


@pytest.mark.parametrize("columns", [7, 128, 130, 256])
def test_a_rows_maximum_in_two_steps_is_the_maximum(columns: int):
    x = np.random.default_rng(0).normal(size=(9, columns)).astype(np.float32)
    x[1], x[2, 5], x[3, -1], x[4, 0] = -inf, nan, inf, 9.0
    assert np.array_equal(jax.jit(row_max)(x), np.max(x, axis=1), equal_nan=True)


def test_the_log_of_a_rows_sum_is_jaxs_bit_by_bit_and_so_is_its_gradient():
    logits = jnp.array(np.random.default_rng(0).normal(size=(128, 128)) * 5, jnp.float32)
    for of in (logsumexp_of_rows, jax.grad(lambda x: jnp.mean(logsumexp_of_rows(x) ** 2))):
        jaxs = jax.grad(lambda x: jnp.mean(logsumexp(x, axis=1) ** 2)) if of is not logsumexp_of_rows else None
        wanted = jax.jit(jaxs or (lambda x: logsumexp(x, axis=1)))(logits)
        assert np.array_equal(jax.jit(of)(logits), wanted)


def test_an_eikonal_term_without_a_distance_is_refused_in_one_sentence():
    Contrastive(energy="l2", eikonal=0.1)
    with pytest.raises(UserError, match="eikonal needs a distance, and the energy dot has none: use norm or l2"):
        Contrastive(energy="dot", eikonal=0.1)
