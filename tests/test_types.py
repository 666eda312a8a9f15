"""What everything else is made of: an environment's description, a maze's text, masked means."""

import jax.numpy as jnp
import numpy as np

from dcp.types import EnvSpec, MazeLayout, masked_mean

SPEC = EnvSpec("five", state_size=5, goal_size=2, action_size=3, goal_dims=(3, 0), threshold=0.5, episode_length=10)
MAZE = MazeLayout(("####", "#rg#", "####"), scale=2.0)


def test_an_observation_is_the_state_and_then_the_goal_and_goal_dims_name_what_is_achieved():
    state, goal = SPEC.split(jnp.arange(7.0))
    assert state.tolist() == [0, 1, 2, 3, 4] and goal.tolist() == [5, 6]
    assert SPEC.achieved(state).tolist() == [3, 0]


def test_a_learner_of_chunks_sees_actions_that_are_as_long_as_the_chunk():
    assert SPEC.in_chunks(4).action_size == 12 and SPEC.in_chunks(4).action_chunk == 4
    assert SPEC.in_chunks(1) == SPEC


def test_a_cell_lies_at_its_row_and_column_times_the_scale():
    assert np.array_equal(MAZE.cells("r"), [[2, 2]]) and np.array_equal(MAZE.cells("g"), [[2, 4]])
    assert MAZE.cells("x").shape == (0, 2)
    assert MAZE.walls.sum() == 10 and not MAZE.walls[1, 1]


def test_a_masked_mean_counts_what_the_mask_names_and_is_zero_of_nothing():
    values = jnp.array([1.0, 2.0, 6.0])
    assert masked_mean(values, None) == 3.0
    assert masked_mean(values, jnp.array([True, False, True])) == 3.5
    assert masked_mean(values, jnp.zeros(3, bool)) == 0.0
