"""States without actions in the critic's data: bodies at rest."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chisquare

from dcp.envs.registry import make_env
from dcp.methods.pool_seed import inject_stationary_pairs, sample_seed_states
from dcp.types import Batch

SPEC = replace(make_env("point_u_maze_inertia").spec, goal_dims=(2, 3))  # S 4: a point's place, a ball's


def test_the_first_pairs_give_way_to_states_at_rest_whose_future_is_their_present():
    batch = Batch(jnp.ones((3, 4)), jnp.ones((3, 2)), jnp.full((3, 2), 2.0), jnp.full((3, 2), 3.0))
    batch_with_seeds = inject_stationary_pairs(batch, jnp.array([[5.0, 6.0, 7.0, 8.0]]), SPEC)
    assert np.array_equal(batch_with_seeds.state, [[5, 6, 7, 8], [1, 1, 1, 1], [1, 1, 1, 1]])
    assert np.array_equal(batch_with_seeds.action, [[0, 0], [1, 1], [1, 1]])
    assert np.array_equal(batch_with_seeds.future_goal, [[7, 8], [3, 3], [3, 3]])
    assert np.array_equal(batch_with_seeds.commanded_goal, [[7, 8], [2, 2], [2, 2]])


def test_every_update_draws_each_state_at_most_once_and_all_equally_often():
    states = jnp.arange(6.0)[:, None]
    rows = np.asarray(sample_seed_states(states, updates=600, share=2, key=jax.random.key(0))).astype(int)[..., 0]
    assert rows.shape == (600, 2) and np.all(rows[:, 0] != rows[:, 1])
    assert chisquare(np.bincount(rows.ravel(), minlength=6)).pvalue > 1e-3
