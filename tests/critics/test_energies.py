"""Energies against numbers by hand, and the pairwise forms against the broadcast ones."""

import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from dcp.critics.contrastive import ENERGIES

X = jnp.array([[3.0, 4.0], [1.0, -2.0]])
Y = jnp.array([[0.0, 0.0], [4.0, 3.0]])

# Row i is x_i, column j is y_j. x_1 - y_1 = (-3, -5): 9 + 25 = 34.
BY_HAND = {
    "norm": [
        [-math.sqrt(3**2 + 4**2 + 1e-6), -math.sqrt((3 - 4) ** 2 + (4 - 3) ** 2 + 1e-6)],
        [-math.sqrt(1**2 + 2**2 + 1e-6), -math.sqrt((1 - 4) ** 2 + (-2 - 3) ** 2 + 1e-6)],
    ],
    "l2": [[-25.0, -2.0], [-5.0, -34.0]],
    "dot": [[0.0, 3 * 4 + 4 * 3], [0.0, 1 * 4 - 2 * 3]],
    "cosine": [[0.0, 24 / (5 * 5)], [0.0, -2 / (math.sqrt(5) * 5)]],
}


def broadcast(name: str, x: jax.Array, y: jax.Array) -> jax.Array:
    """The textbook form, by way of [B, B, D]."""
    return ENERGIES[name].plain(x[:, None, :], y[None, :, :])


@cache
def value_and_gradients(name: str, form: str):
    """The values, and the gradients of a sum that weighs every pair differently. Compiled once a form."""
    energy = ENERGIES[name].pairwise if form == "pairwise" else partial(broadcast, name)

    def weighted(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        values = energy(x, y)
        return jnp.sum(jnp.cos(jnp.arange(values.size)).reshape(values.shape) * values), values

    def both(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        gradients, values = compiled(x, y)
        return [np.asarray(array) for array in (values, *gradients)]

    compiled = jax.jit(jax.grad(weighted, argnums=(0, 1), has_aux=True))
    return both


def test_every_energy_has_numbers_by_hand():
    assert set(BY_HAND) == set(ENERGIES)


@pytest.mark.parametrize("name", ENERGIES)
def test_the_plain_form_matches_the_numbers_by_hand(name: str):
    assert_allclose(broadcast(name, X, Y), BY_HAND[name], rtol=1e-6, atol=1e-7)
    assert_allclose(ENERGIES[name].plain(X, Y), np.diag(BY_HAND[name]), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ENERGIES)
def test_the_pairwise_form_matches_the_numbers_by_hand(name: str):
    assert_allclose(ENERGIES[name].pairwise(X, Y), BY_HAND[name], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", ENERGIES)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(log_scale=st.floats(-2, 2), offset=st.floats(-10, 10), seed=st.integers(0, 2**31), same_batch=st.booleans())
def test_the_pairwise_form_equals_the_broadcast_form_in_value_and_gradient(
    name: str, log_scale: float, offset: float, seed: int, same_batch: bool
):
    """Scales 0.01 to 100, offsets up to ten times the scale. Tolerance: 1e-4 of the largest number, 1e-3 for gradients.

    `same_batch` puts y near x, as a trained critic does; never closer than a third of the scale.
    """
    random, scale = np.random.default_rng(seed), 10**log_scale
    x = random.normal(size=(5, 8))
    y = x + 0.3 * random.choice([-1.0, 1.0], size=x.shape) if same_batch else random.normal(size=(5, 8))
    x, y = ((scale * (points + offset)).astype(np.float32) for points in (x, y))
    fast, slow = (value_and_gradients(name, form)(x, y) for form in ("pairwise", "broadcast"))
    for got, expected, tolerance in zip(fast, slow, (1e-4, 1e-3, 1e-3), strict=True):
        assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("name", ["norm", "l2"])
def test_a_common_offset_costs_the_pairwise_distance_no_digits(name: str):
    """Points one unit apart, a thousand units from the origin: |x|^2 is a million, of which float32 keeps 0.06."""
    random = np.random.default_rng(0)
    x, y = (np.float32(1000.0) + random.normal(size=(6, 8)).astype(np.float32) for _ in range(2))
    x, y = jnp.array(x), jnp.array(y)
    assert_allclose(ENERGIES[name].pairwise(x, y), broadcast(name, x, y), rtol=1e-3)


@pytest.mark.parametrize("name", ENERGIES)
def test_equal_vectors_and_zero_vectors_have_finite_energies_and_gradients(name: str):
    x = np.zeros((5, 8), np.float32)
    x[1:] = 0.7
    for form in ("pairwise", "broadcast"):
        for array in value_and_gradients(name, form)(x, x):
            assert np.all(np.isfinite(array))


def test_equal_vectors_are_a_thousandth_apart_under_the_norm():
    """sqrt(0 + 1e-6) = 1e-3"""
    x = jnp.full((1, 4), 2.0)
    assert_allclose(ENERGIES["norm"].plain(x, x), [-1e-3], rtol=1e-6)
    assert_allclose(ENERGIES["norm"].pairwise(x, x), [[-1e-3]], rtol=1e-6)


def test_the_cosine_divides_each_vector_by_its_own_norm():
    """Scaling one vector of the batch moves no number; JaxGCRL's divides by the whole batch's norm."""
    scaled = X.at[0].multiply(100.0)
    assert_allclose(ENERGIES["cosine"].pairwise(scaled, Y), ENERGIES["cosine"].pairwise(X, Y), rtol=1e-5)
