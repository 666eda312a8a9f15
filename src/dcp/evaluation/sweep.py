"""Which burst is best? Tried on one set of episodes, confirmed on another: the best of many flatters itself."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dcp.errors import UserError
from dcp.evaluation.program import evaluation_key
from dcp.evaluation.trial import GOAL_SETS, Arena, Trial
from dcp.policies.policy import Policy, with_burst

PERIODS = (50, 100, 200)
LENGTHS = (5, 10, 20)
CONFIRMATION = GOAL_SETS + 1  # the second set of each seed


class Sweep(NamedTuple):
    without: Trial
    tried: dict[tuple[int, int], Trial]  # (P, L) -> its trial, on the same episodes
    best: tuple[int, int]
    confirmed_without: Trial  # on other episodes
    confirmed: Trial


def combinations(periods: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, int]]:
    found = [(period, length) for period in periods for length in lengths if 0 < length < period]
    if not found:
        raise UserError("the sweep has no burst with 0 < L < P: give other --periods and --lengths")
    return found


def sweep(
    arena: Arena, policy: Policy, bursts: Sequence[tuple[int, int]], on_trial: Callable[[str], object] = len
) -> Sweep:
    """P and L are arguments of one program: all bursts together are compiled once."""

    def trial(burst: tuple[int, int] | None, confirm: bool = False) -> Trial:
        keys = [evaluation_key(seed, CONFIRMATION) for seed in arena.seeds] if confirm else None
        found = arena.trial(with_burst(policy, *burst) if burst else policy, keys)
        on_trial(f"P {burst[0]}, L {burst[1]}" if burst else "no burst")
        return found

    without = trial(None)
    tried = {burst: trial(burst) for burst in bursts}
    best = max(tried, key=lambda burst: _merit(tried[burst], burst))
    return Sweep(without, tried, best, trial(None, confirm=True), trial(best, confirm=True))


def _merit(trial: Trial, burst: tuple[int, int]) -> tuple[float, float, float]:
    """Success first, then time near goal; among equals the smaller share of random steps."""
    measures = trial.all
    return float(measures.success.mean()), float(measures.time_near_goal.mean()), -burst[1] / burst[0]
