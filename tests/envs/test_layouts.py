"""The mazes' text, as ENVIRONMENTS.md draws it, and what a bad drawing is told."""

import numpy as np
import pytest

from dcp.envs.layouts import EVAL_LAYOUTS, LAYOUTS
from dcp.envs.maze import parse_layout
from dcp.errors import UserError

# Free cells, goal cells, counted by hand row by row.
COUNTS = {
    "u_maze": (3 + 1 + 3, 2 + 1 + 3),
    "big_maze": (4 + 5 + 3 + 5 + 4 + 5, 3 + 5 + 3 + 5 + 4 + 5),
    "hardest_maze": (9 + 5 + 9 + 3 + 8 + 4 + 8, 8 + 5 + 9 + 3 + 8 + 4 + 8),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_has_the_cells_that_were_counted_by_hand(name: str):
    layout = parse_layout(LAYOUTS[name], scale=1.0)
    free, goals = COUNTS[name]
    assert np.sum(~layout.walls) == free
    assert len(layout.cells("g")) == goals
    assert layout.cells("r").tolist() == [[1.0, 1.0]]
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
def test_a_bad_drawing_is_told_what_to_do(text: str, sentence: str):
    with pytest.raises(UserError, match=sentence):
        parse_layout(text, scale=1.0)
