import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_array_equal

from dcp.envs.mazes import START_NOISE, THRESHOLD, PointMaze, parse_layout
from dcp.lab.episodes import Episode, cached_by_env, play, play_toward, shows_maze
from tests.support.toys import LineWorld

CORRIDOR = parse_layout("#######\n#r.g.g#\n#######", 1.0)


class StraightOn(NamedTuple):
    """Full speed towards the goal's column."""

    def init(self, key):
        return ()

    def act(self, policy_state, state, goal):
        return policy_state, jnp.stack([jnp.zeros(len(state)), jnp.sign(goal[:, 1] - state[:, 1])], axis=-1)


class Pit(PointMaze):
    """An episode ends beyond y = 2."""

    def step(self, state, action):
        state = super().step(state, action)
        return state._replace(done=state.obs[1] > 2.0)


def test_an_episode_starts_at_the_start_and_knows_when_the_goal_was_first_near():
    for episode in play(PointMaze("corridor", CORRIDOR), StraightOn(), jax.random.key(0), 4, 60):
        assert episode.achieved.shape == (61, 2)
        assert np.abs(episode.achieved[0] - [1.0, 1.0]).max() <= START_NOISE
        gaps = np.linalg.norm(episode.achieved - episode.goal, axis=-1)
        assert episode.reached == np.flatnonzero(gaps < THRESHOLD)[0]


def test_an_episode_ends_where_the_environment_ends_it_and_has_the_goal_that_was_asked_for():
    for episode in play_toward(Pit("pit", CORRIDOR), StraightOn(), np.array([1.0, 5.0]), 8, 60):
        assert_array_equal(episode.goal, [1.0, 5.0])  # by chance: 1 in 256
        assert episode.achieved[-1, 1] > 2.0
        assert (episode.achieved[:-1, 1] <= 2.0).all()
        assert episode.reached is None


def test_a_goal_that_the_environment_never_draws_is_pursued_and_judged_all_the_same():
    for episode in play_toward(PointMaze("corridor", CORRIDOR), StraightOn(), np.array([1.0, 4.2]), 2, 60):
        assert_array_equal(episode.goal, [1.0, 4.2])
        gaps = np.linalg.norm(episode.achieved - [1.0, 4.2], axis=-1)
        assert episode.reached == np.flatnonzero(gaps < THRESHOLD)[0]
        assert episode.achieved[:, 1].max() < 4.5  # on toward it, and not to the cell that was drawn, at 3 or 5


def test_only_goals_in_a_maze_s_plane_can_be_drawn():
    spec = PointMaze("corridor", CORRIDOR).spec
    assert shows_maze(spec)
    assert not shows_maze(LineWorld().spec)
    raised = dataclasses.replace(spec, goal_size=3, goal_dims=(0, 1, 2))
    assert not shows_maze(raised)


def test_a_path_ends_with_the_success():
    points = np.array([[1.0, 1.0], [1.0, 2.0], [3.0, 1.05], [3.0, 1.0]])
    assert_array_equal(Episode(points, points[3], None, 1).path, points[:2])
    assert_array_equal(Episode(points, points[3], None, None).path, points)


def test_a_program_is_made_once_for_an_environment_and_each_time_for_one_without_a_hash():
    made = []
    make = cached_by_env(lambda env, steps: made.append((env, steps)) or len(made))
    assert [make("env", 3), make("env", 3), make("env", 4)] == [1, 1, 2]
    assert [make(["env"], 3), make(["env"], 3)] == [3, 4]
