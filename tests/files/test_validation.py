"""What a stranger's file may hold: regular files, JSON of a bounded depth, the promised types."""

import os
import threading
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta, Struct

from dcp.files.validation import (
    FormatError,
    Name,
    Size,
    checked,
    open_regular,
    parse_json,
    read_json,
    read_text,
)


class Sizes(Struct):
    size: Size
    name: Name = ""
    rows: list[dict[str, float]] = []
    share: Annotated[float, Meta(ge=0, le=1)] = 0.0


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "expected object, got array"),
        ({}, "object missing required field size"),
        ({"size": True}, "size: expected int, got bool"),
        ({"size": "3"}, "size: expected int, got str"),
        ({"size": 3.0}, "size: expected int, got float"),
        ({"size": 0}, "size: expected int >= 1"),
        ({"size": 10**900}, "size: expected int <= 1000000"),
        ({"size": 1, "rows": [{"a": None}]}, "rows[0][...]: expected float, got null"),
        ({"size": 1, "rows": [{"a": 10**400}]}, "rows[0][...]: number out of range"),
        ({"size": 1, "share": float("inf")}, "share: expected float <= 1.0"),
        ({"size": 1, "share": float("nan")}, "share: expected float"),
        ({"size": 1, "name": "two\nlines"}, "name: expected str matching"),
        ({"size": 1, "name": 301 * "a"}, "name: expected str of length <= 300"),
    ],
)
def test_a_value_of_another_type_or_range_is_named_with_its_place(value, reason: str):
    with pytest.raises(FormatError) as error:
        checked(value, Sizes)
    assert str(error.value).startswith(reason)


def test_what_fits_comes_back_typed():
    assert checked({"size": 3, "rows": [{"a": 1}], "other": None}, Sizes) == Sizes(3, "", [{"a": 1.0}])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        (100_000 * "[", "nested too deeply"),
        (40 * "[" + 40 * "]", "nested deeper than 32"),
        (10_000 * "9", "Exceeds the limit"),
        ('"\\ud800"', "half a character"),
        ('{"\\udfff": 1}', "half a character"),
    ],
)
def test_what_is_no_json_is_one_line(text: str, reason: str):
    with pytest.raises(FormatError, match=reason) as error:
        parse_json(text)
    assert len(str(error.value).splitlines()) == 1


def test_json_as_we_write_it_is_read():
    assert parse_json('{"a": [1, 2.5, null, "\\ud83d\\ude00"]}') == {"a": [1, 2.5, None, "\U0001f600"]}
    assert parse_json("NaN") != parse_json("NaN")


def test_a_pipe_a_device_and_a_folder_are_no_files(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        done: list[BaseException] = []

        def read(path: Path = path, done: list = done) -> None:
            try:
                read_text(path)
            except OSError as error:
                done.append(error)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(5)
        assert done and not reader.is_alive(), path
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / "pipe")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path):
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(10**12)  # no byte of it is on the disk
    with pytest.raises(OSError, match="more than"):
        read_json(tmp_path / "big.json")
