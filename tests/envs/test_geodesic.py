import numpy as np
from numpy.testing import assert_array_equal

from dcp.envs.geodesic import farthest_goal, steps_from_start
from dcp.envs.layouts import BIG_EVAL, U_EVAL, U
from dcp.envs.maze import parse_layout

W = np.inf  # a wall


def test_steps_in_the_u_maze_by_hand():
    assert_array_equal(
        steps_from_start(parse_layout(U, 1.0)),
        [[W, W, W, W, W], [W, 0, 1, 2, W], [W, W, W, 3, W], [W, 6, 5, 4, W], [W, W, W, W, W]],
    )


def test_the_far_goal_of_the_u_maze_is_the_other_end():
    assert_array_equal(farthest_goal(parse_layout(U, 4.0)), [12.0, 4.0])
    assert_array_equal(farthest_goal(parse_layout(U_EVAL, 1.0)), [3.0, 1.0])


def test_the_far_goal_of_the_big_maze_lies_behind_the_last_block():
    # (1,1) down to (2,2), (3,2) to (3,4), (4,4) to (4,6), down to (6,6), back to (6,5): 3 + 2 + 3 + 2 + 1
    layout = parse_layout(BIG_EVAL, 1.0)
    assert_array_equal(farthest_goal(layout), [6.0, 5.0])
    assert steps_from_start(layout)[6, 5] == 11


def test_a_goal_that_no_path_leads_to_is_not_chosen():
    layout = parse_layout("#######\n#rg#gg#\n#######", 1.0)
    assert_array_equal(farthest_goal(layout), [1.0, 2.0])
    assert steps_from_start(layout)[1, 5] == np.inf
