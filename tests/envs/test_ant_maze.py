"""The ant in mazes: the peer's recorded steps in all three, and its resets."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dcp.envs import ant
from dcp.envs.ant_maze import AntMaze
from dcp.envs.maze import parse_layout
from dcp.envs.registry import make_env
from dcp.physics.walls import wall_codes
from tests import compilation
from tests.envs.golden import check, load, replay

MAZES = ("ant_u_maze", "ant_big_maze", "ant_hardest_maze")


@pytest.fixture(scope="module")
def replayed():
    """One program for every maze: the walls are data to it. Compiled as shipped: a leg that touches a wall's corner
    turns the last digit of a step into the third one after ten more, so the recording's rounding must be met."""
    env = make_env("ant_u_maze")
    largest = wall_codes(make_env("ant_hardest_maze").layout).shape

    def run(codes, q, qd, actions):
        contacts = env.engine.contacts
        walls, contacts.walls = contacts.walls, dataclasses.replace(contacts.walls, codes=codes)
        try:
            return replay(env, q, qd, actions)
        finally:
            contacts.walls = walls

    jitted = jax.jit(run, compiler_options=compilation.SHIPPED)

    def of(maze: str, golden: dict):
        codes = wall_codes(make_env(maze).layout)
        room = [(0, big - small) for big, small in zip(largest, codes.shape, strict=True)]
        with jax.numpy_rank_promotion("allow"):
            return jitted(np.pad(codes, room), golden["q0"], golden["qd0"], golden["actions"])

    return of


@pytest.mark.parametrize("maze", MAZES)
@pytest.mark.parametrize("start", ["", "_contact", "_edge"])
def test_steps_follow_the_peers_recording(replayed, maze: str, start: str):
    golden = load(maze + start)
    check(make_env(maze).spec, golden, replayed(maze, golden), 20, ant.HEALTHY_Z)


def test_at_the_edge_success_and_falling_are_both_seen():
    golden = load("ant_u_maze_edge")
    assert 0 < golden["success"].mean() < 1 and 0 < golden["done"].mean() < 1


@pytest.mark.parametrize("maze", MAZES)
def test_sizes_are_those_of_the_table(maze: str):
    spec = make_env(maze).spec
    assert (spec.state_size, spec.goal_size, spec.action_size) == (29, 2, 8)
    assert (spec.goal_dims, spec.threshold, spec.episode_length, spec.physics) == ((0, 1), 0.5, 1000, "spring")


def test_an_episode_starts_in_the_start_cell_with_noise_and_a_goal_from_the_layout():
    env = make_env("ant_big_maze")
    q, qd = map(np.asarray, jax.vmap(env.draw)(jax.random.split(jax.random.key(0), 4000)))
    np.testing.assert_array_equal(q[:, :2], np.broadcast_to([4.0, 4.0], (4000, 2)))  # no noise on the position
    legs = q[:, 2:15] - ant.INIT_Q[2:]
    assert (np.abs(legs) <= 0.1).all() and np.abs(legs.mean(0)).max() < 0.005
    np.testing.assert_allclose(legs.std(0), 0.2 / np.sqrt(12), rtol=0.05)
    np.testing.assert_allclose(qd[:, :14].std(0), 0.1, rtol=0.06)
    assert not qd[:, 14:].any()
    goals, counts = np.unique(q[:, 15:], axis=0, return_counts=True)
    cells = env.layout.cells("g")
    assert len(goals) == len(cells) and {tuple(g) for g in goals} == {tuple(c) for c in cells}
    assert counts.min() > 0.6 * counts.mean() and counts.max() < 1.4 * counts.mean()


def test_an_evaluation_layout_has_far_goals_only():
    env = make_env("ant_u_maze_eval")
    q, _ = jax.vmap(env.draw)(jax.random.split(jax.random.key(0), 200))
    assert {tuple(goal) for goal in np.asarray(q[:, 15:])} == {(12.0, 4.0), (12.0, 8.0), (12.0, 12.0)}


def test_a_maze_of_ones_own_is_a_text():
    env = AntMaze("mine", parse_layout("#####\n#r.g#\n#####", 4.0))
    assert env.model().compile().ngeom == make_env("ant_u_maze").model().compile().ngeom - 18 + 12
    q, _ = env.draw(jax.random.key(0))
    np.testing.assert_array_equal(q[15:], jnp.array([4.0, 12.0]))
