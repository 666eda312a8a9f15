"""Environments as the last axis, behind an ordinary vmap."""

import jax
import jax.numpy as jnp
import numpy as np

from dcp.physics.lanes import environments_last


def test_environments_become_the_last_axis_and_one_alone_works_too():
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
