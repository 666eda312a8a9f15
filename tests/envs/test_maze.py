"""Walls that a point cannot pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from dcp.envs.layouts import HARDEST
from dcp.envs.maze import parse_layout, share_of_cells_visited, slide

ROOM = parse_layout("#####\n#rg.#\n#...#\n#####", scale=1.0)  # x in [0.5, 2.5], y in [0.5, 3.5]
RADIUS = 0.1
move = jax.jit(lambda position, step: slide(ROOM, RADIUS, position, step))


@pytest.mark.parametrize(
    ("position", "step", "expected", "blocked"),
    [
        ((1.0, 1.0), (0.3, 0.2), (1.3, 1.2), (False, False)),
        ((1.0, 1.0), (-0.6, 0.2), (0.6, 1.2), (True, False)),  # slides along the wall: x stops at 0.5 + radius
        ((1.0, 1.0), (0.2, -0.7), (1.2, 0.6), (False, True)),
        ((2.0, 3.0), (0.9, 0.9), (2.4, 3.4), (True, True)),  # into the corner
        ((0.6, 1.0), (-0.1, 0.3), (0.6, 1.3), (True, False)),  # touching, and still sliding
        ((0.6, 1.0), (0.2, 0.0), (0.8, 1.0), (False, False)),  # touching, and free to leave
        ((1.0, 1.0), (0.0, 0.0), (1.0, 1.0), (False, False)),
    ],
)
def test_walls_block_each_axis_separately(position, step, expected, blocked):
    position, hit = move(jnp.array(position), jnp.array(step))
    assert_allclose(position, expected, atol=1e-6)
    assert tuple(bool(h) for h in hit) == blocked


def test_a_corner_that_juts_out_blocks_a_point_whose_side_would_touch_it():
    """A wall at cell (2, 1), with faces x = 1.5 and y = 1.5. At y = 1.55 a radius of 0.1 overlaps it."""
    layout = parse_layout("#####\n#rg.#\n##..#\n#####", scale=1.0)
    position, hit = slide(layout, RADIUS, jnp.array([1.0, 1.55]), jnp.array([0.9, 0.0]))
    assert_allclose(position, [1.4, 1.55], atol=1e-6)
    assert bool(hit[0])
    position, hit = slide(layout, RADIUS, jnp.array([1.0, 1.61]), jnp.array([0.9, 0.0]))
    assert_allclose(position, [1.9, 1.61], atol=1e-6)
    assert not bool(hit[0])


def gap_to_walls(layout, positions: np.ndarray) -> np.ndarray:
    """positions [K, 2] -> distance of each to the nearest wall box, negative never, 0 inside; from geometry alone"""
    walls = np.argwhere(layout.walls) * layout.scale  # [W, 2]
    outside = np.abs(positions[:, None, :] - walls[None]) - 0.5 * layout.scale  # [K, W, 2]
    return np.min(np.linalg.norm(np.maximum(outside, 0.0), axis=-1), axis=-1)


def test_the_oracle_measures_the_distance_to_a_wall():
    room = gap_to_walls(ROOM, np.array([[1.0, 1.0], [0.7, 2.0], [0.2, 0.2], [2.4, 3.3]]))
    assert_allclose(room, [0.5, 0.2, 0.0, 0.1], atol=1e-12)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**31 - 1), stride=st.sampled_from([0.05, 0.12, 0.4, 0.9]), persistent=st.booleans())
def test_a_point_never_enters_a_wall(seed: int, stride: float, persistent: bool):
    """64 points, 200 steps each, in the hardest maze. `persistent` steps keep pushing into the same wall."""
    moves = np.random.default_rng(seed).uniform(-stride, stride, size=(200, 64, 2)).astype(np.float32)
    if persistent:
        moves = np.repeat(moves[::20], 20, axis=0)
    positions = np.asarray(wander(jnp.array(moves)))
    # "Touching" is decided to a thousandth of the radius (8e-5), so that a point may slide along a wall.
    assert gap_to_walls(HARDEST_MAZE, positions.reshape(-1, 2)).min() >= 0.08 - 1e-4


HARDEST_MAZE = parse_layout(HARDEST, scale=1.0)


@jax.jit
def wander(moves: jax.Array) -> jax.Array:
    """[T, N, 2] moves from the free cells' centres -> positions [T, N, 2]"""
    free = HARDEST_MAZE.cells("rg")
    start = jnp.asarray(free[np.arange(moves.shape[1]) % len(free)])

    def step(position: jax.Array, move: jax.Array) -> tuple[jax.Array, jax.Array]:
        position = jax.vmap(lambda p, m: slide(HARDEST_MAZE, 0.08, p, m)[0])(position, move)
        return position, position

    return jax.lax.scan(step, start, moves)[1]


def test_the_share_of_cells_visited_counts_each_free_cell_once():
    """The room has 6 free cells; these positions lie in (1, 1) twice, in (2, 3), and in a wall."""
    positions = jnp.array([[1.0, 1.0], [1.4, 0.6], [2.3, 3.4], [0.0, 0.0]])
    assert_allclose(share_of_cells_visited(ROOM, positions), 2 / 6, rtol=1e-6)
