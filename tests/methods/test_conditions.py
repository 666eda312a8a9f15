"""Direction and magnitude by hand, also where z equals s."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from dcp.envs.registry import make_env
from dcp.interfaces import Representation
from dcp.methods.conditions import Direction, RawGoal, direction_and_magnitude

# psi doubles the goal: easy to follow by hand.
DOUBLING = Representation(
    encode_goal=lambda goal: 2.0 * goal,
    distance=lambda a, b: jnp.linalg.norm(a - b, axis=-1),
    value=lambda state, action, goal: jnp.zeros(state.shape[:-1]),
)


def test_direction_and_magnitude_match_the_numbers_by_hand():
    """From (1, 1) to (4, 5): (3, 4) / 5 and 5."""
    direction, magnitude = direction_and_magnitude(jnp.array([1.0, 1.0]), jnp.array([4.0, 5.0]))
    assert_allclose(direction, [3 / 5, 4 / 5], rtol=1e-6)
    assert_allclose(magnitude, [5.0], rtol=1e-6)


def test_where_z_equals_s_direction_and_magnitude_are_zero_with_finite_gradients():
    psi = jnp.array([[0.3, -0.7, 2.0]])
    direction, magnitude = direction_and_magnitude(psi, psi)
    assert np.array_equal(direction, np.zeros((1, 3)))
    assert np.array_equal(magnitude, np.zeros((1, 1)))
    jacobians = jax.jacobian(direction_and_magnitude, argnums=(0, 1))(psi, psi)
    assert all(np.all(np.isfinite(jacobian)) for jacobian in jax.tree.leaves(jacobians))


def test_one_environment_at_its_subgoal_does_not_disturb_the_others_gradients():
    """The gradient of the direction (d_x) along (3, 4) / 5 is (1 - 0.36, -0.48) / 5; of the magnitude (0.6, 0.8)."""
    psi_s, psi_z = jnp.zeros((2, 2)), jnp.array([[0.0, 0.0], [3.0, 4.0]])
    to_direction = jax.grad(lambda z: jnp.sum(direction_and_magnitude(psi_s, z)[0][:, 0]))(psi_z)
    to_magnitude = jax.grad(lambda z: jnp.sum(direction_and_magnitude(psi_s, z)[1]))(psi_z)
    assert np.all(np.isfinite(to_direction)) and np.all(np.isfinite(to_magnitude))
    assert_allclose(to_direction[1], [(1 - 0.36) / 5, -0.48 / 5], rtol=1e-5)
    assert_allclose(to_magnitude[1], [0.6, 0.8], rtol=1e-5)


def test_the_direction_condition_is_direction_then_magnitude_in_psi_space():
    """psi(1, 1) = (2, 2), psi(4, 5) = (8, 10): the difference (6, 8) has length 10."""
    condition = Direction()(DOUBLING, jnp.array([[1.0, 1.0]]), jnp.array([[4.0, 5.0]]))
    assert_allclose(condition, [[0.6, 0.8, 10.0]], rtol=1e-6)


def test_the_raw_goal_condition_is_the_commanded_goal_itself():
    commanded = jnp.array([[4.0, 5.0]])
    assert np.array_equal(RawGoal()(DOUBLING, jnp.zeros((1, 2)), commanded), commanded)


def test_a_condition_says_its_size():
    spec = make_env("point_u_maze").spec
    assert RawGoal().size(spec, repr_dim=64) == 2
    assert Direction().size(spec, repr_dim=64) == 64 + 1
