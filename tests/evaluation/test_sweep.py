"""Which burst a sweep chooses, on trials whose outcome is given."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dcp.evaluation.sweep import sweep
from dcp.policies.policy import HostPolicy

POLICY = HostPolicy(lambda state, goal: state)
Outcome = tuple[list[int], list[int]]  # success, time near goal


class Arena:
    """Gives each burst what the table says, on the first episodes; others are told by their keys."""

    seeds = (0,)

    def __init__(self, outcomes: dict[tuple[int, int], Outcome]):
        self.outcomes = outcomes

    def trial(self, policy: Any, keys: Any = None) -> Any:
        burst = (getattr(policy, "period", 0), getattr(policy, "length", 0))
        success, near = self.outcomes.get(burst, ([0, 0], [0, 0]))
        measures = SimpleNamespace(success=np.array(success), time_near_goal=np.array(near))
        return SimpleNamespace(all=measures, burst=burst, other=keys is not None)


@pytest.mark.parametrize(
    ("outcomes", "best"),
    [
        ({(50, 10): ([1, 0], [9, 0]), (100, 10): ([1, 1], [1, 1])}, (100, 10)),  # success goes first
        ({(50, 10): ([1, 0], [9, 0]), (100, 10): ([0, 1], [0, 5])}, (50, 10)),  # then time near goal
        ({(50, 10): ([1, 1], [5, 5]), (100, 10): ([1, 1], [5, 5])}, (100, 10)),  # then the fewer random steps
        ({(100, 10): ([1, 1], [5, 5]), (50, 10): ([1, 1], [5, 5])}, (100, 10)),  # in whichever order they are tried
    ],
)
def test_the_best_burst_is_chosen_by_success_then_by_time_then_by_fewer_random_steps(outcomes, best):
    found: Any = sweep(Arena(outcomes), POLICY, list(outcomes))  # pyright: ignore[reportArgumentType]
    assert found.best == best
    assert [(one.burst, one.other) for one in (found.without, found.confirmed_without, found.confirmed)] == [
        ((0, 0), False),
        ((0, 0), True),
        (best, True),
    ]
