"""Environments as the last axis, behind an ordinary vmap."""

import jax
import jax.numpy as jnp
import numpy as np

from dcp.physics.vectors import _concatenated, _through_a_buffer, concatenate_once, environments_last, take_rows


def test_environments_become_the_last_axis_and_a_single_one_works_too():
    seen = []

    def double(array, other):
        seen.append(array.shape)
        return 2.0 * array + other[None]

    function = environments_last(double)
    a, b = jnp.arange(6.0).reshape(2, 3), jnp.ones(3)
    np.testing.assert_array_equal(function(a, b), 2.0 * a + 1.0)
    many = jax.vmap(function, in_axes=(0, None))(jnp.stack([a, a + 1.0]), b)
    np.testing.assert_array_equal(many[1], 2.0 * (a + 1.0) + 1.0)
    assert seen[-1] == (2, 3, 2)


def test_a_function_of_many_serves_one_and_a_nested_batch():
    doubled = environments_last(lambda pair: pair[0] * 2 + pair[1])
    a, b = jnp.arange(6.0).reshape(2, 3), jnp.ones(3)
    np.testing.assert_array_equal(doubled((a[0], b)), 2 * a[0] + 1)
    np.testing.assert_array_equal(jax.vmap(doubled, in_axes=((0, None),))((a, b)), 2 * a + 1)
    twice = jax.vmap(jax.vmap(doubled))((jnp.stack([a, a]), jnp.ones((2, 2, 3))))
    np.testing.assert_array_equal(twice, np.stack([2 * a + 1] * 2))


def test_a_vmap_over_seeds_makes_more_environments_of_them():
    seen = []

    def halved(array, shared):  # [3, N], [N] -> [3, N], [N]
        seen.append((array.shape, shared.shape))
        return array / 2.0, jnp.sum(array, axis=0) + shared

    a, b = jnp.arange(24.0).reshape(2, 4, 3), jnp.arange(4.0)  # 2 seeds, 4 environments
    half, total = jax.vmap(jax.vmap(environments_last(halved)), in_axes=(0, None))(a, b)
    np.testing.assert_array_equal(half, a / 2.0)
    np.testing.assert_array_equal(total, np.sum(np.asarray(a), axis=-1) + np.asarray(b))
    assert seen[-1] == ((3, 8), (8,))


def test_values_computed_once_are_the_same_through_a_buffer_and_without():
    """CPUs take the one, GPUs the other."""
    a, b = jnp.arange(6.0).reshape(2, 3), jnp.arange(3.0).reshape(1, 3)
    parts = [(a, a > 2.0), (b, b > 0.0)]
    for form in (_through_a_buffer, _concatenated, concatenate_once):
        numbers, flags = form(parts)
        np.testing.assert_array_equal(numbers, [[0, 1, 2], [3, 4, 5], [0, 1, 2]])
        np.testing.assert_array_equal(flags, [[0, 0, 0], [1, 1, 1], [0, 1, 1]])
        assert flags.dtype == bool
    for platform, writes in (("cpu", True), ("cuda", False)):
        lowered = jax.jit(concatenate_once).trace(parts).lower(lowering_platforms=(platform,)).as_text()
        assert ("dynamic_update_slice" in lowered) is writes


def test_rows_are_the_same_by_one_gather_or_by_many():
    a, b = jnp.arange(6.0).reshape(3, 2), 10.0 * jnp.arange(6.0).reshape(3, 2)
    rows = np.array([2, 0, 2])
    taken = take_rows((a, b), rows)
    np.testing.assert_array_equal(taken[1], [[40, 50], [0, 10], [40, 50]])
    for platform, gathers in (("cpu", 2), ("cuda", 1)):
        lowered = jax.jit(lambda v: take_rows(v, rows)).trace((a, b)).lower(lowering_platforms=(platform,)).as_text()
        assert lowered.count('"stablehlo.gather"') == gathers
