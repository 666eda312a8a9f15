"""Eleven short runs end with the very bits that they had before the house was rebuilt; see golden_runs.py."""

import json

import pytest

from tests.support import golden_runs


def compare(names: list[str]) -> None:
    recorded = json.loads(golden_runs.FILE.read_text())
    wanted = recorded.get(golden_runs.fingerprint())
    found = golden_runs.run(names)
    reference = wanted or next(iter(recorded.values()))
    wrong = [
        d for name in names for d in golden_runs.differences(reference[name], found[name], wanted is not None, name)
    ]
    assert wrong == []


def test_runs_without_physics_end_with_the_recorded_bits():
    compare(list(golden_runs.CHEAP))


@pytest.mark.slow
def test_runs_under_physics_end_with_the_recorded_bits():
    compare([name for name in golden_runs.CASES if name not in golden_runs.CHEAP])


def test_a_difference_in_the_last_bit_is_seen():
    wanted, found = {"rows": [{"critic_loss": 1.0}]}, {"rows": [{"critic_loss": 1.0 + 2**-52}]}
    assert golden_runs.differences(wanted, found, exactly=True)
    assert not golden_runs.differences(wanted, found, exactly=False)
