"""Cells and their three files, letter by letter."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from dcp.errors import UserError
from dcp.lab.result_tables import (
    Cell,
    Row,
    Table,
    absent,
    number,
    shown,
    to_csv,
    to_latex,
    to_markdown,
    write_table,
)


@pytest.fixture
def table() -> Table:
    best = Cell("18.4 ± 5.4", 18.4375, 5.4321, count=5, bold=True, marker="†")
    rows = (
        Row((Cell("AntMaze_Big"), Cell("dcp"), best), "ant_big_maze", "dcp"),
        Row((Cell(""), Cell("crl"), number(15.0625, 3.7, count=4)), "ant_big_maze", "crl"),
        Row((Cell("AntPush"), Cell("dcp"), absent("training ended before")), "ant_push", "dcp"),
    )
    return Table("success", "Success at least once (%)", ("Environment", "Method", "10M"), rows, ("† 5% apart.",))


def test_a_number_is_printed_as_in_the_paper():
    assert number(2.5, 6.94).text == "2.5 ± 6.9"
    assert number(2.5, float("nan")).text == "2.5"
    assert number(-4.17, sign=True).text == "\u22124.2"
    assert number(11.46, 1.47, sign=True).text == "+11.5 ± 1.5"
    assert shown(-0.04) == "0.0"
    assert shown(0.04, sign=True) == "0.0"
    assert number(float("nan"), float("nan")).text == "NaN"


def test_the_csv_holds_unrounded_numbers_and_nothing_for_nothing(table: Table):
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert rows[0]["10M"] == "18.4375"
    assert rows[0]["10M ±"] == "5.4321"
    assert [row["10M seeds"] for row in rows] == ["5", "4", ""]
    assert [row["10M marker"] for row in rows] == ["†", "", ""]
    assert [row["10M bold"] for row in rows] == ["1", "", ""]
    assert rows[2]["10M"] == ""


def test_a_measured_nan_stays_in_the_csv():
    table = Table("t", "T", ("x",), (Row((number(float("nan")),)), Row((number(np.float64(1.0)),))))
    assert to_csv(table) == "x\nnan\n1.0\n"


def test_a_dash_among_words_makes_no_column_of_numbers():
    words, numbers, nothing = (Cell("↓ crl"), absent()), (number(1.0), absent()), (absent(), absent())
    table = Table(
        "t", "T", ("w", "n", "none"), tuple(Row(cells) for cells in zip(words, numbers, nothing, strict=True))
    )
    assert [table.is_numeric(at) for at in range(3)] == [False, True, True]
    assert r"\begin{tabular}{lrr}" in to_latex(table)


def test_bounds_have_columns_of_their_own():
    table = Table("t", "T", ("x",), (Row((Cell("0.5 [0.4, 0.7]", 0.5, bounds=(0.4, 0.7)),)), Row((Cell("0.5", 0.5),))))
    assert to_csv(table) == "x,x low,x high\n0.5,0.4,0.7\n0.5,,\n"


def test_the_markdown_is_a_table_with_its_notes(table: Table):
    assert to_markdown(table).splitlines() == [
        "**Success at least once (%)**",
        "",
        "| Environment | Method | 10M |",
        "| :--- | :--- | ---: |",
        r"| AntMaze\_Big | dcp | **18.4 ± 5.4**† |",
        "|  | crl | 15.1 ± 3.7 |",
        "| AntPush | dcp | \u2013 |",
        "",
        "- † 5% apart.",
    ]


def test_the_latex_is_booktabs_with_every_sign_escaped(table: Table):
    lines = to_latex(table).splitlines()
    assert r"\caption{Success at least once (\%). $^\dagger$ 5\% apart.}" in lines
    assert lines[lines.index(r"\begin{tabular}{llr}") :] == [
        r"\begin{tabular}{llr}",
        r"\toprule",
        r"Environment & Method & 10M \\",
        r"\midrule",
        r"AntMaze\_Big & dcp & \textbf{18.4 $\pm$ 5.4}$^\dagger$ \\",
        r" & crl & 15.1 $\pm$ 3.7 \\",
        r"\midrule",
        r"AntPush & dcp & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="2 cells for 1 columns"):
        Table("t", "T", ("x",), (Row((Cell("a"), Cell("b"))),))


def test_three_files_are_written(table: Table, tmp_path: Path):
    paths = write_table(table, tmp_path / "tables")
    assert [path.name for path in paths] == ["success.csv", "success.md", "success.tex"]
    assert paths[0].read_text() == to_csv(table)


def test_a_folder_that_cannot_be_written_is_one_sentence(table: Table, tmp_path: Path):
    (tmp_path / "tables").write_text("in the way")
    with pytest.raises(UserError, match="--out"):
        write_table(table, tmp_path / "tables")
