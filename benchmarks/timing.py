"""Two forms of the same work, measured in turns in one run: machines are noisy, ratios less so."""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - start


def in_turns(forms: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each form. The first call of each compiles and is not counted."""
    for work in forms.values():
        seconds(work)
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(rounds):
        for name, work in forms.items():
            times[name].append(seconds(work))
    return {name: statistics.median(values) for name, values in times.items()}


def least_in_turns(forms: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Least seconds of each form by this process's clock, which other work hardly moves: for one core."""
    for work in forms.values():
        jax.block_until_ready(work())
    times: dict[str, float] = dict.fromkeys(forms, float("inf"))
    for _ in range(rounds):
        for name, work in forms.items():
            start = time.process_time()
            jax.block_until_ready(work())
            times[name] = min(times[name], time.process_time() - start)
    return times


def report(**figures: Any) -> None:
    """One JSON object, as the last line."""
    print(json.dumps({name: round(f, 4) if isinstance(f, float) else f for name, f in figures.items()}))
