"""The mazes' text, as ENVIRONMENTS.md draws it, what a bad drawing is told, and walls that a point cannot pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from dcp.envs.mazes import EVAL_LAYOUTS, HARDEST, LAYOUTS, parse_layout, share_of_cells_visited, slide
from dcp.errors import UserError

# Free cells, goal cells, counted by hand row by row.
COUNTS = {
    "u_maze": (3 + 1 + 3, 2 + 1 + 3),
    "big_maze": (4 + 5 + 3 + 5 + 4 + 5, 3 + 5 + 3 + 5 + 4 + 5),
    "hardest_maze": (9 + 5 + 9 + 3 + 8 + 4 + 8, 8 + 5 + 9 + 3 + 8 + 4 + 8),
    "u4_maze": (3 + 2 + 1 + 2 + 3, 3 + 1 + 1 + 2 + 3),
    "u5_maze": (6 + 2 + 1 + 2 + 6, 6 + 1 + 1 + 2 + 6),
}
STARTS = {"u4_maze": [2.0, 1.0], "u5_maze": [2.0, 1.0]}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_has_the_cells_that_were_counted_by_hand(name: str):
    layout = parse_layout(LAYOUTS[name], scale=1.0)
    free, goals = COUNTS[name]
    assert np.sum(~layout.walls) == free
    assert len(layout.cells("g")) == goals
    assert layout.cells("r").tolist() == [STARTS.get(name, [1.0, 1.0])]
    assert free == goals + 1  # every free cell but the start is a goal


@pytest.mark.parametrize("name", EVAL_LAYOUTS)
def test_an_evaluation_layout_has_the_same_walls_and_start_and_fewer_goals(name: str):
    train, evaluation = (parse_layout(table[name], scale=1.0) for table in (LAYOUTS, EVAL_LAYOUTS))
    assert np.array_equal(train.walls, evaluation.walls)
    assert np.array_equal(train.cells("r"), evaluation.cells("r"))
    goals, far = ({tuple(cell) for cell in layout.cells("g")} for layout in (train, evaluation))
    assert far < goals


def test_the_far_goals_are_those_of_the_drawing():
    far = {name: {tuple(cell) for cell in parse_layout(text, 1.0).cells("g")} for name, text in EVAL_LAYOUTS.items()}
    assert far["u_maze"] == {(3, 1), (3, 2), (3, 3)}
    assert far["u4_maze"] == {(4, 1), (5, 1), (5, 2), (5, 3)}
    assert far["u5_maze"] == {(4, 1), (4, 6), *((5, column) for column in range(1, 7))}
    assert far["big_maze"] == {(1, 5), (1, 6), (2, 5), (2, 6), (5, 3), (5, 6), (6, 2), (6, 3), (6, 5), (6, 6)}


def test_a_cell_sits_at_row_and_column_times_the_scale():
    layout = parse_layout("####\n#rg#\n####", scale=4.0)
    assert layout.cells("r").tolist() == [[4.0, 4.0]]
    assert layout.cells("g").tolist() == [[4.0, 8.0]]
    assert layout.walls.tolist() == [[True] * 4, [True, False, False, True], [True] * 4]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("####\n#rg#\n###", "same length"),
        ("", "same length"),
        ("####\n#rg.\n####", "must be closed"),
        ("##.#\n#rg#\n####", "must be closed"),
        ("####\n#.g#\n####", "at least one start cell: mark it with 'r'"),
        ("####\n#r.#\n####", "at least one goal cell: mark it with 'g'"),
    ],
)
def test_a_bad_drawing_gets_a_sentence_with_the_fix(text: str, sentence: str):
    with pytest.raises(UserError, match=sentence):
        parse_layout(text, scale=1.0)


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
