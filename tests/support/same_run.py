"""When two run folders hold the same run: every number but the timing, and every bit of the whole state."""

import csv
from pathlib import Path

import numpy as np

from dcp.runs import checkpoint as files
from dcp.runs import run_status
from dcp.runs.run_status import read_arrays

TIMING = {"steps_per_second", "wall_seconds"}


def metrics(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return [{name: text for name, text in row.items() if name not in TIMING} for row in csv.DictReader(file)]


def final_arrays(folder: Path) -> dict[str, np.ndarray]:
    newest = files.checkpoints(folder / "checkpoints")[0]
    run_status.verify(newest)
    return read_arrays(newest, run_status.read_record(newest)["arrays"])


def assert_same_run(folder: Path, other: Path) -> None:
    assert metrics(folder) == metrics(other)
    assert (folder / "policy.safetensors").read_bytes() == (other / "policy.safetensors").read_bytes()
    ours, theirs = final_arrays(folder), final_arrays(other)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)  # NaN equals NaN here
