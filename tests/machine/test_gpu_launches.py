"""benchmarks/gpu_launches.py on a dump that is written by hand, in the form of XLA's own, and counted by hand."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "gpu_launches.py"

# Entries of a loop, branch or graph stand four spaces further right than it does, "condition:" at the left edge.
SEQUENCE = """\
000: kKernel
001: kWhile
condition:
    002: kKernel
  body:
    003: kKernel
    004: kGemm
    005: kConditional

      branch_0:
        006: kKernel
      branch_1:
        007: kKernel
        008: kMemset


009: kWhile
condition:
    010: kKernel
  body:
    011: kKernel

012: kCommandBuffer
    013: kKernel
    014: kWhile
condition:
        015: kKernel
      body:
        016: kCopy
        017: kGemm

    018: kKernel

019: kReplicaId
020: kCopy
"""
NAMES = {0: "fusion.7", 1: "while.1", 9: "while.2", 14: "while.3", 20: "copy.20"}
HLO = """\
ENTRY %main (a: f32[8]) -> f32[8] {
  %fusion.7 = f32[8]{0} fusion(%a), kind=kLoop
  %while.1 = (s32[], f32[8]{0}) while(%tuple), backend_config={"known_trip_count":{"n":"3"}}
  %while.2 = (s32[], f32[8]{0}) while(%while.1), condition=%c, body=%b
  %while.3 = (s32[], f32[8]{0}) while(%while.2), condition=%c, body=%b
  ROOT %copy.20 = f32[8]{0} copy(%while.3)
}
"""


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark as a module, without what it changes in this process when it is imported."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("gpu_launches", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_launches", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def dumped(launches: ModuleType, tmp_path: Path):
    metadata = "".join(f'profile_annotation: "{name}"\n  thunk_id: {number}\n' for number, name in NAMES.items())
    (tmp_path / "module.thunk_sequence.txt").write_text(SEQUENCE)
    (tmp_path / "module.thunk_metadata.txt").write_text(metadata)
    (tmp_path / "module.gpu_after_optimizations.txt").write_text(HLO)
    return launches.Program(tmp_path)


def outline(thunks) -> list:
    """[number, {part: outline}], or only the number of an entry without parts."""
    return [
        [t.number, {name: outline(part) for name, part in t.parts.items()}] if t.parts else t.number for t in thunks
    ]


def test_the_tree_of_a_dump_is_read_by_its_indentation(launches: ModuleType):
    assert outline(launches.parsed(SEQUENCE)) == [
        0,
        [1, {"condition": [2], "body": [3, 4, [5, {"branch_0": [6], "branch_1": [7, 8]}]]}],
        [9, {"condition": [10], "body": [11]}],
        [12, {"": [13, [14, {"condition": [15], "body": [16, 17]}], 18]}],
        19,
        20,
    ]


# number of the entry: launches, submissions, host waits
PARTS = {
    0: (1, 1, 0),  # a kernel
    1: (3 * (2 + 2), 3 * (2 + 2), 3),  # three rounds of two and the longer branch, which the host chooses each time
    9: (1 + 2, 1 + 2, 2),  # of unknown length: one round, and its condition before and after, which the host reads
    12: (2 + 2 + 2, 1, 0),  # a graph: its loop's condition stays on the device
    19: (0, 0, 0),
    20: (1, 1, 0),
}


@pytest.mark.parametrize("number", PARTS)
def test_each_kind_of_entry_counts_as_it_does_by_hand(launches: ModuleType, dumped, number: int):
    (thunk,) = (thunk for thunk in dumped.thunks if thunk.number == number)
    count = launches.counted(dumped, [thunk])
    assert (count.launches, count.submissions, count.host_waits) == PARTS[number]


def test_the_whole_program_is_the_sum_and_each_launch_has_its_line(launches: ModuleType, dumped):
    assert [dumped.trips(thunk) for thunk in dumped.thunks[1:3]] == [3.0, None]
    count = launches.counted(dumped, dumped.thunks)
    assert (count.launches, count.submissions, count.host_waits) == (23, 18, 5)
    assert sum(count.lines.values()) == 23 and count.lines["fusion"] == count.lines["copy"] == 1
