"""The figures are drawn from what the modules compute."""

from pathlib import Path

import pytest

from tools.theory.figures import FIGURES, plane_figure, sweep_figure, theorem_figures


def test_the_legend_of_the_sweep_states_the_slopes_that_theorem_two_asks_for():
    first, second, *_ = sweep_figure().axes
    labels = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in (first, second)]
    assert [label.split()[-1] for label in labels[0][:3]] == ["0.50"] * 3
    assert [label.split()[-1] for label in labels[1][:2]] == ["0.50", "1.00"]


def test_the_plane_shows_both_goals_and_their_directions():
    left, right = plane_figure().axes
    for axes in (left, right):
        assert {text.get_text() for text in axes.texts} >= {"s", "z", "g"}
        assert len(axes.get_legend().get_texts()) == 4


@pytest.mark.slow
def test_every_figure_is_drawn_as_it_stands_in_the_documents(tmp_path: Path):
    committed = Path(__file__).parents[3] / "docs" / "theory"
    paths = theorem_figures(tmp_path)
    assert [path.stem for path in paths] == list(FIGURES)
    assert sorted(path.name for path in paths) == sorted(path.name for path in committed.glob("*.png"))
