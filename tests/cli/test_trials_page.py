"""The page and the table of a search."""

import csv
import math
from pathlib import Path

import pytest

from dcp.cli.tune import TrialRow, scatter, trials_table, write_trials_page
from dcp.errors import UserError

TRIALS = [
    TrialRow(0, "complete", 0.25, 3.0, {"width": 64, "discount": 0.99, "network": "mlp"}),
    TrialRow(1, "complete", 0.75, 4.0, {"width": 128, "discount": 0.9, "network": "residual"}),
    TrialRow(2, "pruned", 0.125, 1.0, {"width": 64, "discount": 0.95, "network": "mlp"}, "below the median"),
    TrialRow(3, "failed", None, None, {"width": 128}, "<b>\x1b[2J"),
    TrialRow(4, "running", None, None, {}),
]


def test_the_table_has_the_best_first_and_those_without_a_score_last():
    table = trials_table(TRIALS, ["width", "discount"], "success_once")
    assert table.columns == ("trial", "state", "success_once", "minutes", "width", "discount", "why")
    assert [row.cells[0].text for row in table.rows] == ["1", "0", "2", "3", "4"]
    assert [row.cells[2].value for row in table.rows[:3]] == [0.75, 0.25, 0.125]
    assert math.isnan(table.rows[3].cells[2].value or 0.0)


def test_a_figure_has_a_dot_for_each_complete_trial_and_a_cross_for_each_pruned_one():
    (axes,) = scatter(TRIALS, "discount", "success_once", True).axes
    dots, crosses = axes.collections
    assert dots.get_offsets().tolist() == [[0.99, 0.25], [0.9, 0.75]]
    assert crosses.get_offsets().tolist() == [[0.95, 0.125]] and axes.get_xscale() == "log"
    (words,) = scatter(TRIALS, "network", "success_once", False).axes
    assert [label.get_text() for label in words.get_xticklabels()] == ["mlp", "residual"]
    assert scatter([], "width", "success_once", False).axes


def test_page_and_table_are_written_and_a_strangers_texts_are_escaped(tmp_path: Path):
    page = write_trials_page(TRIALS, tmp_path, "success_once", "dcp train --width 128", ["discount"])
    text = page.read_text()
    assert page == tmp_path / "trials.html" and "dcp train --width 128" in text
    assert "2 complete · 1 pruned · 1 failed · 1 running" in text
    assert "&lt;b&gt;" in text and "\x1b" not in text
    rows = list(csv.DictReader((tmp_path / "trials.csv").open()))
    assert rows[0]["trial"] == "1" and rows[0]["success_once"] == "0.75" and rows[0]["width"] == "128"
    assert sorted(path.name for path in (tmp_path / "figures").glob("*.png")) == [
        "discount.png",
        "network.png",
        "width.png",
    ]
    assert "No trial is complete yet." in write_trials_page([], tmp_path, "success_once", None).read_text()


def test_nothing_is_written_through_a_link(tmp_path: Path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/figures").symlink_to(tmp_path)
    with pytest.raises(UserError, match="is a link that leads out"):
        write_trials_page(TRIALS, tmp_path / "runs", "success_once", None)
