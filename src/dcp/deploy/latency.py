"""How long a single step takes: percentiles over many, with inputs that differ and forms that take turns."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

TURN = 50  # steps of one form before the next takes over
WARM_UP = 5  # uncounted steps at the start of a turn: another form has just used the processor's caches
INPUTS = 1024  # different observations

Step = Callable[[np.ndarray, np.ndarray], Any]


class Latency(NamedTuple):
    """Microseconds of a single step."""

    p50: float
    p99: float
    turns: tuple[float, ...]  # the median of each turn

    def over(self, other: "Latency") -> float:
        """How many times as long, turn by turn: what disturbs both at once cancels."""
        return float(np.median(np.divide(self.turns, other.turns)))


class Case(NamedTuple):
    """A policy, its sizes, and whether its goal stays the same from step to step."""

    step: Step
    state_size: int
    goal_size: int
    same_goal: bool = True
    before: Callable[[], Any] | None = None  # run before each step, not timed: what a robot's loop does in between


def measure(cases: Mapping[Any, Case], steps: int) -> dict[Any, Latency]:
    """`steps` of each case, in turns, so that a noisy neighbour disturbs all alike."""
    inputs = {name: _inputs(case) for name, case in cases.items()}
    for name, case in cases.items():  # compiles, and fills what is allocated once
        for number in range(20 * WARM_UP):
            case.step(*inputs[name][number])
    turns: dict[Any, list[list[int]]] = {name: [] for name in cases}
    for start in range(0, steps, TURN):
        for name, case in cases.items():
            turns[name].append(_turn(case, inputs[name], start, min(TURN, steps - start)))
    return {name: _latency(found) for name, found in turns.items()}


def _latency(turns: list[list[int]]) -> Latency:
    p50, p99 = np.percentile(np.concatenate(turns), (50, 99)) / 1000.0
    return Latency(float(p50), float(p99), tuple(float(np.median(turn)) / 1000.0 for turn in turns))


def _turn(case: Case, inputs: list[tuple[np.ndarray, np.ndarray]], start: int, count: int) -> list[int]:
    times, step = [], case.step
    for number in range(start - WARM_UP, start + count):
        state, goal = inputs[number % INPUTS]
        if case.before is not None:
            case.before()
        begin = time.perf_counter_ns()
        step(state, goal)
        times.append(time.perf_counter_ns() - begin)
    return times[WARM_UP:]


def _inputs(case: Case) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    states = random.normal(0.0, 3.0, (INPUTS, case.state_size)).astype(np.float32)
    goals = random.normal(0.0, 3.0, (INPUTS, case.goal_size)).astype(np.float32)
    return [(state, goals[0 if case.same_goal else number].copy()) for number, state in enumerate(states)]
